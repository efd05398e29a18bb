"""The worst unsettled messages of a queue, as `$management` lists them."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# proton's own types are not complete.

from __future__ import annotations

import uuid
from typing import TypeAlias

import pytest
from proton import Delivery, Message
from support.stepped_broker import Peer, SteppedBroker

from penstock_api.management import DeliveryPolicy
from penstock_api.state_documents import RepeatedMessage
from penstock_broker.management import entity_states

Identifier: TypeAlias = str | bytes | uuid.UUID | int | None
BEGIN_MS = 1_000_000
"""The time at which the broker of a test starts."""


def listed(timed: SteppedBroker) -> list[RepeatedMessage]:
    found = entity_states.queue_state(timed.broker.topology.queues["jobs"], {})["repeated"]
    assert isinstance(found, list)
    return [RepeatedMessage.model_validate(each) for each in found]


def message(identifier: Identifier, body: str = "m", *, durable: bool = True) -> Message:
    made = Message(body=body, durable=durable)
    if identifier is not None:
        made.id = identifier
    return made


def fail(peer: Peer, times: int) -> None:
    """The oldest delivery fails, and again when it comes back."""
    for _ in range(times):
        peer.take(Delivery.MODIFIED, failed=True)


def test_poison_in_a_healthy_flow_is_listed_until_it_leaves(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    peer = timed.connect()
    link = peer.receive("jobs", credit=1)
    sender = timed.connect()
    sender.send("jobs", message("healthy"))
    peer.take()
    timed.pass_ms(500)
    sender.send("jobs", message("poison"))
    link.flow(1)
    fail(peer, 1)
    assert listed(timed) == []
    link.flow(1)
    fail(peer, 1)
    poison = RepeatedMessage(id="poison", delivery_count=2, available_ms=BEGIN_MS + 500, state="Ready")
    assert listed(timed) == [poison]
    link.flow(1)
    peer.pump()
    assert listed(timed) == [poison.model_copy(update={"state": "InFlight"})]
    peer.take(Delivery.RELEASED)
    assert listed(timed) == [poison]
    link.flow(1)
    peer.take(Delivery.ACCEPTED)
    assert listed(timed) == []
    assert timed.queue("jobs").totals.max_delivery_count == 2


def test_the_five_worst_are_listed_most_failures_first(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    peer = timed.connect()
    link = peer.receive("jobs", credit=0)
    sender = timed.connect()
    for number in range(7):
        sender.send("jobs", message(f"m{number}"))
    for failures in (2, 1, 4, 2, 3, 2, 5):
        for _ in range(failures):
            link.flow(1)
            fail(peer, 1)
        link.flow(1)
        peer.pump()  # it stays with the consumer, so that the next one comes
        held = peer.got.pop(0)
        assert held[0].body == "m"
    assert [(each.id, each.delivery_count, each.state) for each in listed(timed)] == [
        ("m6", 5, "InFlight"),
        ("m2", 4, "InFlight"),
        ("m4", 3, "InFlight"),
        ("m0", 2, "InFlight"),
        ("m3", 2, "InFlight"),
    ]
    peer.drop()
    assert {each.state for each in listed(timed)} == {"Ready"}


@pytest.mark.parametrize("length", [1, 5000])
@pytest.mark.parametrize(
    ("identifier", "text"),
    [
        ("ID:1", "ID:1"),
        (None, "#1"),
        ("", "#1"),
        ("x" * 300, "x" * 255),
        (17, "17"),
        (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (b"\x0a\xff", "0aff"),
        ("\x1b[31mred\n\u202e", "\ufffd[31mred\ufffd\ufffd"),
    ],
)
def test_a_message_is_named_by_its_id_or_else_by_its_number(
    timed: SteppedBroker, identifier: Identifier, text: str, length: int
) -> None:
    timed.make_queue("jobs")
    peer = timed.connect()
    peer.receive("jobs")
    timed.connect().send("jobs", message(identifier, "m" * length))
    fail(peer, 2)
    (found,) = listed(timed)
    assert found.id == (text if text != "#1" else f"#{numbers(timed)[0]}")


def numbers(timed: SteppedBroker) -> list[int]:
    """The numbers of the messages that failed."""
    return list(timed.queue("jobs").redelivery.attempts)


def test_a_restart_keeps_the_counts_that_are_in_the_log(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    peer = timed.connect()
    peer.receive("jobs", credit=10)
    sender = timed.connect()
    for name, durable in (("first", True), ("volatile", False), ("second", True)):
        sender.send("jobs", message(name, durable=durable))
        for _ in range(2 if name != "second" else 3):
            fail(peer, 1)
        peer.pump()
        peer.got.clear()  # stays with the consumer
    assert [(each.id, each.delivery_count) for each in listed(timed)] == [("second", 3), ("first", 2), ("volatile", 2)]
    timed.turn()
    timed.pass_ms(40)
    timed.restart()
    assert listed(timed) == [
        RepeatedMessage(id="second", delivery_count=3, available_ms=BEGIN_MS, state="Ready"),
        RepeatedMessage(id="first", delivery_count=2, available_ms=BEGIN_MS, state="Ready"),
    ]
    again = timed.connect()
    again.receive("jobs")
    assert [each.state for each in listed(timed)] == ["InFlight", "InFlight"]
    again.take()
    assert [each.id for each in listed(timed)] == ["second"]


def test_a_dead_letter_is_listed_as_scheduled_while_it_is_stranded_and_then_no_more(timed: SteppedBroker) -> None:
    timed.make_queue("jobs", DeliveryPolicy(max_deliveries=3, dead_letter="dead"))
    peer = timed.connect()
    peer.receive("jobs", credit=10)
    timed.connect().send("jobs", message("poison"))
    fail(peer, 3)
    assert [(each.id, each.delivery_count, each.state) for each in listed(timed)] == [("poison", 3, "Scheduled")]
    timed.make_queue("dead")
    timed.pass_ms(1100)
    assert (listed(timed), timed.queue("dead").depth) == ([], 1)


def test_a_rejected_message_that_is_stranded_is_not_in_flight(timed: SteppedBroker) -> None:
    timed.make_queue("jobs", DeliveryPolicy(dead_letter="dead"))
    peer = timed.connect()
    peer.receive("jobs", credit=10)
    timed.connect().send("jobs", message("poison"))
    fail(peer, 2)
    peer.take(Delivery.REJECTED)
    assert [(each.id, each.state) for each in listed(timed)] == [("poison", "Scheduled")]


def test_a_message_that_came_before_the_clock_was_set_back_is_listed_as_ready(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    peer = timed.connect()
    peer.receive("jobs", credit=10)
    timed.connect().send("jobs", message("poison"))
    fail(peer, 2)
    peer.drop()
    queue = timed.queue("jobs")
    (entry,) = queue.take_out({each[0]: each for _, each in queue.everything()}, set(numbers(timed)))
    timed.skew_ms = -60_000
    timed.turn()
    queue.keep(entry, (BEGIN_MS - 60_000) * 1000)
    assert [each.state for each in listed(timed)] == ["Ready"], "it asked for no delay"
