"""Messages that are acquired in a transaction, over bare frames. Source: AMQP 1.0 part 4, 4.4.2 to 4.4.4."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess
from support.large_messages import Downloading, Uploading, digest, encoded
from support.raw_client import RawClient
from support.transaction_client import ReceivedDelivery, TransactionClient

from penstock_amqp.client.management import ManagementClient
from penstock_amqp.frames.performatives import (
    Accepted,
    Disposition,
    End,
    Modified,
    Released,
    Source,
    Transfer,
)
from penstock_amqp.messages.transaction_types import TransactionalState
from penstock_amqp.types.values import Symbol
from penstock_api.management import EntityType, Operation
from penstock_api.message_operations import HandledMessages, MessageSelection

SMALL = {"maxMessages": 5, "maxOpenPerConnection": 5, "maxAgeSeconds": 3600}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose transactions are small."""
    with BrokerProcess(tmp_path_factory.mktemp("acquisition") / "data", settings={"transactions": SMALL}) as broker:
        yield broker


@pytest.fixture
def client(process: BrokerProcess) -> Iterator[TransactionClient]:
    with RawClient(process.port, "mine") as raw:
        yield TransactionClient(raw)


@pytest.fixture
def other(process: BrokerProcess) -> Iterator[TransactionClient]:
    """Somebody else."""
    with RawClient(process.port, "other") as raw:
        yield TransactionClient(raw)


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue of this test's own."""
    return f"queue-{request.node.name}"


def put(client: TransactionClient, queue: str, *bodies: str) -> None:
    """Send messages outside a transaction."""
    sender = client.sender(queue, f"to {queue} {bodies[0]}")
    for body in bodies:
        assert client.state_of(client.post(sender, body, None)) == Accepted()


def acquired(
    client: TransactionClient, queue: str, txn_id: bytes, *bodies: str, credit: int = 100
) -> list[ReceivedDelivery]:
    """Deliveries of these messages, which were sent before, that the transaction has acquired."""
    put(client, queue, *bodies)
    client.acquire(client.receiver(queue, credit=0), txn_id, credit=credit)
    got = client.get(len(bodies))
    assert [each.body for each in got] == list(bodies)
    return got


def waits(other: TransactionClient, queue: str, *messages: tuple[str, int]) -> None:
    """See that the queue gives somebody else these messages, with these delivery-counts, and no others."""
    other.receiver(queue)
    assert other.bodies(len(messages)) == list(messages)
    assert other.nothing_came()


def test_the_transfers_say_in_which_transaction_they_are_acquired(client: TransactionClient, queue: str) -> None:
    txn_id = client.declare()
    got = acquired(client, queue, txn_id, "a", "b")
    assert [(each.state, each.settled) for each in got] == [(TransactionalState(txn_id=txn_id), False)] * 2


