"""What is one name and what are two: a durable subscription is found again under exactly the text that made it."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

import pytest
from proton import Endpoint, Message, Receiver, Terminus
from support.proton_client import put_symbols
from support.stepped_broker import Peer, SteppedBroker

from penstock_broker.management import entity_states
from penstock_core.identity import Identity, Scope, parse_queue_name

NAMES = [
    "news",
    "News",
    " news",
    "news/eu",
    "news//eu",
    "news:eu",
    "psub:durable:global:news",
    "|news",
    "news|eu",
    "news%3Aeu",
    "caf\u00e9",
    "cafe\u0301",
    "\u202enews",
    "\U0001f4e8",
    "x" * 5_000,
]
"""Two of them look the same: Unicode's composed and decomposed form. AMQP 1.0 compares text by its characters."""


def subscribe(peer: Peer, name: str, *, shares: bool = False) -> Receiver:
    link = peer.session.receiver(name)
    link.source.address = "amq.topic/news"
    link.source.durability = Terminus.DELIVERIES
    link.source.expiry_policy = Terminus.EXPIRE_NEVER
    put_symbols(link.source.capabilities, ["topic", "shared"] if shares else ["topic"])
    link.open()
    peer.pump()
    peer.pump()  # the answer with a long name may take more than a turn
    return link


def names_of(timed: SteppedBroker) -> set[str]:
    return {each.identity.name for each in timed.broker.topology.subscriptions.values()}


def test_each_name_is_one_subscription_which_is_there_after_a_restart(timed: SteppedBroker) -> None:
    peer = timed.connect("app")
    for name in NAMES:
        subscribe(peer, name)
    assert names_of(timed) == set(NAMES)
    peer.connection.close()
    peer.pump()
    producer = timed.connect("producer")
    assert producer.send("amq.topic/news", Message(body="hello", durable=True)) == ["accepted"]
    timed.turn()
    timed.restart()
    assert names_of(timed) == set(NAMES)
    for name in NAMES:
        peer = timed.connect("app")
        link = subscribe(peer, name)
        link.flow(10)
        assert peer.bodies() == ["hello"], name
        peer.take()
        peer.connection.close()
        peer.pump()


def test_the_name_of_each_queue_leads_back_to_it(timed: SteppedBroker) -> None:
    """An address or a request can name it: without a slash, and as plain ASCII."""
    peer = timed.connect("app:\u00e9/1")
    for name in NAMES:
        subscribe(peer, name)
    topology = timed.broker.topology
    for each in topology.subscriptions.values():
        assert each.name.isascii() and "/" not in each.name
        assert parse_queue_name(each.name) == Identity(Scope("app:\u00e9/1"), each.identity.name, True)
        assert entity_states.subscription_state(each, {})["subscriptionName"] == each.identity.name


@pytest.mark.parametrize("other", [name for name in NAMES if name != "news"])
def test_another_spelling_is_another_subscription(timed: SteppedBroker, other: str) -> None:
    peer = timed.connect("app")
    subscribe(peer, "news", shares=True)
    subscribe(peer, other, shares=True)
    assert len(timed.broker.topology.subscriptions) == (1 if other == "news|eu" else 2)


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("name", ["", "\u20ac" * 8_000], ids=["empty", "long when escaped"])
def test_a_name_that_no_queue_can_have_is_refused_and_makes_nothing(
    timed: SteppedBroker, name: str, shares: bool
) -> None:
    peer = timed.connect("app")
    link = subscribe(peer, name, shares=shares)
    assert link.state & Endpoint.REMOTE_CLOSED
    condition = link.remote_condition
    assert condition is not None
    assert isinstance(condition.info, dict)
    assert (condition.name, condition.info["penstock:reason"]) == ("amqp:invalid-field", "InvalidName")
    assert not timed.broker.topology.subscriptions
    assert subscribe(peer, "news").state & Endpoint.REMOTE_ACTIVE


def test_another_container_has_a_subscription_of_its_own(timed: SteppedBroker) -> None:
    for container_id in ("app", "App", "app/", ""):
        subscribe(timed.connect(container_id), "news")
    assert [each.scope.container_id for each in timed.broker.topology.subscriptions] == ["app", "App", "app/", ""]
