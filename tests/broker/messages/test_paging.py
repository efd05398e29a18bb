"""Deep queues with windows of sixteen messages: nothing that clients or administrators see differs from others."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest
from proton import Delivery, Described, Message, Terminus, symbol, ulong
from support.stepped_broker import Peer, SteppedBroker
from support.tight_memory import tighten

from penstock_api.management import DeliveryPolicy, QueueLimits
from penstock_broker.messages import move, paging

DEEP = 300


@pytest.fixture
def broker() -> Iterator[SteppedBroker]:
    made = SteppedBroker()
    yield made
    made.close()


def page(broker: SteppedBroker) -> None:
    """From now on each queue that holds something is paged."""
    tighten(broker.broker, window=16)
    settle_down(broker)


def settle_down(broker: SteppedBroker) -> None:
    for _ in range(4):
        broker.pass_ms(paging.LOOK_MS)


def fill(broker: SteppedBroker, name: str, count: int = DEEP, **properties: object) -> None:
    peer = broker.connect()
    for first in range(0, count, 50):
        sent = [Message(body=number, durable=True, **properties) for number in range(first, min(first + 50, count))]
        assert peer.send(name, *sent) == ["accepted"] * len(sent)
    peer.drop()


def in_memory(broker: SteppedBroker, name: str) -> int:
    return sum(1 for _ in broker.queue(name).everything_in_memory())


def take_all(peer: Peer) -> list[object]:
    """Accept everything that comes, also what comes later because of that."""
    taken: list[object] = []
    peer.pump()
    while peer.got:
        taken.append(peer.take().body)
    return taken


def deep(broker: SteppedBroker, name: str = "q", count: int = DEEP, **properties: object) -> None:
    broker.make_queue(name)
    page(broker)
    fill(broker, name, count, **properties)
    settle_down(broker)
    assert in_memory(broker, name) <= 64
    assert broker.queue(name).depth == count


def test_a_deep_queue_keeps_few_bodies_and_hands_all_out_in_order(broker: SteppedBroker) -> None:
    deep(broker)
    consumer = broker.connect()
    consumer.receive("q", credit=1000)
    assert take_all(consumer) == list(range(DEEP))
    queue = broker.queue("q")
    assert (queue.depth, queue.depth_bytes, queue.totals.acked) == (0, 0, DEEP)
    settle_down(broker)
    assert queue.backlog.normal.tail is None
    assert queue.arrivals is queue.ready
    assert not broker.broker.paging.queues


def test_a_queue_that_was_deep_before_is_paged_in_place(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    fill(broker, "q")
    assert in_memory(broker, "q") == DEEP
    page(broker)
    assert in_memory(broker, "q") <= 64
    consumer = broker.connect()
    consumer.receive("q", credit=1000)
    assert take_all(consumer) == list(range(DEEP))


def test_messages_that_come_while_others_are_taken_stay_behind_them(broker: SteppedBroker) -> None:
    deep(broker, count=100)
    consumer, producer = broker.connect(), broker.connect()
    consumer.receive("q", credit=10)
    taken: list[object] = []
    for number in range(100, 200):
        producer.send("q", Message(body=number, durable=number % 3 != 0))
        consumer.pump()
        if consumer.got:
            taken.append(consumer.take().body)
    consumer.session.receiver("more").open()
    consumer.receive("q", credit=500, name="further")
    taken += take_all(consumer)
    assert taken == list(range(200))


def test_all_come_back_after_a_restart(broker: SteppedBroker) -> None:
    deep(broker)
    consumer = broker.connect()
    consumer.receive("q", credit=20)
    assert [consumer.take().body for _ in range(5)] == [0, 1, 2, 3, 4]
    broker.restart()
    page(broker)
    again = broker.connect()
    again.receive("q", credit=1000)
    assert take_all(again) == list(range(5, DEEP))


def test_what_comes_back_goes_first(broker: SteppedBroker) -> None:
    deep(broker)
    consumer = broker.connect()
    consumer.receive("q", credit=3)
    assert consumer.bodies() == [0, 1, 2]
    consumer.drop()
    again = broker.connect()
    again.receive("q", credit=1000)
    assert take_all(again) == list(range(DEEP))


def test_a_browser_sees_all_and_reads_a_little_at_a_time(broker: SteppedBroker) -> None:
    deep(broker)
    peer = broker.connect()
    link = peer.session.receiver("browser")
    link.source.address = "q"
    link.source.distribution_mode = Terminus.DIST_MODE_COPY
    link.open()
    link.flow(1000)
    peer.pump()
    assert peer.bodies() == list(range(DEEP))
    assert in_memory(broker, "q") <= 64
    assert broker.queue("q").depth == DEEP


def test_who_selects_finds_what_lies_deep_and_leaves_the_rest_in_order(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    page(broker)
    producer = broker.connect()
    for number in range(DEEP):
        colour = "red" if number % 100 == 99 else "blue"
        producer.send("q", Message(body=number, durable=True, properties={"colour": colour}))
    settle_down(broker)
    peer = broker.connect()
    link = peer.session.receiver("selecting")
    link.source.address = "q"
    selector = Described(ulong(0x0000468C_00000004), "colour = 'red'")
    link.source.filter.put_dict({symbol("selector"): selector})
    link.open()
    link.flow(1000)
    peer.pump()
    assert take_all(peer) == [99, 199, 299]
    peer.drop()
    rest = broker.connect()
    rest.receive("q", credit=1000)
    assert take_all(rest) == [number for number in range(DEEP) if number % 100 != 99]


def test_higher_and_lower_priorities_keep_their_places_around_a_tail(broker: SteppedBroker) -> None:
    deep(broker)
    producer = broker.connect()
    producer.send("q", Message(body="low", durable=True, priority=1), Message(body="high", durable=True, priority=9))
    consumer = broker.connect()
    consumer.receive("q", credit=1000)
    assert take_all(consumer) == ["high", *range(DEEP), "low"]


def test_messages_expire_though_they_are_not_in_memory(broker: SteppedBroker) -> None:
    broker.make_queue("dead")
    broker.make_queue("q", DeliveryPolicy(expiry="dead"))
    page(broker)
    producer = broker.connect()
    for number in range(DEEP):
        producer.send("q", Message(body=number, durable=True, ttl=5.0 if number % 3 == 0 else 0))
    settle_down(broker)
    assert in_memory(broker, "q") <= 64
    broker.pass_ms(5000)
    settle_down(broker)
    broker.pass_ms(5000)
    queue = broker.queue("q")
    assert (queue.totals.expired, queue.depth, broker.queue("dead").depth) == (100, 200, 100)
    consumer = broker.connect()
    consumer.receive("q", credit=1000)
    assert take_all(consumer) == [number for number in range(DEEP) if number % 3]
    assert (queue.depth, queue.depth_bytes) == (0, 0)


@pytest.mark.parametrize(("overflow", "kept"), [("DropOldest", range(200, 300)), ("DropNewest", range(100))])
def test_a_limit_holds_though_what_it_drops_is_not_in_memory(
    broker: SteppedBroker, overflow: Literal["DropOldest", "DropNewest"], kept: range
) -> None:
    broker.make_queue("q", limits=QueueLimits(max_messages=100, overflow=overflow))
    page(broker)
    fill(broker, "q")
    settle_down(broker)
    queue = broker.queue("q")
    assert (queue.depth, queue.totals.dropped) == (100, 200)
    consumer = broker.connect()
    consumer.receive("q", credit=1000)
    assert take_all(consumer) == list(kept)
    assert (queue.depth, queue.depth_bytes) == (0, 0)


def test_what_is_purged_from_the_middle_is_gone_also_after_a_restart(broker: SteppedBroker) -> None:
    deep(broker)
    queue = broker.queue("q")
    entries = list(queue.everything())
    passed = {entry[0] for _, entry in entries}
    chosen = {entry[0]: entry for at, (_, entry) in enumerate(entries) if at % 2}
    taken = queue.take_out(chosen, passed)
    assert len(taken) == DEEP // 2
    for entry in taken:
        move.purge(broker.broker, queue, entry)
    assert queue.depth == DEEP // 2
    settle_down(broker)
    broker.restart()
    assert broker.queue("q").depth == DEEP // 2
    consumer = broker.connect()
    consumer.receive("q", credit=1000)
    assert take_all(consumer) == list(range(0, DEEP, 2))


def test_what_a_consumer_added_is_not_lost_by_paging(broker: SteppedBroker) -> None:
    """The log holds it beside the message: after a restart it waits among the fresh ones."""
    broker.make_queue("q")
    fill(broker, "q", 100)
    consumer = broker.connect()
    consumer.receive("q", credit=30)
    consumer.pump()
    _, delivery = consumer.got.pop(29)
    delivery.local.annotations = {symbol("x-opt-note"): "seen"}
    delivery.update(Delivery.MODIFIED)
    delivery.settle()
    consumer.pump()
    consumer.drop()
    broker.restart()
    page(broker)
    again = broker.connect()
    again.receive("q", credit=1000)
    again.pump()
    notes: dict[object, object] = {}
    while again.got:
        message = again.take()
        notes[message.body] = dict(message.annotations or {}).get(symbol("x-opt-note"))
    assert len(notes) == 100
    assert [body for body, note in notes.items() if note == "seen"] == [29]


def test_the_end_of_a_deep_queue_reads_nothing(broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    deep(broker)
    queue = broker.queue("q")
    snapshot = queue.backlog.snapshot()
    broker.broker.topology.disposal.add(*queue.end())
    monkeypatch.setattr(broker.broker.log._messages, "read", None)  # pyright: ignore[reportPrivateUsage]
    settle_down(broker)
    assert len(list(snapshot)) <= 64
    assert queue.depth == 0
