"""Commits of very many messages: what they cost their turn, and that each queue gets them as it gets messages outside
of transactions, in their order.

Source: docs/decisions/149-rollbacks-in-slices.md; AMQP 1.0 part 4, 4.3.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.raw_client import RawClient
from support.stepped_broker import SteppedBroker, SteppedStream
from support.transaction_client import TransactionClient

import penstock_native
from penstock_amqp.endpoint.events import AVAILABLE, DATA, EXPIRES, FLAGS
from penstock_amqp.frames.performatives import Accepted
from penstock_amqp.messages.message_codec import Message, Properties, encode_message
from penstock_amqp.messages.message_head import Header
from penstock_amqp.messages.transaction_types import Discharge
from penstock_amqp.types.values import Symbol, Value
from penstock_api.management import EntityType, SubscriptionDeclaration
from penstock_broker.management import declare
from penstock_broker.management.replies import to_value
from penstock_broker.messages import store
from penstock_broker.queue import disposal
from penstock_broker.queue.queue import Queue
from penstock_broker.state import open_transactions
from penstock_broker.transactions import commit


@pytest.fixture
def stepped() -> Iterator[SteppedBroker]:
    broker = SteppedBroker(segment_bytes=1 << 20)
    broker.make_queue("jobs")
    yield broker
    broker.close()


# -- what a commit costs its turn --------------------------------------------------------------------------------------


def lines_of_commit(
    stepped: SteppedBroker, client: TransactionClient, monkeypatch: pytest.MonkeyPatch, txn_id: bytes
) -> int:
    """How many lines of Python the commit of a transaction runs: a measure that does not depend on the machine."""
    real, lines = commit.commit, 0

    def count(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    def counted(*given: Any) -> Any:
        before = sys.gettrace()
        sys.settrace(count)
        try:
            return real(*given)
        finally:
            sys.settrace(before)

    monkeypatch.setattr(commit, "commit", counted)
    client.commit(txn_id)
    monkeypatch.undo()
    return lines


def posted(client: TransactionClient, count: int) -> bytes:
    sender, txn_id = client.sender("jobs", f"to jobs {count}"), client.declare()
    with client.at_once():
        numbers = [client.post(sender, str(number), txn_id) for number in range(count)]
    for number in numbers:
        client.state_of(number)
    return txn_id


def accepted(client: TransactionClient, count: int) -> bytes:
    client.commit(posted(client, count))
    client.receiver("jobs", credit=count, name=f"from jobs {count}")
    txn_id = client.declare()
    for each in client.get(count):
        client.settle(each, Accepted(), txn_id)
    assert client.nothing_came()  # the broker has read it
    return txn_id


@pytest.mark.skipif(penstock_native.messages is None, reason="in Python alone each message takes some lines")
def test_a_message_more_in_a_commit_runs_no_line_of_python_more(
    stepped: SteppedBroker, client: TransactionClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = lines_of_commit(stepped, client, monkeypatch, posted(client, 20))
    many = lines_of_commit(stepped, client, monkeypatch, posted(client, 620))
    assert many - few < 60, (few, many)


@pytest.mark.skipif(penstock_native.messages is None, reason="in Python alone each delivery takes some lines")
def test_a_delivery_more_in_a_commit_runs_few_lines_of_python_more(
    stepped: SteppedBroker, client: TransactionClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = lines_of_commit(stepped, client, monkeypatch, accepted(client, 20))
    many = lines_of_commit(stepped, client, monkeypatch, accepted(client, 620))
    assert many - few < 600 * 10, (few, many)


@pytest.mark.parametrize("way", ["one too many", "too old", "rollback"])
def test_what_a_transaction_posted_is_freed_in_slices(
    stepped: SteppedBroker, client: TransactionClient, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(open_transactions, "FREED_AT_ONCE", 10)
    monkeypatch.setattr(disposal, "FREED_PER_TURN", 5)
    transactions = stepped.broker.transactions
    transactions.limits = replace(transactions.limits, messages=20, age_ms=1000)
    txn_id = posted(client, 20)
    if way == "one too many":
        client.post(client.sender("jobs", "more"), "more", txn_id)
    elif way == "too old":
        stepped.now_ms += 1000
    else:
        client.request(Discharge(txn_id=txn_id, fail=True))
    turns = 0
    stepped.turn()
    assert transactions.memory == 0
    while stepped.broker.topology.disposal:
        stepped.turn()
        turns += 1
    assert turns == 4


# -- what it stores ----------------------------------------------------------------------------------------------------


def encoded(header: Header, delay: int | None, properties: Properties, body: str) -> bytes:
    annotations: dict[Value, Value] = {} if delay is None else {Symbol("x-opt-delivery-delay"): delay}
    return encode_message(Message(header=header, annotations=annotations, properties=properties, body=body))


HEADERS = st.builds(
    Header,
    durable=st.sampled_from([None, True]),
    priority=st.sampled_from([None, None, None, 4, 9]),
    ttl=st.sampled_from([None, None, 5000]),
)
PROPERTIES = st.builds(
    Properties,
    absolute_expiry_time=st.sampled_from([None, None, None, 3_000_000]),
    group_id=st.sampled_from([None, None, None, "group"]),
)
MESSAGES = st.builds(encoded, HEADERS, st.sampled_from([None, None, None, 0, 7000]), PROPERTIES, st.text(max_size=3))
RUNS = st.lists(st.tuples(MESSAGES, st.integers(1, 12)), min_size=1, max_size=8).map(
    lambda drawn: [data for data, count in drawn for _ in range(count)]
)
"""Some that are the same, in a row."""


def stored(queue: Queue) -> list[tuple[object, ...]]:
    """What waits in a queue, in order: everything of an entry but its number."""
    return [(entry[DATA], entry[AVAILABLE], entry[EXPIRES], entry[FLAGS]) for entry in queue]


@given(messages=RUNS, durable=st.booleans(), keep=st.booleans())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_messages_are_stored_alike_one_by_one_and_together(messages: list[bytes], durable: bool, keep: bool) -> None:
    stepped = SteppedBroker(segment_bytes=1 << 20)
    try:
        found: list[tuple[object, ...]] = []
        for name, fewest in (("alone", 1 << 30), ("together", 1)):
            queue = stepped.make_queue(name, durable=durable)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(store, "FEWEST_TOGETHER", fewest)
                route = stepped.broker.routes.route_of((queue,))
                is_logged = store.put(stepped.broker, route, messages, keep=keep)
            stepped.turn()
            totals = queue.totals
            counted = totals.enqueued, totals.enqueued_bytes, queue.depth, queue.depth_bytes
            found.append((is_logged, counted, *stored(queue)))
        assert found[0] == found[1]
        stepped.restart()
        left = [stored(stepped.queue(name)) if durable else [] for name in ("alone", "together")]
        assert left[0] == left[1]
    finally:
        stepped.close()


# -- in which order ----------------------------------------------------------------------------------------------------

REACHED = {
    "a": ("a",),
    "b": ("b",),
    "amq.topic/x": ("every", "x"),
    "amq.topic/y": ("every",),
    "amq.direct/x": ("direct",),
}
"""The queues that messages reach, by address."""
SENDERS = [*REACHED, "a", "amq.topic"]
"""Links of the client. To the last one messages come with a key each."""


@pytest.fixture
def several(stepped: SteppedBroker) -> SteppedBroker:
    for name in ("a", "b"):
        stepped.make_queue(name)
    for name, exchange, key in (("every", "amq.topic", "#"), ("x", "amq.topic", "x"), ("direct", "amq.direct", "x")):
        declaration = SubscriptionDeclaration(subscription_name=name, exchange=exchange, binding_keys=(key,))
        body = to_value(declaration)
        assert declare.declare(stepped.broker, EntityType.SUBSCRIPTION, None, body, update=False).status == 201
    return stepped


@given(drawn=st.lists(st.tuples(st.integers(0, len(SENDERS) - 1), st.integers(1, 9)), min_size=1, max_size=12))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
def test_each_queue_gets_the_messages_of_a_commit_in_sending_order(
    several: SteppedBroker, drawn: list[tuple[int, int]]
) -> None:
    subscriptions = {each.identity.name: each.queue for each in several.broker.topology.subscriptions.values()}
    queues = {"a": several.queue("a"), "b": several.queue("b"), **subscriptions}
    before = {name: len(list(queue)) for name, queue in queues.items()}
    expected: dict[str, list[bytes]] = {name: [] for name in queues}
    with RawClient(0, "sorting", stream=SteppedStream(several)) as raw:
        client = TransactionClient(raw)
        links = [client.sender(address, f"link {number}") for number, address in enumerate(SENDERS)]
        txn_id = client.declare()
        number = 0
        for link, count in drawn:
            for _ in range(count):
                number += 1
                address = SENDERS[link]
                key = "xy"[number % 2] if address == "amq.topic" else None
                message = Message(properties=Properties(subject=key), body=number)
                client.state_of(client.send(links[link], message, txn_id))
                for name in REACHED[f"{address}/{key}" if key else address]:
                    expected[name].append(encode_message(message))
        client.commit(txn_id)
    assert {name: [entry[DATA] for entry in queue][before[name] :] for name, queue in queues.items()} == expected
