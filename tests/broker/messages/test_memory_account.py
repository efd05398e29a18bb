"""What the messages of a queue take in memory is what is said, as far as Python can measure it."""

from __future__ import annotations

import tracemalloc

import pytest

from penstock_amqp.endpoint.events import FLAGS, Entry
from penstock_amqp.messages.message_head import Head
from penstock_broker.messages.memory_account import memory_of
from penstock_broker.queue import snapshots
from penstock_broker.queue.flags import level_flags
from penstock_broker.queue.queue import Queue

COUNT = 5000


def entries(size: int, count: int = COUNT) -> list[Entry]:
    """As `publish` makes them: each number and body is an object of its own, those of a batch share their time."""
    made: list[Entry] = []
    for first in range(0, count, 50):
        now = 10**15 + first
        made += [(10**9 + number, bytes(bytearray(size)), now, 0, 1) for number in range(first, first + 50)]
    return made


def a_queue() -> Queue:
    return Queue("q", 1, is_logged=True, now_us=0)


def put(queue: Queue, messages: list[Entry]) -> None:
    queue.arrivals.extend(messages)
    queue.depth_bytes += sum(len(data) for _, data, *_ in messages)


@pytest.mark.parametrize("size", [16, 100, 1000, 10_000])
def test_what_messages_take(size: int) -> None:
    tracemalloc.start()
    try:
        queue = a_queue()
        before = tracemalloc.get_traced_memory()[0]
        put(queue, entries(size))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    said = memory_of(queue)
    assert taken <= said <= taken + 64 * COUNT, "not less, and at most what an allocator may round up"


def test_an_empty_queue_takes_nothing() -> None:
    assert memory_of(a_queue()) == 0


def test_what_several_queues_hold_lies_in_memory_once() -> None:
    queues = [a_queue() for _ in range(10)]
    messages = entries(1000)
    for queue in queues:
        put(queue, messages)
    messages = []
    assert sum(map(memory_of, queues)) == pytest.approx(COUNT * (1000 + 176), rel=0.02)


def test_it_does_so_too_once_it_was_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for messages that have expired, or for PEEK: then it waits in another part of its queue."""
    monkeypatch.setattr(snapshots, "MOST_COPIED", COUNT // 2)
    queues = [a_queue() for _ in range(10)]
    messages = entries(1000)
    for queue in queues:
        put(queue, messages)
        assert sum(1 for _ in queue.backlog.snapshot(below=10**10)) == COUNT
        assert not queue.ready
    messages = []
    assert sum(map(memory_of, queues)) == pytest.approx(COUNT * (1000 + 176), rel=0.02)


def test_messages_of_another_priority_that_several_queues_hold_lie_in_memory_once() -> None:
    queues = [a_queue() for _ in range(10)]
    highest = level_flags(Head(True, 9, None, False, 0, 0, 0))
    messages = [(*entry[:FLAGS], entry[FLAGS] | highest) for entry in entries(1000)]
    for queue in queues:
        queue.put(messages)
        queue.depth_bytes += COUNT * 1000
    messages = []
    assert sum(map(memory_of, queues)) == pytest.approx(COUNT * (1000 + 176), rel=0.02)


def test_delayed_messages_that_several_queues_hold_lie_in_memory_once() -> None:
    queues = [a_queue() for _ in range(10)]
    messages = entries(1000)
    for queue in queues:
        for number in range(len(messages)):
            queue.hold_back(messages[number])
        queue.depth_bytes += COUNT * 1000
    del messages
    assert sum(map(memory_of, queues)) == pytest.approx(COUNT * (1000 + 176), rel=0.02)


def test_a_body_that_several_queues_hold_in_entries_of_their_own_lies_in_memory_once() -> None:
    bodies = [bytes(bytearray(1000)) for _ in range(COUNT)]
    queues = [a_queue() for _ in range(4)]
    for queue in queues:
        put(queue, [(number, body, 0, 0, 1) for number, body in enumerate(bodies)])
    bodies = []
    assert sum(map(memory_of, queues)) == pytest.approx(COUNT * (1000 + 176), rel=0.02)


def test_if_only_the_first_messages_are_shared_all_count() -> None:
    one, other = a_queue(), a_queue()
    messages = entries(1000)
    put(one, messages)
    put(other, messages[:10])
    messages = []
    assert memory_of(one) == COUNT * (1000 + 176)


@pytest.mark.parametrize(
    ("size", "buffer"),
    [
        pytest.param(1000, 1024, id="a kilobyte"),
        pytest.param(1024, 1024, id="a power of two"),
        pytest.param(10_000, 16_384, id="10 kB"),
        pytest.param(0, 0, id="nothing, since the bodies are in the log"),
    ],
)
def test_the_engine_keeps_a_copy_of_each_delivery_in_flight(size: int, buffer: int) -> None:
    """The sizes of the buffers were measured with proton 0.40, which frees them with the delivery."""
    queue = a_queue()
    queue.in_flight, queue.depth_bytes = 3, 3 * size
    assert memory_of(queue) == 3 * (size + 176 + 640 + buffer)
