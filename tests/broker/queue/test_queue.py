"""The messages of one queue: order, counts, what comes back."""

from __future__ import annotations

import pytest
from broker.queue.ordered_messages import Somebody, message
from broker.queue.ordered_messages import entry as ordered
from hypothesis import given
from hypothesis import strategies as st

from penstock_amqp.endpoint.buffers import NULL
from penstock_amqp.endpoint.events import Entry, Held
from penstock_amqp.endpoint.links import OutLink, Session
from penstock_broker.queue import priority_level
from penstock_broker.queue.disposal import Disposal
from penstock_broker.queue.flags import LOGGED, SCHEDULED, SPILLED
from penstock_broker.queue.queue import Queue, Stranded
from penstock_core.dead_letters import DeathReason


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


def test_how_long_the_oldest_has_waited_is_known_wherever_it_waits() -> None:
    """Lag is "how long the oldest has waited": since when the first of all that wait could be taken. Numbers say in
    which order they came; 5 was delayed for long, so it is young when a consumer that selects has looked at all of them
    and they lie by number."""
    queue = queue_with()
    delayed: Entry = (5, b"", 100, 0, SCHEDULED)
    others: list[Entry] = [(10, b"", 10, 0, 0), (11, b"", 11, 0, 0), (12, b"", 110, 0, SCHEDULED)]
    queue.put([others[0], others[1], delayed, others[2]])
    assert queue.oldest_available_us() == 10
    assert queue.pick({}, {5, 10, 11, 12}) == []
    assert [each[0] for each in queue] == [5, 10, 11, 12]
    assert queue.oldest_available_us() == 10
    queue.pick({each[0]: each for each in others[:2]}, {10, 11})
    assert queue.oldest_available_us() == 100
    queue.put([(13, b"", 13, 0, 0)])
    assert queue.oldest_available_us() == 13


def test_the_oldest_of_very_many_that_were_delayed_is_looked_for_among_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priority_level, "LOOKED_AT", 3)
    queue = queue_with()
    queue.backlog.normal.back.add((9, b"", 1, 0, 0))
    for number, available in ((1, 30), (2, 20), (3, 40), (4, 10)):
        queue.put_back([(held(1)[0], (number, b"", available, 0, SCHEDULED), 0)])
    assert queue.oldest_available_us() == 20


def test_the_oldest_may_wait_for_the_owner_of_its_group() -> None:
    queue = queue_with()
    times = {1: 10, 2: 20, 3: 30}
    for number, group in ((1, "g"), (2, "g"), (3, None)):
        _, data, _, _, flags = ordered(number, message(group=group))
        queue.put([(number, data, times[number], 0, flags)])
    owner, other = Somebody(), Somebody()
    queue.backlog.examination.budget = 100
    assert [found[0] for each in (owner, other) if (found := queue.backlog.take(each)) is not None] == [1, 3]
    assert queue.oldest_available_us() == 20


def test_whatever_ends_with_the_process_is_counted_wherever_it_waits() -> None:
    """What a stop loses is told of each subscription (decision 036)."""
    queue = queue_with(1)
    queue.put([(2, b"", 0, 0, LOGGED), (3, b"", 0, 0, LOGGED | SPILLED)])
    queue.hold_back((4, b"", 100, 0, SCHEDULED))
    queue.stranded[5] = Stranded((5, b"", 0, 0, 0), DeathReason.REJECTED, None)
    assert queue.volatile == 4


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
    queue.redelivery.seen.note(5)
    queue.forget(5)
    assert (queue.redelivery.delivery_count(5), queue.totals.max_delivery_count) == (0, 2)
    assert not queue.redelivery.seen, "else what comes later takes the slower path"


def test_a_queue_is_empty_at_its_end_but_for_what_is_in_flight() -> None:
    queue = queue_with(1, 2, 3)
    queue.ready.popleft()
    queue.in_flight += 1
    remains = Disposal()
    remains.add(*queue.end())
    assert (queue.depth, queue.depth_bytes, bool(remains)) == (1, 0, True)
    remains.free_slice()
    assert not remains
