"""QUERY with `statesSince`: what is told, and when everything is told again.

That the changes make the whole after any history is checked in test_sums.py for one subscription, and in the machine
of the whole broker for many.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from broker.management.known_states import KnownStates, all_documents
from proton import Delivery, Message
from support.proton_client import Subscribed
from support.stepped_broker import SteppedBroker

from penstock_api.management import DeliveryPolicy, EntityType, QueueLimits, SubscriptionDeclaration
from penstock_api.state_documents import SubscriptionState
from penstock_broker.management import changed_states, declare, entity_states
from penstock_broker.management.in_flight import in_flight
from penstock_broker.management.replies import to_value
from penstock_broker.topology import state_changes


@pytest.fixture
def site() -> Iterator[SteppedBroker]:
    broker = SteppedBroker()
    yield broker
    broker.close()


def declared(site: SteppedBroker, *names: str) -> None:
    """Durable subscriptions of these names, each with a binding key of its name."""
    for name in names:
        body = SubscriptionDeclaration(subscription_name=name, exchange="amq.topic", binding_keys=(name,))
        assert declare.declare(site.broker, EntityType.SUBSCRIPTION, None, to_value(body), update=False).status == 201
    site.turn()


def ended(site: SteppedBroker, name: str) -> None:
    """The subscription is gone."""
    topology = site.broker.topology
    topology.end(next(each for each in topology.subscriptions.values() if each.identity.name == name))
    site.turn()


def whole(site: SteppedBroker) -> dict[str, SubscriptionState]:
    """What a full read tells."""
    broker = site.broker
    held = in_flight(broker.clients.connections.values())
    documents = [entity_states.subscription_state(each, held) for each in broker.topology.subscriptions.values()]
    found = [{key: value for key, value in each.items() if value is not None} for each in documents]
    return {state.queue_name: state for state in map(SubscriptionState.read, found)}


def names(known: KnownStates) -> list[str]:
    """Of the subscriptions that the reader knows."""
    return sorted(state.subscription_name for state in known.states.values())


def test_what_did_not_change_is_not_told(site: SteppedBroker) -> None:
    """Two subscriptions, then none, then the one that got a message; time alone changes nothing."""
    declared(site, "a", "b")
    known = KnownStates()
    known.ask(site.broker)
    assert (known.told, known.was_whole, names(known)) == (2, True, ["a", "b"])
    site.pass_ms(600_000)
    known.ask(site.broker)
    assert (known.told, known.was_whole) == (0, False)
    site.connect().send("amq.topic/a", Message(body="1"))
    known.ask(site.broker)
    assert (known.told, known.states["psub:durable:global:a"].depth) == (1, 1)
    known.ask(site.broker)
    assert known.told == 0


def test_a_message_that_waits_for_a_consumer_without_credit_is_looked_at_each_time(site: SteppedBroker) -> None:
    """Whether credit is usable does not depend on the queue alone."""
    declared(site, "a")
    peer = site.connect()
    link = peer.session.receiver("a")
    link.source.address = "amq.topic/a"
    Subscribed().apply(link)
    link.open()
    peer.pump()
    known = KnownStates()
    known.ask(site.broker)
    known.ask(site.broker)
    assert known.told == 0
    site.connect().send("amq.topic/a", Message(body="1"))
    for _ in range(3):
        known.ask(site.broker)
        assert known.told == 1
        assert known.states == whole(site)


def test_the_age_of_what_a_consumer_gets_while_the_reply_is_made(site: SteppedBroker) -> None:
    """Two messages wait for 8 s and 3 s, and are sent one by one while replies are made; then both are accepted
    during another one. Their age is never missing while they are there, and never said when they are gone.
    """
    declared(site, "a")
    peer = site.connect()
    link = peer.session.receiver("a")
    link.source.address = "amq.topic/a"
    Subscribed().apply(link)
    link.open()
    peer.pump()
    producer = site.connect()
    first_ms = site.broker.clock.now_us // 1000
    producer.send("amq.topic/a", Message(body="1"))
    site.pass_ms(5_000)
    producer.send("amq.topic/a", Message(body="2"))
    site.pass_ms(3_000)

    def told(credit: int) -> list[object]:
        """The state of a reply that began before the consumer gave this credit."""
        begun = changed_states.begin(site.broker, "", [], 10)
        link.flow(credit)
        peer.pump()
        state = begun.next_state()
        assert state is not None
        return [state[key] for key in ("ready", "inFlight", "oldestAvailableMs", "oldestHoldMs")]

    assert told(1) == [1, 1, first_ms, first_ms + 8_000]
    assert told(1) == [0, 2, first_ms, first_ms + 8_000]
    begun = changed_states.begin(site.broker, "", [], 10)
    peer.take()
    peer.take()
    state = begun.next_state()
    assert state is not None
    assert (state["depth"], state["oldestAvailableMs"], state["oldestHoldMs"]) == (0, None, None)


def test_an_old_message_that_comes_back_and_goes_out_again_keeps_its_age(site: SteppedBroker) -> None:
    """It waits when the reply begins, while a consumer holds a newer one, and is sent before its state is made."""
    declared(site, "a")
    peer = site.connect()
    link = peer.session.receiver("a")
    link.source.address = "amq.topic/a"
    Subscribed().apply(link)
    link.open()
    link.flow(2)
    peer.pump()
    producer = site.connect()
    first_ms = site.broker.clock.now_us // 1000
    producer.send("amq.topic/a", Message(body="old"))
    site.pass_ms(30_000)
    producer.send("amq.topic/a", Message(body="new"))
    peer.take(Delivery.RELEASED)
    begun = changed_states.begin(site.broker, "", [], 10)
    link.flow(1)
    peer.pump()
    state = begun.next_state()
    assert state is not None
    assert (state["ready"], state["inFlight"], state["oldestAvailableMs"]) == (0, 2, first_ms)


def test_a_subscription_that_ends_is_named_and_may_come_again(site: SteppedBroker) -> None:
    """Both readers learn it, the one that asks late, too; it is there or gone, whatever happened in between."""
    declared(site, "a", "b")
    early, late = KnownStates(), KnownStates()
    early.ask(site.broker)
    late.ask(site.broker)
    ended(site, "a")
    early.ask(site.broker)
    assert (early.told, names(early)) == (0, ["b"])
    declared(site, "a")
    ended(site, "b")
    for reader in (early, late):
        reader.ask(site.broker)
        assert (reader.was_whole, names(reader)) == (False, ["a"])
        assert reader.states == whole(site)


def test_many_changes_come_in_parts(site: SteppedBroker) -> None:
    """Five of seven change; the reader takes two at a time, and one more changes between its questions."""
    declared(site, *"abcdefg")
    known = KnownStates()
    known.ask(site.broker, most=2)
    assert (known.told, known.was_whole) == (7, True)
    peer = site.connect()
    for name in "gface":
        peer.send(f"amq.topic/{name}", Message(body="1"))
    assert known.page(site.broker, 2) == 3
    peer.send("amq.topic/g", Message(body="2"))
    ended(site, "b")
    assert known.page(site.broker, 2) == 1
    assert known.page(site.broker, 2) == 0
    assert known.states["psub:durable:global:g"].depth == 1  # its second change is for the next poll
    known.ask(site.broker, most=2)
    assert (known.told, known.states) == (1, whole(site))
    assert known.states["psub:durable:global:g"].depth == 2


def test_a_poll_of_many_busy_subscriptions_ends(site: SteppedBroker) -> None:
    """Each has ready messages and a consumer, and so counts as changed whenever it is told."""
    declared(site, *"abcde")
    peer = site.connect()
    for name in "abcde":
        link = peer.session.receiver(f"{name}|global")
        link.source.address = f"amq.topic/{name}"
        Subscribed().apply(link)
        link.open()
        peer.pump()
        peer.send(f"amq.topic/{name}", Message(body="1"))
    known = KnownStates()
    assert [known.page(site.broker, 2) for _ in range(3)] == [3, 1, 0]
    assert [known.page(site.broker, 2) for _ in range(3)] == [3, 1, 0]
    assert known.states == whole(site)


@pytest.mark.parametrize("token", ["", "other.1.3", "{life}", "{life}x", "{life}-1", "{life}99"])
def test_a_token_that_says_nothing_here_gets_everything(site: SteppedBroker, token: str) -> None:
    """Empty, of another broker, cut off, no number, or of a version that was never given."""
    declared(site, "a")
    known = KnownStates()
    known.ask(site.broker)
    life = known.token.rpartition(".")[0] + "."
    known.token = token.replace("{life}", life)
    known.ask(site.broker)
    assert (known.told, known.was_whole) == (1, True)


def test_after_a_restart_everything_is_told_again(site: SteppedBroker) -> None:
    """The same folder, another life, and versions that begin anew."""
    declared(site, "a", "b")
    known = KnownStates()
    known.ask(site.broker)
    ended(site, "a")
    site.restart()
    known.ask(site.broker)
    assert (known.was_whole, names(known)) == (True, ["b"])


def test_who_asks_too_late_for_what_ended_gets_everything(site: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last two ends are known: a reader that missed three can't be told which."""
    monkeypatch.setattr(state_changes, "KEPT", 2)
    declared(site, *"abcd")
    known, late = KnownStates(), KnownStates()
    known.ask(site.broker)
    late.ask(site.broker)
    for name in "abc":
        ended(site, name)
        known.ask(site.broker)
        assert not known.was_whole
    late.ask(site.broker)
    assert (late.was_whole, names(late)) == (True, ["d"])


