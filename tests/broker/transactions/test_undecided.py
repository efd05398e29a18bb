"""Deliveries to which the client gives an outcome in a transaction without settling them: they are its own until the
discharge, and it may still say something else. Source: AMQP 1.0 part 4, 4.4.2; docs/concepts/transactions.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.stepped_broker import SteppedBroker
from support.transaction_client import ReceivedDelivery, TransactionClient, condition_of

from penstock_amqp.frames.performatives import Accepted, Rejected, Released
from penstock_amqp.messages.message_codec import Message
from penstock_api.management import QueueLimits
from penstock_broker.management.in_flight import connections_of, in_flight
from penstock_broker.queue.queue import Queue
from penstock_broker.transactions import rollback


@pytest.fixture
def stepped() -> Iterator[SteppedBroker]:
    broker = SteppedBroker()
    broker.make_queue("jobs")
    yield broker
    broker.close()


def got(client: TransactionClient, *bodies: str, address: str = "jobs") -> list[ReceivedDelivery]:
    """Deliveries of messages that are sent now."""
    sender = client.sender(address, f"to {address}: {bodies[0]}")
    for body in bodies:
        assert client.state_of(client.send(sender, Message(body=body))) == Accepted()
    client.receiver(address, credit=len(bodies), name=f"from {address}: {bodies[0]}")
    return client.get(len(bodies))


def undecided(client: TransactionClient, txn_id: bytes) -> ReceivedDelivery:
    """A delivery that has an outcome in the transaction, and was then accepted outside of it."""
    (one,) = got(client, "a")
    client.settle(one, Accepted(), txn_id, settled=False)
    assert client.nothing_came()  # the broker has read it
    client.settle(one, Accepted(), None)
    return one


@pytest.mark.parametrize("link_ends", [False, True])
def test_of_two_outcomes_the_later_holds(
    client: TransactionClient, other: TransactionClient, queue: Queue, link_ends: bool
) -> None:
    one, two = got(client, "a", "b")
    txn_id = client.declare()
    client.settle(one, Accepted(), txn_id, settled=False)
    client.settle(two, Released(), txn_id, settled=False)
    assert client.nothing_came()  # the broker has read both
    client.settle(one, Released(), txn_id, settled=False)
    client.settle(two, Accepted(), txn_id, settled=False)
    assert client.nothing_came()
    if link_ends:
        client.detach(one.handle)
        assert queue.in_flight == 2
    client.commit(txn_id)
    if not link_ends:
        assert (client.concluded(one), client.concluded(two)) == (Released(), Accepted())
    other.receiver("jobs")
    assert other.bodies(1) == [("a", 0)]
    assert other.nothing_came()
    assert (queue.depth, queue.in_flight) == (1, 1)


def test_of_two_outcomes_the_later_holds_also_if_another_link_ends(
    client: TransactionClient, other: TransactionClient, queue: Queue
) -> None:
    (one,), (two,) = got(client, "a"), got(client, "b")
    txn_id = client.declare()
    for each, outcome in ((one, Accepted()), (two, Accepted()), (one, Released())):
        client.settle(each, outcome, txn_id, settled=False)
        assert client.nothing_came()
    client.detach(two.handle)
    client.commit(txn_id)
    assert client.concluded(one) == Released()
    other.receiver("jobs")
    assert other.bodies(1) == [("a", 0)]
    assert other.nothing_came()
    assert (queue.depth, queue.in_flight) == (1, 1)


@pytest.mark.parametrize("fails", [pytest.param(False, id="commit"), pytest.param(True, id="rollback")])
def test_what_was_accepted_outside_since_is_gone_whatever_becomes_of_link_and_transaction(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue, fails: bool
) -> None:
    txn_id = client.declare()
    one = undecided(client, txn_id)
    assert client.nothing_came()
    assert in_flight(connections_of(stepped.broker, [queue])) == {}
    client.detach(one.handle)
    assert in_flight(connections_of(stepped.broker, [queue])) == {}
    assert client.discharge(txn_id, fail=fails) == Accepted()
    assert (queue.depth, queue.depth_bytes, queue.in_flight, queue.totals.acked) == (0, 0, 0, 1)


@pytest.mark.parametrize("link_ends", [False, True])
def test_a_mistake_elsewhere_counts_nothing_that_is_gone(
    stepped: SteppedBroker, client: TransactionClient, other: TransactionClient, queue: Queue, link_ends: bool
) -> None:
    txn_id = client.declare()
    one = undecided(client, txn_id)
    if link_ends:
        client.detach(one.handle)
    other.receiver("jobs")
    assert client.nothing_came()
    (failing,) = [each for each in stepped.broker.clients.connections.values() if each.client.container_id == "other"]
    stepped.broker.interrupted_work.doubtful[queue] = None  # the mistake was in something that concerns the queue
    stepped.broker.fail_connection(failing)
    assert (queue.depth, queue.depth_bytes, queue.in_flight) == (0, 0, 0)


@pytest.mark.parametrize("link_ends", [False, True])
def test_a_mistake_on_the_connection_brings_back_nothing_that_is_gone(
    stepped: SteppedBroker,
    client: TransactionClient,
    queue: Queue,
    link_ends: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    txn_id = client.declare()
    one = undecided(client, txn_id)
    client.settle(got(client, "b")[0], Accepted(), txn_id, settled=False)
    assert client.nothing_came()
    if link_ends:
        client.detach(one.handle)
    assert client.nothing_came()
    (failing,) = stepped.broker.clients.connections.values()

    def fail(*_: object) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(rollback, "roll_back_connection", fail)  # so that the connection does not end in order
    stepped.broker.fail_connection(failing)
    assert (queue.depth, queue.in_flight) == (1, 0)


def test_an_outcome_that_is_void_makes_no_room_in_a_queue_that_rejects(
    stepped: SteppedBroker, client: TransactionClient
) -> None:
    queue = stepped.make_queue("narrow", limits=QueueLimits(max_messages=2, overflow="Reject"))
    (one,) = got(client, "a", address="narrow")
    txn_id = client.declare()
    client.settle(one, Accepted(), txn_id, settled=False)
    assert client.nothing_came()
    client.settle(one, Released(), None)
    sender = client.sender("narrow", "more")
    for body in ("b", "c"):
        client.state_of(client.post(sender, body, txn_id))
    refused = client.discharge(txn_id)
    assert isinstance(refused, Rejected)
    assert condition_of(refused) == "amqp:transaction:rollback"
    assert queue.depth == 1
