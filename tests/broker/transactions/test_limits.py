"""Transactions that last too long, what management tells of open ones, and what the configuration says of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError
from support.broker_process import BrokerProcess
from support.raw_client import RawClient
from support.stepped_broker import SteppedBroker, SteppedStream
from support.transaction_client import TransactionClient, condition_of
from support.waiting import until

from penstock_amqp.client.management import ManagementClient
from penstock_amqp.frames.performatives import Accepted, Released
from penstock_amqp.messages.transaction_types import TransactionalState
from penstock_api.management import EntityType
from penstock_api.state_documents import BrokerState, ConnectionState
from penstock_broker.settings.settings import BrokerSettings
from penstock_broker.state.open_transactions import transactions_of
from penstock_core.transaction_rules import TransactionLimits


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker in which a transaction lasts a second."""
    with BrokerProcess(tmp_path_factory.mktemp("tx") / "data", settings={"transactions": {"maxAgeSeconds": 1}}) as it:
        yield it


@pytest.fixture
def client(process: BrokerProcess) -> Iterator[TransactionClient]:
    with RawClient(process.port, "mine") as raw:
        yield TransactionClient(raw)


def start_work(client: TransactionClient, queue: str) -> bytes:
    """A transaction in which the only message of `queue` was accepted, and another sent."""
    sender = client.sender(queue)
    client.state_of(client.post(sender, "old", None))
    client.receiver(queue)
    (old,) = client.get()
    txn_id = client.declare()
    client.settle(old, Accepted(), txn_id)
    client.state_of(client.post(sender, "new", txn_id))
    return txn_id


def test_what_lasts_too_long_is_rolled_back_and_the_commit_told_so(client: TransactionClient) -> None:
    txn_id = start_work(client, "long")
    assert client.bodies(1) == [("old", 1)]  # it came back by itself
    assert condition_of(client.discharge(txn_id)) == "amqp:transaction:timeout"
    assert client.nothing_came()
    assert condition_of(client.discharge(txn_id)) == "amqp:transaction:unknown-id"


def test_work_that_comes_too_late_is_refused_or_comes_back(client: TransactionClient) -> None:
    txn_id = start_work(client, "late")
    (old,) = client.get()
    client.settle(old, Accepted(), txn_id)
    assert client.bodies(1) == [("old", 2)]
    assert condition_of(client.state_of(client.post(client.sender("late", "b"), "x", txn_id))) == (
        "amqp:transaction:timeout"
    )
    assert client.discharge(txn_id, fail=True) == Accepted()


def test_a_transaction_without_work_has_no_age(client: TransactionClient) -> None:
    idle = client.declare()
    start_work(client, "beside")
    assert client.bodies(1) == [("old", 1)]  # a second has passed
    sender = client.sender("beside", "b")
    client.state_of(client.post(sender, "x", idle))
    client.commit(idle)
    assert client.bodies(1) == [("x", 0)]


def test_what_is_acquired_for_too_long_returns_and_the_link_that_waits_for_more_is_told(
    client: TransactionClient,
) -> None:
    client.state_of(client.post(client.sender("acquired"), "a", None))
    idle, txn_id = client.declare(), client.declare()
    waiting = client.receiver("empty", credit=0, name="waiting")
    client.acquire(waiting, idle, credit=1)
    client.acquire(client.receiver("acquired", credit=0), txn_id, credit=2)
    (one,) = client.get()
    detach = client.detached()
    assert detach.error is not None
    assert detach.error.condition == "amqp:transaction:timeout"
    assert client.concluded(one) == Released()
    client.acquire(client.receiver("acquired", credit=0, name="late"), txn_id, credit=1)
    late = client.detached().error
    assert late is not None
    assert late.condition == "amqp:transaction:timeout"
    assert condition_of(client.discharge(txn_id)) == "amqp:transaction:timeout"
    client.receiver("acquired", name="again")
    assert client.bodies(1) == [("a", 0)]
    assert client.discharge(idle, fail=True) == Accepted()  # it had acquired nothing, and had no age


def test_ages_are_counted_one_by_one(client: TransactionClient) -> None:
    first = start_work(client, "one")
    assert client.bodies(1) == [("old", 1)]
    second = client.declare()
    client.state_of(client.post(client.sender("one", "b"), "second", second))
    client.commit(second)
    assert client.bodies(1) == [("second", 0)]
    assert condition_of(client.discharge(first)) == "amqp:transaction:timeout"


def states(process: BrokerProcess) -> tuple[BrokerState, ConnectionState]:
    """Of the broker, and of the one client's connection."""

    async def read() -> tuple[BrokerState, ConnectionState]:
        node = await ManagementClient.connect(process.management)
        (broker,) = await node.states(BrokerState)
        connections = [each for each in await node.states(ConnectionState) if each.container_id == "mine"]
        await node.close()
        return broker, connections[0]

    return asyncio.run(read())