def test_a_queue_that_ended_is_not_kept(site: SteppedBroker) -> None:
    """Nobody asks, and thousands of subscriptions come and go: only those that are there are remembered."""
    for _ in range(3):
        declared(site, "a")
        ended(site, "a")
    assert not site.broker.topology.state_changes.pending


def test_limits_are_no_state(site: SteppedBroker) -> None:
    """A declaration that changes nothing is not told; one that does is, because of the revision."""
    declared(site, "a")
    known = KnownStates()
    known.ask(site.broker)
    body = SubscriptionDeclaration(subscription_name="a", exchange="amq.topic", binding_keys=("a",))
    for limits, told in ((QueueLimits(), 0), (QueueLimits(max_messages=5), 1)):
        changed = body.model_copy(update={"limits": limits})
        declare.declare(site.broker, EntityType.SUBSCRIPTION, None, to_value(changed), update=False)
        known.ask(site.broker)
        assert known.told == told
        assert known.states == whole(site)


class FollowedBroker(SteppedBroker):
    """A broker whose changes are followed after every turn, not only when nobody has anything more to say."""

    def __init__(self) -> None:
        self.known = KnownStates()
        super().__init__()

    def turn(self) -> None:
        super().turn()
        self.known.follow(self.broker)
        assert self.known.documents == all_documents(self.broker)