def test_a_rollback_releases_what_has_no_outcome(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    txn_id = client.declare()
    one, two = acquired(client, queue, txn_id, "a", "b", credit=2)
    assert client.discharge(txn_id, fail=True) == Accepted()
    assert (client.concluded(one), client.concluded(two)) == (Released(), Released())
    waits(other, queue, ("a", 0), ("b", 0))


def test_a_commit_leaves_what_has_no_outcome_to_the_client(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    txn_id = client.declare()
    one, two = acquired(client, queue, txn_id, "a", "b", credit=2)
    client.commit(txn_id)
    other.receiver(queue)
    assert other.nothing_came()
    client.settle(one, Accepted(), None)
    client.settle(two, Released(), None)
    assert other.bodies(1) == [("b", 0)]
    assert other.nothing_came()


def test_what_a_transaction_acquires_and_retires_ends_with_its_commit(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    txn_id = client.declare()
    one, two, three = acquired(client, queue, txn_id, "a", "b", "c", credit=3)
    client.settle(one, Accepted(), txn_id)
    client.settle(two, Accepted(), txn_id, settled=False)
    client.settle(three, Released(), txn_id)
    client.commit(txn_id)
    assert client.concluded(two) == Accepted()
    waits(other, queue, ("c", 0))


def test_what_had_an_outcome_in_it_counts_as_failed_after_a_rollback(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    txn_id = client.declare()
    one, two, three = acquired(client, queue, txn_id, "a", "b", "c", credit=3)
    client.settle(one, Accepted(), txn_id)
    client.settle(two, Accepted(), txn_id, settled=False)
    assert client.discharge(txn_id, fail=True) == Accepted()
    assert client.concluded(two) == Modified(delivery_failed=True, undeliverable_here=False)
    assert client.concluded(three) == Released()
    waits(other, queue, ("a", 1), ("b", 1), ("c", 0))


def test_a_commit_that_fails_releases(client: TransactionClient, other: TransactionClient, queue: str) -> None:
    txn_id = client.declare()
    (one,) = acquired(client, queue, txn_id, "a", credit=1)
    sender = client.sender(queue)
    for number in range(6):  # one more than a transaction takes
        client.post(sender, f"posted {number}", txn_id)
    assert client.discharge(txn_id) != Accepted()
    assert client.concluded(one) == Released()
    waits(other, queue, ("a", 0))


@pytest.mark.parametrize("fails", [pytest.param(False, id="commit"), pytest.param(True, id="rollback")])
def test_what_is_sent_settled_stays_with_the_transaction(
    client: TransactionClient, other: TransactionClient, queue: str, fails: bool
) -> None:
    put(client, queue, "a", "b")
    handle = client.settled_receiver(queue)
    txn_id = client.declare()
    client.acquire(handle, txn_id, credit=2)
    got = client.get(2)
    assert [(each.state, each.settled) for each in got] == [(TransactionalState(txn_id=txn_id), True)] * 2
    other.receiver(queue)
    assert other.nothing_came()
    assert client.discharge(txn_id, fail=fails) == Accepted()
    assert other.bodies(2 * fails) == ([("a", 1), ("b", 1)] if fails else [])
    assert other.nothing_came()


@pytest.mark.parametrize(
    "named",
    [pytest.param({Symbol("txn-id"): b"nowhere"}, id="unknown"), pytest.param({Symbol("txn-id"): "text"}, id="text")],
)
def test_a_flow_that_names_no_transaction_of_the_connection_closes_the_link(
    client: TransactionClient, other: TransactionClient, queue: str, named: dict[Symbol, bytes | str]
) -> None:
    put(client, queue, "a")
    client.acquire(client.receiver(queue, credit=0), {**named}, credit=1)
    detach = client.detached()
    assert detach.closed
    assert detach.error is not None
    assert detach.error.condition == "amqp:transaction:unknown-id"
    waits(other, queue, ("a", 0))


def test_a_transaction_of_another_connection_is_unknown(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    client.acquire(client.receiver(queue, credit=0), other.declare(), credit=1)
    error = client.detached().error
    assert error is not None
    assert error.condition == "amqp:transaction:unknown-id"


def test_a_browser_acquires_nothing(client: TransactionClient, queue: str) -> None:
    put(client, queue, "a")
    browser = client.receiver(queue, credit=0, source=Source(address=queue, distribution_mode=Symbol("copy")))
    client.acquire(browser, client.declare(), credit=1)
    error = client.detached().error
    assert error is not None
    assert error.condition == "amqp:not-implemented"


def test_properties_without_a_name_end_it_and_a_flow_without_properties_does_not(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    txn_id = client.declare()
    state = TransactionalState(txn_id=txn_id)
    put(client, queue, "a", "b", "c", "d")
    link = client.receiver(queue, credit=0)
    client.acquire(link, txn_id, credit=1)
    client.acquire(link, None, credit=2)
    got = client.get(2)
    client.acquire(link, {}, credit=3)
    got += client.get(1)
    client.acquire(link, txn_id, credit=3)  # again
    client.acquire(link, {Symbol("txn-id"): None}, credit=4)
    got += client.get(1)
    assert [each.state for each in got] == [state, state, None, None]
    assert client.discharge(txn_id, fail=True) == Accepted()
    waits(other, queue, ("a", 0), ("b", 0))


def test_two_transactions_one_after_the_other_on_a_link(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    first, second = client.declare(), client.declare()
    put(client, queue, "a", "b", "c")
    link = client.receiver(queue, credit=0)
    client.acquire(link, first, credit=1)
    (one,) = client.get()
    client.acquire(link, second, credit=2)
    (two,) = client.get()
    client.settle(one, Accepted(), first)
    client.commit(first)
    client.settle(two, Accepted(), second)
    client.acquire(link, None, credit=3)  # the second goes on
    (three,) = client.get()
    assert [each.state for each in (one, two, three)] == [
        TransactionalState(txn_id=first),
        TransactionalState(txn_id=second),
        TransactionalState(txn_id=second),
    ]
    assert client.discharge(second, fail=True) == Accepted()
    waits(other, queue, ("b", 1), ("c", 0))


def test_credit_outlives_the_discharge_and_what_follows_is_in_no_transaction(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    txn_id = client.declare()
    (one,) = acquired(client, queue, txn_id, "a", credit=2)
    client.settle(one, Accepted(), txn_id)
    client.commit(txn_id)
    put(client, queue, "b")
    (two,) = client.get()
    assert (two.body, two.state) == ("b", None)
    client.settle(two, Accepted(), None)
    waits(other, queue)


def test_an_outcome_in_another_open_transaction_closes_the_link_of_that_one(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    first, control = client.declare(), client.attach_coordinator("second")
    second = client.declare(handle=control)
    one, two = acquired(client, queue, first, "a", "b", credit=2)
    client.settle(one, Accepted(), second)
    detach = client.detached()
    assert detach.error is not None
    assert detach.error.condition == "amqp:transaction:rollback"
    client.settle(two, Accepted(), first)
    client.commit(first)
    waits(other, queue, ("a", 1))


def test_what_a_transaction_acquired_may_be_retired_in_another_once_it_is_committed(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    first, second = client.declare(), client.declare()
    (one,) = acquired(client, queue, first, "a", credit=1)
    client.commit(first)
    client.settle(one, Accepted(), second)
    client.commit(second)
    waits(other, queue)


def test_an_outcome_outside_the_transaction_takes_a_delivery_out_of_it(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    txn_id = client.declare()
    one, two = acquired(client, queue, txn_id, "a", "b", credit=2)
    client.settle(one, Accepted(), None)
    assert client.discharge(txn_id, fail=True) == Accepted()
    assert client.concluded(two) == Released()
    waits(other, queue, ("b", 0))


def test_what_is_not_settled_returns_with_its_link_and_the_rest_is_committed(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    txn_id = client.declare()
    one, _two = acquired(client, queue, txn_id, "a", "b", credit=2)
    client.settle(one, Accepted(), txn_id)
    client.detach(one.handle)
    other.receiver(queue)
    assert other.bodies(1) == [("b", 1)]
    client.commit(txn_id)
    assert other.nothing_came()


def test_what_is_not_settled_returns_with_its_session(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    acquired(client, queue, client.declare(), "a", credit=1)
    client.client.send(End())
    while not isinstance(client.client.receive().performative, End):
        pass
    waits(other, queue, ("a", 0))


def test_a_lost_connection_returns_what_it_acquired(
    process: BrokerProcess, other: TransactionClient, queue: str
) -> None:
    with RawClient(process.port, "lost") as raw:
        client = TransactionClient(raw)
        txn_id = client.declare()
        one, _two, _three = acquired(client, queue, txn_id, "a", "b", "c", credit=3)
        client.settle(one, Accepted(), txn_id)
        assert client.nothing_came()  # the broker has read all of it
    other.receiver(queue)
    assert other.bodies(3) == [("a", 1), ("b", 1), ("c", 1)]


def test_the_end_of_the_control_link_releases(client: TransactionClient, other: TransactionClient, queue: str) -> None:
    (one,) = acquired(client, queue, client.declare(), "a", credit=1)
    client.detach(client.coordinator)
    assert client.concluded(one) == Released()
    waits(other, queue, ("a", 0))


def test_a_drain_gives_the_credit_back_behind_what_was_acquired(client: TransactionClient, queue: str) -> None:
    txn_id = client.declare()
    put(client, queue, "a", "b")
    link = client.receiver(queue, credit=0)
    client.acquire(link, txn_id, credit=10, drain=True)
    got = client.get(2)
    assert [each.state for each in got] == [TransactionalState(txn_id=txn_id)] * 2
    told = client.told_of_link(link)
    assert (told.delivery_count, told.link_credit) == (10, 0)


def test_the_broker_says_in_which_transaction_a_link_acquires(client: TransactionClient, queue: str) -> None:
    txn_id = client.declare()
    link = client.receiver(queue, credit=0)
    client.acquire(link, txn_id, credit=3, echo=True)
    told = client.told_of_link(link)
    assert (told.link_credit, told.properties) == (3, {Symbol("txn-id"): txn_id})
    client.commit(txn_id)
    client.acquire(link, None, credit=3, echo=True)
    assert client.told_of_link(link).properties is None


def test_a_transaction_acquires_no_more_messages_than_it_may_hold(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    txn_id = client.declare()
    put(client, queue, *"abcdefg")
    client.acquire(client.receiver(queue, credit=0), txn_id, credit=7)
    got = client.get(5)
    assert client.nothing_came()
    for each in got:
        client.settle(each, Accepted(), txn_id)
    client.commit(txn_id)
    assert [(each.body, each.state) for each in client.get(2)] == [("f", None), ("g", None)]


def test_one_consumer_acquires_and_another_does_not(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    txn_id = client.declare()
    client.acquire(client.receiver(queue, credit=0), txn_id, credit=2)
    other.receiver(queue, credit=2)
    put(client, queue, "a", "b", "c", "d")
    mine, theirs = client.get(2), other.get(2)
    assert {each.state for each in theirs} == {None}
    assert client.discharge(txn_id, fail=True) == Accepted()
    client.settle(mine[0], None, None)  # what the client says of it now changes nothing
    other.receiver(queue, name="more")
    assert other.bodies(2) == [(each.body, 0) for each in mine]


def test_what_was_not_sent_by_the_rollback_comes_outside_the_transaction(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    txn_id = client.declare()
    put(client, queue, "a", "b", "c")
    link = client.receiver(queue, credit=0)
    client.acquire(link, txn_id, credit=3, window=1)
    (one,) = client.get()
    assert client.discharge(txn_id, fail=True) == Accepted()
    assert client.concluded(one) == Released()
    client.acquire(link, None, credit=2, delivery_count=1, drain=True)
    got = client.get(2)
    assert [(each.body, each.state) for each in got] == [("b", None), ("c", None)]
    told = client.told_of_link(link)
    assert (told.delivery_count, told.link_credit) == (3, 0)
    for each in got:
        client.settle(each, Accepted(), None)
    waits(other, queue, ("a", 0))


@pytest.mark.parametrize("size", [pytest.param(300_000, id="in-memory"), pytest.param(2_000_000, id="from-the-log")])
def test_what_was_sent_in_part_is_aborted_by_a_rollback(process: BrokerProcess, queue: str, size: int) -> None:
    with RawClient(process.port, "mine") as raw, RawClient(process.port, "other") as other:
        other.begin()
        uploading = Uploading.to(other, queue)
        uploading.send(encoded(size))
        assert uploading.outcome() == "Accepted"
        client = TransactionClient(raw)
        txn_id = client.declare()
        link = client.receiver(queue, credit=0)
        client.acquire(link, txn_id, credit=1, window=1)
        assert raw.expect(Transfer).more
        assert client.discharge(txn_id, fail=True) == Accepted()
        client.acquire(link, None, credit=1)
        assert raw.expect(Transfer).aborted
        download = Downloading(other, queue, credit=1).receive()
        assert (download.digest, download.is_aborted) == (digest(encoded(size)), False)


def test_a_message_in_pieces_is_acquired_as_a_whole(process: BrokerProcess, queue: str) -> None:
    with RawClient(process.port, "mine") as raw, RawClient(process.port, "other") as other:
        other.begin()
        uploading = Uploading.to(other, queue)
        for seed in range(2):
            uploading.send(encoded(2_000_000, seed=seed))
            assert uploading.outcome() == "Accepted"
        client = TransactionClient(raw)
        txn_id = client.declare()
        client.acquire(client.receiver(queue, credit=0), txn_id, credit=2)
        begun: list[Transfer] = []
        while sum(not each.more for each in begun) < 2:
            begun.append(raw.expect(Transfer))
        assert {each.state for each in begun} == {TransactionalState(txn_id=txn_id)}
        one, two = sorted({each.delivery_id or 0 for each in begun})
        raw.send(
            Disposition(role=True, first=one, settled=True, state=TransactionalState(txn_id=txn_id, outcome=Accepted()))
        )
        client.commit(txn_id)
        raw.send(Disposition(role=True, first=two, settled=True, state=Released()))
        download = Downloading(other, queue, credit=2).receive()
        assert download.digest == digest(encoded(2_000_000, seed=1))


def test_a_kill_before_the_commit_brings_everything_back_and_one_behind_it_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process:
        with RawClient(process.port, "mine") as raw:
            client = TransactionClient(raw)
            first, second = client.declare(), client.declare()
            one, two = acquired(client, "durable", first, "a", "b", credit=2)
            client.settle(one, Accepted(), first)
            client.commit(first)
            put(client, "durable", "c")
            client.acquire(two.handle, second, credit=3)
            (three,) = client.get()
            client.settle(two, Accepted(), second)
            client.settle(three, Accepted(), second)
            put(client, "settled", "d")
            client.acquire(client.settled_receiver("settled"), second, credit=1)
            assert client.bodies(1) == [("d", 0)]
            assert client.nothing_came()
            process.kill()
        process.start()
        with RawClient(process.port, "mine") as raw:
            client = TransactionClient(raw)
            client.receiver("durable")
            assert client.bodies(2) == [("b", 1), ("c", 1)]
            assert client.nothing_came()
            client.receiver("settled", name="from settled")
            assert client.bodies(1) == [("d", 1)]


def test_a_long_message_of_which_nothing_was_sent_comes_outside_the_transaction(
    process: BrokerProcess, queue: str
) -> None:
    """The session's window is shut behind the message before it."""
    with RawClient(process.port, "mine") as raw, RawClient(process.port, "other") as other:
        other.begin()
        uploading = Uploading.to(other, queue)
        for body in (encoded(100), encoded(2_000_000)):
            uploading.send(body)
            assert uploading.outcome() == "Accepted"
        client = TransactionClient(raw)
        txn_id = client.declare()
        link = client.receiver(queue, credit=0)
        client.acquire(link, txn_id, credit=2, window=1)
        assert raw.expect(Transfer).state == TransactionalState(txn_id=txn_id)
        assert client.discharge(txn_id, fail=True) == Accepted()
        client.acquire(link, None, credit=1, delivery_count=1)
        begun = [raw.expect(Transfer)]
        while begun[-1].more:
            begun.append(raw.expect(Transfer))
        assert ({each.state for each in begun}, begun[-1].aborted) == ({None}, None)


@pytest.mark.parametrize("sends_settled", [False, True])
def test_a_purge_leaves_what_is_acquired_to_its_transaction(
    process: BrokerProcess, client: TransactionClient, other: TransactionClient, queue: str, sends_settled: bool
) -> None:
    put(client, queue, "a", "b", "c")
    txn_id = client.declare()
    link = client.settled_receiver(queue) if sends_settled else client.receiver(queue, credit=0)
    client.acquire(link, txn_id, credit=2)
    assert client.bodies(2) == [("a", 0), ("b", 0)]

    async def purge() -> int:
        node = await ManagementClient.connect(process.management)
        reply = await node.request(Operation.PURGE, EntityType.QUEUE, queue, MessageSelection())
        await node.close()
        return HandledMessages.model_validate(reply.check().attributes).messages

    assert asyncio.run(purge()) == 1
    assert client.discharge(txn_id, fail=True) == Accepted()
    waits(other, queue, ("a", int(sends_settled)), ("b", int(sends_settled)))