def test_open_transactions_are_shown(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process, RawClient(process.port, "mine") as raw:
        client = TransactionClient(raw)
        idle = client.declare()
        broker, connection = states(process)
        assert (broker.open_transactions, broker.oldest_transaction_ms) == (1, None)
        txn_id = start_work(client, "shown")
        broker, connection = states(process)
        assert (broker.open_transactions, connection.open_transactions) == (2, 2)
        assert broker.oldest_transaction_ms is not None
        assert broker.started_ms <= broker.oldest_transaction_ms <= broker.now_ms
        assert connection.oldest_transaction_ms == broker.oldest_transaction_ms
        client.commit(txn_id)
        client.discharge(idle, fail=True)
        broker, connection = states(process)
        assert (broker.open_transactions, connection.open_transactions) == (0, 0)
        assert (broker.transactions_committed, broker.transactions_rolled_back) == (1, 1)


def test_a_delivery_settled_in_a_transaction_counts_as_in_flight(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process, RawClient(process.port, "mine") as raw:
        client = TransactionClient(raw)
        start_work(client, "held")
        assert client.nothing_came()

        async def read() -> dict[str, object]:
            node = await ManagementClient.connect(process.management)
            state = await node.read(EntityType.QUEUE, "held")
            await node.close()
            return state

        state = asyncio.run(read())
        assert (state["depth"], state["inFlight"], state["ready"]) == (1, 1, 0)
        assert state["oldestHoldMs"] is not None


def test_a_client_that_repeats_what_it_has_not_settled_takes_no_memory_beyond_the_limit() -> None:
    broker = SteppedBroker({"transactions": {"maxMessages": 5}})
    broker.make_queue("jobs")
    with RawClient(0, "mine", stream=SteppedStream(broker)) as raw:
        client = TransactionClient(raw)
        client.state_of(client.post(client.sender("jobs"), "a", None))
        client.receiver("jobs")
        (got,) = client.get()
        txn_id = client.declare()
        for _ in range(20):
            client.settle(got, Accepted(), txn_id, settled=False)
            broker.turn()
        (connection,) = broker.broker.clients.connections.values()
        ledger = transactions_of(connection)
        assert ledger is not None
        assert len(ledger.by_id[txn_id].settlements) == 5
        assert condition_of(client.discharge(txn_id)) == "amqp:transaction:rollback"
        client.settle(got, Accepted(), None)
        assert client.nothing_came()
        assert broker.queue("jobs").depth == 0
    broker.close()


@pytest.mark.parametrize(
    ("segment_bytes", "messages", "most_bytes"),
    [(64 * 1024 * 1024, 100_000, 16 * 1024 * 1024), (8 * 1024 * 1024, 32_768, 2 * 1024 * 1024)],
)
def test_the_limits_follow_the_log_s_segments(segment_bytes: int, messages: int, most_bytes: int) -> None:
    settings = BrokerSettings.model_validate({"log": {"segmentBytes": segment_bytes}, "maxMessageBytes": 1024 * 1024})
    assert settings.transactions.limits(segment_bytes, settings.max_message_bytes) == TransactionLimits(
        messages=messages,
        bytes=most_bytes,
        connection_bytes=256 * 1024 * 1024,
        memory_bytes=512 * 1024 * 1024,
        connection_open=256,
        age_ms=600_000,
    )


def test_the_memory_of_all_transactions_is_bounded_over_connections(tmp_path: Path) -> None:
    settings: dict[str, object] = {"transactions": {"maxBytesInMemory": 20_000}}
    with (
        BrokerProcess(tmp_path / "data", settings=settings) as broker,
        RawClient(broker.port, "one") as first,
        RawClient(broker.port, "other") as second,
    ):
        one, other = TransactionClient(first), TransactionClient(second)
        to, too = one.sender("q"), other.sender("q")
        held, doomed = one.declare(), other.declare()
        for _ in range(3):
            one.state_of(one.post(to, "x" * 5_000, held))
        assert condition_of(other.state_of(other.post(too, "x" * 6_000, doomed))) == "amqp:resource-limit-exceeded"
        assert condition_of(other.discharge(doomed)) == "amqp:transaction:rollback"
        one.commit(held)
        again = other.declare()
        other.state_of(other.post(too, "x" * 6_000, again))
        other.commit(again)
        gone = other.declare()
        other.state_of(other.post(too, "x" * 15_000, gone))
        second.socket.close()
        until_it_fits(one, to)


def until_it_fits(client: TransactionClient, sender: int) -> None:
    """A connection that is lost gives its transactions' memory back, once the broker has noticed."""

    def fits() -> bool:
        txn_id = client.declare()
        state = client.state_of(client.post(sender, "x" * 15_000, txn_id))
        client.discharge(txn_id, fail=True)
        assert isinstance(state, TransactionalState)
        return state.outcome == Accepted()

    until(fits, "the memory of a lost connection is used again")


def test_the_longest_message_fits_a_transaction() -> None:
    settings = BrokerSettings.model_validate({"maxMessageBytes": 30_000_000})
    assert settings.transactions.limits(settings.log.segment_bytes, 30_000_000).bytes == 30_000_000


def test_a_transaction_larger_than_the_log_takes_is_no_configuration() -> None:
    with pytest.raises(ValidationError, match=r"raise log.segmentBytes to twice transactions.maxBytes"):
        BrokerSettings.model_validate({"transactions": {"maxBytes": 33 * 1024 * 1024}})
