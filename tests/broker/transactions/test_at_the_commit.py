"""What holds at the commit, not when the messages came: times, limits, and which queue has the name.

Source: docs/concepts/transactions.md, "What is guaranteed"; AMQP 1.0 part 3, 3.2.1 and 3.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest
from support.stepped_broker import SteppedBroker
from support.transaction_client import TransactionClient, condition_of

from penstock_amqp.endpoint.events import DATA
from penstock_amqp.frames.performatives import Accepted, Rejected
from penstock_amqp.messages.message_codec import Message, decode_message, encode_message
from penstock_amqp.messages.message_head import Header
from penstock_amqp.types.values import Symbol, Value
from penstock_api.management import DeliveryPolicy, QueueLimits
from penstock_broker.queue.queue import Queue


@pytest.fixture
def stepped() -> Iterator[SteppedBroker]:
    broker = SteppedBroker(segment_bytes=16 * 1024 * 1024)
    broker.make_queue("jobs")
    yield broker
    broker.close()


def waiting(queue: Queue) -> list[object]:
    return [decode_message(entry[DATA]).body for entry in queue]


@pytest.mark.parametrize("count", [1, 20])
def test_times_count_from_the_commit_on(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue, count: int
) -> None:
    delay: dict[Value, Value] = {Symbol("x-opt-delivery-delay"): 5000}
    sender, txn_id = client.sender("jobs"), client.declare()
    for message in (
        Message(header=Header(durable=True, ttl=2000), body="expires"),
        Message(header=Header(durable=True), annotations=delay, body="delayed"),
    ):
        for number in [client.send(sender, message, txn_id) for _ in range(count)]:
            client.state_of(number)
    stepped.pass_ms(6000)
    client.commit(txn_id)
    stepped.pass_ms(1900)
    assert (waiting(queue), queue.depth) == (["expires"] * count, 2 * count)
    stepped.pass_ms(200)
    assert (waiting(queue), queue.depth) == ([], count)
    stepped.pass_ms(2800)
    assert waiting(queue) == []
    stepped.pass_ms(200)
    assert waiting(queue) == ["delayed"] * count


@pytest.mark.parametrize(
    ("overflow", "kept"),
    [
        ("DropOldest", ["n7", "n8", "n9", "n10", "n11"]),
        ("DropNewest", ["old", "n0", "n1", "n2", "n3"]),
        ("Reject", ["old"]),
    ],
)
def test_a_limit_that_is_reached_at_the_commit(
    stepped: SteppedBroker, client: TransactionClient, overflow: Literal["DropOldest", "DropNewest", "Reject"],
    kept: list[str],
) -> None:  # fmt: skip
    """Two are accepted in it, and make room; twelve are sent in it to a queue of five."""
    stepped.make_queue("narrow", limits=QueueLimits(max_messages=5, overflow=overflow))
    sender = client.sender("narrow")
    for number in [client.post(sender, body, None) for body in ("first", "second", "old")]:
        client.state_of(number)
    client.receiver("narrow", credit=2)
    txn_id = client.declare()
    for got in client.get(2):
        client.settle(got, Accepted(), txn_id)
    for number in [client.post(sender, f"n{number}", txn_id) for number in range(12)]:
        client.state_of(number)
    if overflow == "Reject":
        assert condition_of(client.discharge(txn_id)) == "amqp:transaction:rollback"
        kept = ["first", "second", *kept]
    else:
        client.commit(txn_id)
    assert waiting(stepped.queue("narrow")) == kept
    stepped.restart()
    assert waiting(stepped.queue("narrow")) == kept


def test_a_queue_that_was_deleted_and_made_again_is_another(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue
) -> None:
    stepped.make_queue("again")
    sender, again = client.sender("jobs"), client.sender("again")
    client.state_of(client.post(again, "old", None))
    client.receiver("again")
    (old,) = client.get()
    receiving, sending = client.declare(), client.declare()
    client.settle(old, Accepted(), receiving)
    for handle, txn_id in ((sender, receiving), (sender, sending), (again, sending)):
        client.state_of(client.post(handle, "new", txn_id))
    stepped.broker.topology.delete_queue("again")
    stepped.make_queue("again")
    client.commit(receiving)
    assert condition_of(client.discharge(sending)) == "amqp:transaction:rollback"
    assert (waiting(queue), waiting(stepped.queue("again"))) == (["new"], [])
    stepped.restart()
    assert (waiting(stepped.queue("jobs")), waiting(stepped.queue("again"))) == (["new"], [])


def test_what_was_rejected_of_a_queue_that_is_gone_becomes_no_dead_letter(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue
) -> None:
    stepped.make_queue("gone", DeliveryPolicy(dead_letter="jobs"))
    client.state_of(client.post(client.sender("gone"), "old", None))
    client.receiver("gone")
    (old,) = client.get()
    txn_id = client.declare()
    client.settle(old, Rejected(), txn_id)
    stepped.broker.topology.delete_queue("gone")
    client.commit(txn_id)
    assert waiting(queue) == []


def test_two_transactions_take_turns_on_a_link_within_one_write(client: TransactionClient, queue: Queue) -> None:
    sender, first, second = client.sender("jobs"), client.declare(), client.declare()
    with client.at_once():
        numbers = [client.post(sender, str(number), (first, second)[number % 2]) for number in range(30)]
    for number in numbers:
        client.state_of(number)
    client.commit(second)
    assert client.discharge(first, fail=True) == Accepted()
    assert waiting(queue) == [str(number) for number in range(1, 30, 2)]


def test_long_messages_among_short_ones(stepped: SteppedBroker, client: TransactionClient, queue: Queue) -> None:
    """Of the long ones all but the first mebibyte is in the log before the commit."""
    sender, txn_id, dropped = client.sender("jobs"), client.declare(), client.declare()
    long = encode_message(Message(header=Header(durable=True), body="long" * (1 << 19)))
    parts = [long[begin : begin + 60_000] for begin in range(0, len(long), 60_000)]
    numbers: list[int] = []
    for each in (dropped, txn_id, txn_id):
        numbers += [client.post(sender, f"{number}", each) for number in range(10)]
        numbers.append(client.post_parts(sender, parts, each))
    for number in numbers:
        client.state_of(number)
    assert client.discharge(dropped, fail=True) == Accepted()
    client.commit(txn_id)
    sizes = [len(entry[DATA]) for entry in queue]
    assert sizes[10] == sizes[21] == len(long)
    assert max(*sizes[:10], *sizes[11:21]) < 100
    stepped.restart()
    assert [len(entry[DATA]) for entry in stepped.queue("jobs")] == sizes
