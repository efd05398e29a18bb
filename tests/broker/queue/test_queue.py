"""The messages of one queue: order, counts, what comes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock_amqp.endpoint.buffers import NULL
from penstock_amqp.endpoint.events import Entry, Held
from penstock_amqp.endpoint.links import OutLink, Session
from penstock_broker.queue.disposal import Disposal
from penstock_broker.queue.queue import Queue


def entry(number: int) -> Entry:
    return (number, b"x" * number, 0, 0, 0)


def held(number: int) -> Held:
    return (OutLink(NULL, "link", Session(NULL)), entry(number), 0)


def queue_with(*numbers: int) -> Queue:
    queue = Queue("q", 1, is_logged=True, now_us=0)
    for number in numbers:
        queue.ready.append(entry(number))
        queue.depth_bytes += number
    return queue


def test_depth_counts_what_waits_and_what_is_in_flight() -> None:
    queue = queue_with(1, 2, 3)
    queue.ready.popleft()
    queue.in_flight += 1
    assert (queue.depth, queue.waiting) == (3, 2)
    queue.put_back([held(1)])
    assert (queue.depth, queue.waiting, queue.in_flight, queue.totals.returned) == (3, 3, 0, 1)


@given(st.permutations(list(range(1, 9))))
def test_what_comes_back_is_in_publishing_order_whatever_the_order_of_return(numbers: list[int]) -> None:
    queue = queue_with()
    queue.in_flight = len(numbers)
    for number in numbers:
        queue.put_back([held(number)])
    assert [each[0] for each in queue.returned] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_message_seen_before_tells_one_delivery_without_an_attempt() -> None:
    queue = queue_with(5)
    assert queue.redelivery.delivery_count(5) == 0
    queue.redelivery.seen.note(5)
    assert (queue.redelivery.delivery_count(5), queue.redelivery.attempts) == (1, {})


def test_attempts_count_up_and_are_forgotten_with_the_message() -> None:
    queue = queue_with(5)
    queue.fail(entry(5))
    queue.fail(entry(5))
    assert (queue.redelivery.delivery_count(5), queue.totals.max_delivery_count) == (2, 2)
    queue.forget(5)
    assert (queue.redelivery.delivery_count(5), queue.totals.max_delivery_count) == (0, 2)


def test_a_queue_is_empty_at_its_end_but_for_what_is_in_flight() -> None:
    queue = queue_with(1, 2, 3)
    queue.ready.popleft()
    queue.in_flight += 1
    remains = Disposal()
    remains.add(*queue.end())
    assert (queue.depth, queue.depth_bytes, bool(remains)) == (1, 0, True)
    remains.free_slice()
    assert not remains