def test_work_that_takes_many_turns_is_followed_in_each() -> None:
    """Deliveries that need more than one visit of the queue, and expired messages that leave in slices and are stranded
    because there is no such destination.
    """
    site = FollowedBroker()
    delivery = DeliveryPolicy(expiry="amq.direct/nobody")
    body = SubscriptionDeclaration(subscription_name="a", exchange="amq.topic", binding_keys=("a",), delivery=delivery)
    declare.declare(site.broker, EntityType.SUBSCRIPTION, None, to_value(body), update=False)
    name = "psub:durable:global:a"
    producer, consumer = site.connect(), site.connect()
    for _ in range(12):
        producer.send("amq.topic/a", *[Message(body="1", ttl=5) for _ in range(100)])
    assert site.known.documents[name]["ready"] == 1200
    link = consumer.session.receiver("a")
    link.source.address = "amq.topic/a"
    Subscribed().apply(link)
    link.open()
    link.flow(150)
    consumer.pump()
    assert site.known.documents[name]["inFlight"] == 150
    for _ in range(150):
        consumer.take()
    for _ in range(12):
        site.pass_ms(1000)
    assert site.known.documents[name]["stranded"] == 1050
    site.close()


def test_credit_that_a_drain_gives_back_is_followed() -> None:
    """A hundred messages are two visits of the queue; what credit is left goes back after the second."""
    site = FollowedBroker()
    declared(site, "a")
    site.connect().send("amq.topic/a", *[Message(body="1") for _ in range(100)])
    consumer = site.connect()
    link = consumer.session.receiver("a")
    link.source.address = "amq.topic/a"
    Subscribed().apply(link)
    link.open()
    consumer.pump()
    link.drain(150)
    consumer.pump()
    state = site.known.documents["psub:durable:global:a"]
    assert (state["inFlight"], state["credit"]) == (100, 0)
    site.close()
