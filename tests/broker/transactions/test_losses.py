"""A message of a transaction that does not arrive dooms it, however it got lost: nothing is committed without it.

Clients send without waiting in transactions. Over bare frames. Source: docs/concepts/transactions.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess
from support.raw_client import RawClient, symbols
from support.transaction_client import TransactionClient, condition_of

from penstock_amqp.client.management import ManagementClient
from penstock_amqp.frames.performatives import Accepted, Rejected, Source, Target
from penstock_amqp.messages.message_codec import Message, encode_message
from penstock_amqp.messages.transaction_types import Discharge, TransactionalState
from penstock_amqp.types.values import Symbol
from penstock_api.management import EntityType, QueueDeclaration

MOST = 3 * 1024 * 1024
PART = bytes(60_000)
GARBAGE = b"\x00\x53\x99"


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("tx") / "data", settings={"maxMessageBytes": MOST}) as broker:
        yield broker


@pytest.fixture
def client(process: BrokerProcess) -> Iterator[TransactionClient]:
    with RawClient(process.port, "mine") as raw:
        yield TransactionClient(raw)


@pytest.fixture
def other(process: BrokerProcess) -> Iterator[TransactionClient]:
    with RawClient(process.port, "another") as raw:
        yield TransactionClient(raw)


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue of this test's own."""
    return f"queue-{request.node.name}"


def told(client: TransactionClient, txn_id: bytes) -> str:
    """What a commit is answered: the cause, which has to be that of a rollback."""
    state = client.discharge(txn_id)
    assert isinstance(state, Rejected) and state.error is not None, state
    assert state.error.condition == "amqp:transaction:rollback"
    return str((state.error.info or {})[Symbol("penstock:cause")])


def is_empty(client: TransactionClient, queue: str) -> bool:
    """True if nothing of a transaction got there."""
    client.receiver(queue)
    return client.nothing_came()


def without_rejected(client: TransactionClient, address: str) -> int:
    """A sending link whose messages the broker can't reject: it closes it instead."""
    source = Source(outcomes=symbols("amqp:accepted:list"))
    client.client.attach_sender(f"plain to {address}", Target(address=address), source=source)
    return client.client.last_handle


