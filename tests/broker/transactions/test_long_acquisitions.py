"""Transactions that acquire very much, or stay open for very long, and what is left of them afterwards: nothing.

Source: AMQP 1.0 part 4, 4.4.2 to 4.4.4; docs/concepts/transactions.md, "Acquiring" and "What happens if something
fails".
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from support.stepped_broker import SteppedBroker
from support.transaction_client import ReceivedDelivery, TransactionClient

from penstock_amqp.endpoint.links import Acquisition
from penstock_amqp.frames.performatives import Accepted, Detach, End, Released
from penstock_amqp.messages.message_codec import Message
from penstock_amqp.messages.transaction_types import Discharge
from penstock_broker.attach import close
from penstock_broker.queue.queue import Queue
from penstock_broker.state.open_transactions import Coordinator, Settlement, Transaction
from penstock_core.reason import Reason, Refuse

DAY_MS = 24 * 3_600_000
MANY = 10_000
AT_ONCE = 50


@pytest.fixture
def stepped() -> Iterator[SteppedBroker]:
    settings: dict[str, object] = {"transactions": {"maxAgeSeconds": 0, "maxMessages": MANY}}
    broker = SteppedBroker(settings, segment_bytes=32 << 20)
    broker.make_queue("jobs")
    yield broker
    broker.close()


def put(client: TransactionClient, count: int) -> None:
    """Send messages with the numbers from 0 on."""
    sender = client.sender("jobs", "to jobs")
    for first in range(0, count, AT_ONCE):
        sent = [client.send(sender, Message(body=number)) for number in range(first, min(first + AT_ONCE, count))]
        assert {str(client.state_of(each)) for each in sent} == {str(Accepted())}


def acquired(client: TransactionClient, txn_id: bytes, count: int) -> list[ReceivedDelivery]:
    client.acquire(client.receiver("jobs", credit=0), txn_id, credit=count)
    return client.get(count)


def kept_objects() -> int:
    """What is left of transactions in this process."""
    kinds = (Acquisition, Coordinator, Settlement, Transaction)
    return sum(isinstance(each, kinds) for each in gc.get_objects())


@pytest.mark.parametrize("ends", ["rollback", "control link", "link", "link and rollback", "session", "connection"])
def test_ten_thousand_messages_return_in_their_order_after_days(
    stepped: SteppedBroker, client: TransactionClient, other: TransactionClient, queue: Queue, ends: str
) -> None:
    put(client, MANY)
    txn_id = client.declare()
    got = acquired(client, txn_id, MANY)
    (connection,) = [each for each in stepped.broker.clients.connections.values() if each.client.container_id == "mine"]
    assert (queue.in_flight, connection.endpoint.unsettled.count) == (MANY, MANY)
    for _ in range(5):
        stepped.pass_ms(DAY_MS // 2)
    raw = client.client
    match ends:
        case "rollback":
            assert client.discharge(txn_id, fail=True) == Accepted()
            assert {str(client.concluded(each)) for each in got} == {str(Released())}
        case "control link":
            client.detach(client.coordinator)
        case "link":
            client.detach(got[0].handle)
        case "link and rollback":
            with client.at_once():
                raw.send(Detach(handle=got[0].handle, closed=True))
                client.request(Discharge(txn_id=txn_id, fail=True))
            client.detached()
        case "session":
            raw.send(End())
            while not isinstance(raw.receive().performative, End):
                pass
        case _:
            raw.socket.close()
    for _ in range(30):
        stepped.turn()
    assert (queue.depth, queue.in_flight) == (MANY, 0)
    if ends != "connection":
        assert connection.endpoint.unsettled.count == 0
    if ends == "link":
        assert client.discharge(txn_id, fail=True) == Accepted()
    other.receiver("jobs", credit=MANY)
    assert [each.body for each in other.get(MANY)] == list(range(MANY))


def test_ten_thousand_messages_are_accepted_by_one_commit_after_days(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue
) -> None:
    put(client, MANY)
    txn_id = client.declare()
    for number, each in enumerate(acquired(client, txn_id, MANY)):
        client.settle(each, Accepted(), txn_id, settled=number % 2 == 0)
    stepped.pass_ms(10 * DAY_MS)
    client.commit(txn_id)
    stepped.turn()
    assert (queue.depth, queue.depth_bytes, queue.in_flight) == (0, 0, 0)


def test_a_thousand_transactions_leave_nothing(stepped: SteppedBroker, client: TransactionClient, queue: Queue) -> None:
    put(client, 2)
    link = client.receiver("jobs", credit=0)
    taken = 0
    gc.collect()
    gc.disable()
    try:
        before = kept_objects()
        for number in range(1000):
            txn_id = client.declare()
            client.acquire(link, txn_id, credit=2, delivery_count=taken)
            one, _two = client.get(2)
            taken += 2
            client.settle(one, Accepted(), txn_id, settled=number % 3 == 0)
            if number % 2:
                client.settle(one, Released(), None)  # of no effect if it is settled
            assert client.discharge(txn_id, fail=True) == Accepted()
            idle = client.declare()
            client.acquire(link, idle, credit=0, delivery_count=taken)  # and nothing is acquired
            client.commit(idle)
        assert kept_objects() == before
    finally:
        gc.enable()
    assert (queue.depth, queue.in_flight) == (2, 0)
    ledger = stepped.broker.transactions
    assert (ledger.working, ledger.memory) == ({}, 0)


@pytest.mark.parametrize("fails", [pytest.param(False, id="commit"), pytest.param(True, id="rollback")])
@pytest.mark.parametrize("sent_settled", [False, True])
def test_a_queue_that_is_deleted_meanwhile_takes_what_was_acquired_along(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue, fails: bool, sent_settled: bool
) -> None:
    put(client, 3)
    txn_id = client.declare()
    if sent_settled:
        client.acquire(client.settled_receiver("jobs"), txn_id, credit=3, window=1)
        client.get(1)
    else:
        one, *_ = acquired(client, txn_id, 3)
        client.settle(one, Accepted(), txn_id)
    node = stepped.broker.topology.queues["jobs"]
    close.end_queue(stepped.broker, node, Refuse(Reason.QUEUE_NOT_FOUND, "It is deleted."))
    stepped.turn()
    (connection,) = stepped.broker.clients.connections.values()
    assert connection.endpoint.unsettled.count == 0
    assert client.discharge(txn_id, fail=fails) == Accepted()
    again = stepped.make_queue("jobs")
    client.sender("jobs", "to the new one")
    assert (again.depth, again.in_flight) == (0, 0)
