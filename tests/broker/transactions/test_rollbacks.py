"""Rollbacks of transactions with very many deliveries: these return a slice per turn, and whoever looks in between
finds nothing lost, nothing twice and nothing out of order.

Source: docs/decisions/149-rollbacks-in-slices.md; AMQP 1.0 part 4, 4.3 and 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from support.stepped_broker import SteppedBroker, SteppedStream
from support.transaction_client import TransactionClient, condition_of

from penstock_amqp.endpoint.events import Settled
from penstock_amqp.frames.performatives import Accepted, Detach, Disposition, Released
from penstock_amqp.messages.transaction_types import Discharge
from penstock_broker.access.connection import Connection
from penstock_broker.management.audits import _in_flight as audited  # pyright: ignore[reportPrivateUsage]
from penstock_broker.management.in_flight import connections_of, in_flight
from penstock_broker.messages import settle
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Consumer
from penstock_broker.transactions import rollback

COUNT, SLICE = 35, 10
BODIES = [str(number) for number in range(COUNT)]
AGE_MS = 60_000


@pytest.fixture
def stepped(monkeypatch: pytest.MonkeyPatch) -> Iterator[SteppedBroker]:
    monkeypatch.setattr(rollback, "AT_ONCE", SLICE)
    monkeypatch.setattr(rollback, "LOOKED_AT", 5)
    broker = SteppedBroker({"transactions": {"maxAgeSeconds": 60}})
    broker.make_queue("jobs")
    yield broker
    broker.close()


def publish(client: TransactionClient, *bodies: str) -> None:
    sender = client.sender("jobs", f"to jobs {bodies[0]}")
    for number in [client.post(sender, body, None) for body in bodies]:
        assert client.state_of(number) == Accepted()


def settled(client: TransactionClient, count: int = COUNT) -> bytes:
    """A transaction in which the client has accepted and settled so many messages, numbered from 0."""
    publish(client, *BODIES[:count])
    client.receiver("jobs", credit=count)
    got = client.get(count)
    txn_id = client.declare()
    for each in got:
        client.settle(each, Accepted(), txn_id)
    assert client.nothing_came()  # the broker has read it
    return txn_id


def acquired(client: TransactionClient, count: int = COUNT) -> bytes:
    """One that has acquired so many messages, none of which is settled."""
    publish(client, *BODIES[:count])
    txn_id = client.declare()
    client.acquire(client.receiver("jobs", credit=0), txn_id, credit=count)
    assert [each.body for each in client.get(count)] == BODIES[:count]
    return txn_id


KINDS = pytest.mark.parametrize("made", [settled, acquired])
Made = Callable[[TransactionClient], bytes]


def begin(stepped: SteppedBroker, client: TransactionClient, txn_id: bytes, *, fail: bool = True) -> int:
    """Discharge, and have the broker begin: nothing is back yet. The delivery-id of the discharge."""
    number = client.request(Discharge(txn_id=txn_id, fail=fail))
    stepped.turn()
    assert len(stepped.broker.work.rollbacks) == 1
    return number


def turns_until_over(stepped: SteppedBroker) -> int:
    turns = 0
    while stepped.broker.work.rollbacks:
        stepped.turn()
        turns += 1
    return turns


def connection_of(stepped: SteppedBroker, container_id: str) -> Connection:
    (found,) = [
        each for each in stepped.broker.clients.connections.values() if each.client.container_id == container_id
    ]
    return found


@KINDS
def test_deliveries_return_a_slice_per_turn_and_the_discharge_is_answered_behind_the_last(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue, made: Made
) -> None:
    number = begin(stepped, client, made(client))
    back = [len(queue.returned)]
    stream = client.client.socket
    assert isinstance(stream, SteppedStream)
    while stepped.broker.work.rollbacks:
        assert made is acquired or not stream.has_something()
        stepped.turn()
        back.append(len(queue.returned))
        assert queue.in_flight + len(queue.returned) == COUNT
    assert back == [0, 10, 20, 30, 35]
    last = client.client.receive().performative
    concluded = 0
    while isinstance(last, Disposition) and not last.role:
        assert last.state == Released()
        concluded += (last.first if last.last is None else last.last) - last.first + 1
        last = client.client.receive().performative
    assert isinstance(last, Disposition)
    assert (last.role, last.first, last.state) == (True, number, Accepted())
    assert concluded == (COUNT if made is acquired else 0)


@KINDS
def test_a_small_rollback_is_over_in_its_turn(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue, made: Callable[[TransactionClient, int], bytes]
) -> None:
    client.request(Discharge(txn_id=made(client, SLICE), fail=True))
    stepped.turn()
    assert not stepped.broker.work.rollbacks
    assert (len(queue.returned), queue.in_flight) == (SLICE, 0)


def test_a_slice_ends_when_it_has_taken_its_time(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue
) -> None:
    """Five deliveries return before the clock is looked at, which takes a second each time."""
    begin(stepped, client, settled(client))
    stepped.step_seconds = 1.0
    back: list[int] = []
    for _ in range(3):
        stepped.turn()
        back.append(len(queue.returned))
    stepped.step_seconds = 0.0
    assert back == [5, 10, 15]
    assert turns_until_over(stepped) == 2


@KINDS
def test_nobody_gets_a_later_message_while_earlier_ones_are_on_their_way(
    stepped: SteppedBroker, client: TransactionClient, other: TransactionClient, made: Made
) -> None:
    txn_id = made(client)
    other.receiver("jobs")
    assert other.nothing_came()
    begin(stepped, client, txn_id)
    sender = other.sender("jobs", "later")
    other.post(sender, "later", None)
    stepped.turn()
    assert stepped.broker.work.rollbacks
    assert [body for body, _ in other.bodies(COUNT + 1)] == [*BODIES, "later"]
    assert other.nothing_came()


@KINDS
@pytest.mark.parametrize("ends", ["link", "control link", "connection"])
def test_everything_returns_once_whatever_ends_in_between(
    stepped: SteppedBroker, client: TransactionClient, other: TransactionClient, queue: Queue, made: Made, ends: str
) -> None:
    begin(stepped, client, made(client))
    stepped.turn()
    assert len(queue.returned) == SLICE
    if ends == "connection":
        client.client.socket.close()
    else:
        client.client.send(Detach(handle=client.coordinator if ends == "control link" else 2, closed=True))
    turns_until_over(stepped)
    stepped.turn()
    stepped.turn()
    assert (len(queue.returned), queue.in_flight, queue.depth) == (COUNT, 0, COUNT)
    other.receiver("jobs")
    assert [body for body, _ in other.bodies(COUNT)] == BODIES
    assert other.nothing_came()


@pytest.mark.parametrize("many", [False, True])
def test_what_a_link_takes_with_it_that_holds_very_many_returns_once(
    stepped: SteppedBroker,
    client: TransactionClient,
    other: TransactionClient,
    queue: Queue,
    many: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if many:
        monkeypatch.setattr("penstock_broker.messages.delivery_returns.AT_ONCE", 3)
    begin(stepped, client, acquired(client))
    client.client.send(Detach(handle=2, closed=True))
    for _ in range(40):
        stepped.turn()
    assert not stepped.broker.work.rollbacks
    assert not stepped.broker.work.delivery_returns
    assert (queue.in_flight, queue.depth) == (0, COUNT)
    other.receiver("jobs")
    assert sorted(int(str(body)) for body, _ in other.bodies(COUNT)) == list(range(COUNT))
    assert other.nothing_came()


def test_what_a_lost_connection_had_settled_in_transactions_returns_in_slices(
    stepped: SteppedBroker, client: TransactionClient, other: TransactionClient, queue: Queue
) -> None:
    settled(client)
    client.client.socket.close()
    while not stepped.broker.work.rollbacks:
        stepped.turn()
    assert queue.in_flight == COUNT
    assert turns_until_over(stepped) == 4
    other.receiver("jobs")
    assert other.bodies(COUNT) == [(body, 1) for body in BODIES]


def test_what_is_on_its_way_counts_as_in_flight(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue
) -> None:
    begin(stepped, client, settled(client))
    stepped.turn()
    assert list(in_flight(connections_of(stepped.broker, [queue]))) == [queue]
    assert len(audited(stepped.broker, queue)) == COUNT - SLICE == queue.in_flight
    turns_until_over(stepped)
    assert in_flight(connections_of(stepped.broker, [queue])) == {}
    assert audited(stepped.broker, queue) == []


@KINDS
def test_a_mistake_elsewhere_finds_everything_in_its_place(
    stepped: SteppedBroker, client: TransactionClient, other: TransactionClient, queue: Queue, made: Made
) -> None:
    number = begin(stepped, client, made(client))
    stepped.turn()
    stepped.broker.interrupted_work.doubtful[queue] = None
    stepped.broker.fail_connection(connection_of(stepped, "other"))
    assert (queue.in_flight, queue.depth, stepped.broker.work.rollbacks) == (0, COUNT, [])
    assert client.state_of(number) == Accepted()


@pytest.mark.parametrize("struck", [0, 13, COUNT - 1])
@KINDS
def test_a_mistake_in_between_loses_nothing(
    stepped: SteppedBroker,
    client: TransactionClient,
    other: TransactionClient,
    queue: Queue,
    made: Made,
    struck: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin(stepped, client, made(client))
    real, calls = settle.settled, iter(range(COUNT))

    def fail_once(broker: Broker, consumer: Consumer, event: Settled) -> None:
        if next(calls, None) == struck:
            raise RuntimeError("a mistake")
        real(broker, consumer, event)

    monkeypatch.setattr(settle, "settled", fail_once)
    turns_until_over(stepped)
    assert (queue.in_flight, queue.depth) == (0, COUNT)
    other.receiver("jobs")
    assert [body for body, _ in other.bodies(COUNT)] == BODIES
    assert other.nothing_came()


@KINDS
def test_a_kill_in_between_loses_nothing(stepped: SteppedBroker, client: TransactionClient, made: Made) -> None:
    begin(stepped, client, made(client))
    stepped.turn()
    stepped.restart()
    assert stepped.queue("jobs").depth == COUNT


def test_a_commit_that_is_refused_is_answered_behind_the_last(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue
) -> None:
    limits = stepped.broker.transactions.limits
    stepped.broker.transactions.limits = replace(limits, messages=COUNT - 1)
    number = begin(stepped, client, settled(client), fail=False)
    told = client.state_of(number)
    assert condition_of(told) == "amqp:transaction:rollback"
    assert (len(queue.returned), queue.in_flight) == (COUNT, 0)


def test_links_of_a_transaction_that_is_too_old_are_closed_behind_the_last(
    stepped: SteppedBroker, client: TransactionClient, other: TransactionClient, queue: Queue
) -> None:
    """Nothing of what they acquired counts as lost with them."""
    acquired(client)
    stepped.now_ms += AGE_MS
    stepped.turn()
    assert stepped.broker.work.rollbacks
    assert turns_until_over(stepped) == 4
    assert (len(queue.returned), queue.in_flight) == (COUNT, 0)
    error = client.detached().error
    assert error is not None
    assert error.condition == "amqp:transaction:timeout"
    other.receiver("jobs")
    assert other.bodies(COUNT) == [(body, 0) for body in BODIES]


def test_a_queue_that_is_deleted_meanwhile_takes_nothing_back(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue
) -> None:
    number = begin(stepped, client, settled(client))
    stepped.turn()
    stepped.broker.topology.delete_queue("jobs")
    turns_until_over(stepped)
    assert len(queue.returned) <= SLICE
    assert client.state_of(number) == Accepted()