@pytest.mark.parametrize("settled", [False, True])
def test_one_beyond_the_maximum_size(client: TransactionClient, queue: str, settled: bool) -> None:
    sender, other = client.sender(queue), client.sender(f"{queue} too")
    txn_id = client.declare()
    client.state_of(client.post(other, "taken", txn_id))
    client.post_parts(sender, [PART] * (MOST // len(PART) + 2), txn_id, settled=settled)
    assert told(client, txn_id) == "LimitExceeded"
    error = client.detached().error
    assert error is not None
    assert (error.condition, (error.info or {})[Symbol("penstock:reason")]) == (
        "amqp:link:message-size-exceeded",
        "LimitExceeded",
    )
    assert is_empty(client, f"{queue} too")


def test_one_beyond_the_maximum_size_in_one_frame(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data", settings={"maxMessageBytes": 2048}) as broker,
        RawClient(broker.port, "mine") as raw,
    ):
        client = TransactionClient(raw)
        sender, txn_id = client.sender("q"), client.declare()
        client.post(sender, "x" * 3000, txn_id)
        assert told(client, txn_id) == "LimitExceeded"


def test_other_transactions_of_the_connection_go_on(client: TransactionClient, queue: str) -> None:
    sender, other = client.sender(queue), client.sender(queue, "other")
    doomed, sound = client.declare(), client.declare()
    client.post_parts(sender, [PART] * (MOST // len(PART) + 2), doomed)
    client.state_of(client.post(other, "taken", sound))
    client.commit(sound)
    assert told(client, doomed) == "LimitExceeded"
    client.receiver(queue)
    assert client.bodies(1) == [("taken", 0)]


def test_one_that_can_not_be_stored(client: TransactionClient, queue: str) -> None:
    """Its sections before the body are longer than what a large message may have."""
    sender, txn_id = client.sender(queue), client.declare()
    annotations = Message(application_properties={f"p{index}": "x" * 50_000 for index in range(30)}, body="b")
    encoded = encode_message(annotations)
    delivery = client.post_parts(
        sender, [encoded[at : at + len(PART)] for at in range(0, len(encoded), len(PART))], txn_id
    )
    state = client.state_of(delivery)
    assert isinstance(state, TransactionalState) and state.txn_id == txn_id
    assert condition_of(state) == "amqp:resource-limit-exceeded"
    assert told(client, txn_id) == "LimitExceeded"


@pytest.mark.parametrize("sees_it", [False, True])
def test_one_that_comes_behind_the_end_of_its_link(client: TransactionClient, queue: str, sees_it: bool) -> None:
    """The broker closes the link for another message; what was on its way is lost."""
    plain, other = without_rejected(client, queue), client.sender(f"{queue} too")
    txn_id = client.declare()
    client.state_of(client.post(other, "taken", txn_id))
    client.post_parts(plain, [GARBAGE], None)
    if sees_it:
        error = client.detached().error
        assert error is not None and error.condition == "amqp:decode-error"
    client.post(plain, "lost", txn_id)
    client.post(plain, "lost", txn_id)
    assert told(client, txn_id) == "InvalidRequest"
    if not sees_it:
        client.detached()
    assert is_empty(client, f"{queue} too")


def test_ones_that_came_with_the_message_that_ended_their_link(client: TransactionClient, queue: str) -> None:
    """All in one write, so that the broker has read them before it closes the link."""
    plain, other = without_rejected(client, queue), client.sender(f"{queue} too")
    first, second = client.declare(), client.declare()
    third = client.declare()
    with client.at_once():
        client.post_parts(plain, [GARBAGE], None)
        client.post(plain, "lost", first)
        client.post(other, "taken", third)
        client.post(plain, "lost", second)
    assert told(client, first) == "InvalidRequest"
    assert told(client, second) == "InvalidRequest"
    client.commit(third)
    client.receiver(f"{queue} too")
    assert client.bodies(1) == [("taken", 0)]


def test_one_whose_queue_goes_while_it_comes(process: BrokerProcess, client: TransactionClient, queue: str) -> None:
    async def manage(delete: bool) -> None:
        management = await ManagementClient.connect(process.management)
        try:
            if delete:
                await management.delete(EntityType.QUEUE, queue)
            else:
                await management.create(QueueDeclaration(), queue)
        finally:
            await management.close()

    asyncio.run(manage(delete=False))
    sender, txn_id = client.sender(queue), client.declare()
    client.post_parts(sender, [PART] * 3, txn_id, ends=False)
    assert client.discharge(client.declare(), fail=True) == Accepted()  # what was sent before has come
    asyncio.run(manage(delete=True))
    error = client.detached().error
    assert error is not None and error.condition == "amqp:resource-deleted"
    assert told(client, txn_id) == "NodeDeleted"


@pytest.mark.parametrize("can_reject", [True, False])
@pytest.mark.parametrize("settled", [True, False])
def test_one_that_has_come_in_part_ends_the_coordinator_link(
    client: TransactionClient, other: TransactionClient, queue: str, can_reject: bool, settled: bool
) -> None:
    """4.4.1: it is an error to discharge the transaction. What else belongs to it is rolled back."""
    control = client.attach_coordinator("control 2", outcomes=None if can_reject else ("amqp:accepted:list",))
    sender, writer, txn_id = client.sender(queue), client.sender(queue, "second"), client.declare(handle=control)
    client.state_of(client.post(writer, "whole", txn_id))
    client.post_parts(sender, [PART] * 3, txn_id, ends=False, settled=settled)
    client.request(Discharge(txn_id=txn_id), handle=control)
    closed = client.detached()
    assert closed.closed is True
    assert closed.error is not None
    assert closed.error.condition == "amqp:transaction:rollback"
    assert closed.error.info == {"penstock:reason": "TransactionRolledBack", "penstock:cause": "InvalidRequest"}
    other.receiver(queue)
    assert other.nothing_came()


def test_the_part_of_a_message_outside_does_not_hinder_a_commit(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    sender, writer = client.sender(queue), client.sender(queue, "second")
    txn_id, later = client.declare(), client.declare()
    client.post_parts(sender, [PART] * 3, later, ends=False)
    client.post_parts(client.sender(queue, "third"), [PART] * 3, None, ends=False)
    client.state_of(client.post(writer, "whole", txn_id))
    client.commit(txn_id)
    other.receiver(queue)
    assert other.bodies(1) == [("whole", 0)]


def test_one_that_its_sender_aborts_is_none(client: TransactionClient, queue: str) -> None:
    sender, txn_id = client.sender(queue), client.declare()
    client.post_parts(sender, [PART] * 3, txn_id, aborted=True)
    client.state_of(client.post(sender, "taken", txn_id))
    client.commit(txn_id)
    client.receiver(queue)
    assert client.bodies(1) == [("taken", 0)]
