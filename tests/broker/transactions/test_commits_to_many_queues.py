"""Commits of messages for very many queues: the answer waits until they are in all of them.

Source: docs/decisions/023-bounded-turns.md and 149-rollbacks-in-slices.md; AMQP 1.0 part 4, 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.raw_client import RawClient
from support.stepped_broker import SteppedBroker, SteppedStream
from support.transaction_client import TransactionClient
from support.wide_exchange import QUEUES, wide_exchange

from penstock_amqp.frames.performatives import Accepted, Close, Disposition
from penstock_amqp.messages.transaction_types import Discharge
from penstock_broker.messages import queue_limits
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> Iterator[SteppedBroker]:
    with wide_exchange(monkeypatch) as broker:
        yield broker


@pytest.fixture
def sending(wide: SteppedBroker) -> Iterator[TransactionClient]:
    with RawClient(0, "mine", stream=SteppedStream(wide)) as raw:
        yield TransactionClient(raw)


def queues(wide: SteppedBroker) -> list[Queue]:
    return [each.queue for each in wide.broker.topology.subscriptions.values()]


def committing(wide: SteppedBroker, client: TransactionClient, *, durable: bool) -> int:
    """Discharge a transaction that has posted a message; the delivery-id of the discharge, which was read."""
    sender, txn_id = client.sender("amq.fanout"), client.declare()
    client.state_of(client.post(sender, "one", txn_id, durable=durable))
    number = client.request(Discharge(txn_id=txn_id, fail=False))
    wide.turn()
    return number


@pytest.mark.parametrize("durable", [True, False])
def test_a_commit_is_answered_once_its_messages_are_in_all_of_their_queues(
    wide: SteppedBroker, sending: TransactionClient, durable: bool
) -> None:
    number = committing(wide, sending, durable=durable)
    stream = sending.client.socket
    assert isinstance(stream, SteppedStream)
    seen: list[tuple[int, bool]] = []
    for _ in range(4):
        seen.append((sum(each.depth for each in queues(wide)), stream.has_something()))
        wide.turn()
    assert seen == [(0, False), (3, False), (6, False), (7, True)]
    last = sending.client.receive().performative
    assert isinstance(last, Disposition)
    assert (last.first, last.state) == (number, Accepted())


@pytest.mark.parametrize("durable", [True, False])
def test_a_commit_whose_messages_do_not_come_into_all_of_them_is_not_answered(
    wide: SteppedBroker, sending: TransactionClient, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    committing(wide, sending, durable=durable)
    failing = queues(wide)[4]
    failing.policy.max_messages = 100

    def fails(broker: Broker, queue: Queue, count: int, size: int) -> None:
        raise RuntimeError("a mistake in the code")

    monkeypatch.setattr(queue_limits, "enforce", fails)
    while wide.broker.work.fan_outs:
        wide.turn()
    told = sending.client.receive().performative
    assert isinstance(told, Close)
    assert told.error is not None
    assert told.error.condition == "amqp:internal-error"
    assert [each.depth for each in queues(wide)] == [1] * QUEUES
