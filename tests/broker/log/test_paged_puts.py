"""Messages without bodies while a log is read: what each queue has left, by hand."""

from __future__ import annotations

from penstock_broker.log.format.route_sets import ReachedQueues
from penstock_broker.log.recovery.paged_puts import Batch, LiveRun, PagedPuts, RunChain

BOTH = ReachedQueues((7, 8))


def paged(*segments: tuple[int, range]) -> PagedPuts:
    """Messages in both queues; each is as many bytes long as the last two digits of its number say."""
    puts = PagedPuts()
    for segment, numbers in segments:
        puts.extend(segment, BOTH, list(numbers), [number % 100 for number in numbers], 1000 + numbers[0], 0)
    return puts


def live(puts: PagedPuts, incarnation: int) -> list[tuple[list[tuple[int, int]], int, int]]:
    """By batch: stretches, how many messages, how many bytes."""
    runs = [puts.live(batch, incarnation) for batch in puts.batches]
    return [(list(zip(run.firsts, run.lasts, strict=True)), run.messages, run.bytes) for run in runs]


def test_each_queue_has_what_it_has_not_acknowledged() -> None:
    puts = paged((1, range(10, 20)))
    assert puts.ack(7, range(10, 13)) == {1}
    assert puts.ack(7, [15, 17]) == {1}
    assert live(puts, 7) == [([(13, 14), (16, 16), (18, 19)], 5, 13 + 14 + 16 + 18 + 19)]
    assert live(puts, 8) == [([(10, 19)], 10, sum(range(10, 20)))]
    assert (puts.holds(7, 15), puts.holds(8, 15), puts.holds(9, 15), puts.holds(8, 20)) == (False, True, False, False)


def test_queues_that_have_acknowledged_nothing_share_what_is_known() -> None:
    puts = paged((1, range(10, 20)))
    (batch,) = puts.batches
    assert puts.live(batch, 7) is puts.live(batch, 8)


def test_acks_name_the_segments_of_their_messages() -> None:
    puts = paged((1, range(10, 20)), (2, range(20, 30)), (3, range(40, 50)))
    assert puts.ack(7, range(15, 25)) == {1, 2}
    assert puts.ack(7, range(28, 41)) == {2, 3}
    assert puts.ack(8, [100]) == set()


def test_a_later_put_takes_the_place_of_one_that_was_read() -> None:
    puts = paged((1, range(10, 20)))
    puts.ack(7, [12])
    assert puts.take(12) == (1, (8,))
    assert puts.take(12) is None
    assert puts.take(99) is None
    assert live(puts, 8) == [([(10, 11), (13, 19)], 9, sum(range(10, 20)) - 12)]


def test_copies_lie_where_they_were_written_last() -> None:
    puts = paged((5, range(50, 60)))
    puts.extend(6, BOTH, [3, 4, 9], [1, 1, 1], 1, 0, is_copied=True)
    puts.extend(6, BOTH, [60, 61], [1, 1], 2, 0)
    assert [batch.is_copied for batch in puts.batches] == [False, True, False]
    assert list(puts.copies()) == [(3, 4, 6), (9, 9, 6)]
    assert (puts.segment_of(4), puts.segment_of(5), puts.segment_of(61)) == (6, 0, 6)
    assert puts.ack(7, [4]) == {6}
    assert puts.take(9) == (6, (7, 8))
    assert list(puts.copies()) == [(3, 4, 6)]


def test_copies_that_come_behind_higher_numbers_of_their_segment_are_found() -> None:
    """Nothing is left of what was before: the first copy looks like a new message, and so do those behind it."""
    puts = paged((14, range(100, 104)), (14, range(9, 12)), (15, range(104, 110)), (14, range(60, 61)))
    assert [puts.segment_of(number) for number in (9, 11, 60, 100, 104)] == [14, 14, 14, 14, 15]
    assert puts.ack(7, [10]) == {14}
    assert puts.take(9) == (14, (7, 8))
    assert puts.take(10) == (14, (8,))


def run(*numbers: range, expires: int = 0, arrival: int = 500) -> LiveRun:
    batch = Batch(1, BOTH, is_copied=False)
    for each in numbers:
        batch.extend(list(each), [10] * len(each), arrival, expires)
    return PagedPuts().live(batch, 7)


def test_runs_that_follow_each_other_become_one() -> None:
    chain = RunChain()
    for each in (run(range(1, 5)), run(range(5, 9), range(20, 22))):
        chain.add(each)
    (found,) = chain.ascending()
    assert (list(found.firsts), list(found.lasts), found.messages, found.bytes) == ([1, 20], [8, 21], 10, 100)


def test_a_run_begins_when_the_first_of_its_messages_came_although_the_clock_was_put_back() -> None:
    """From then on the `maxTtlMs` of a queue is counted."""
    chain = RunChain()
    for each in (run(range(1, 5), arrival=900), run(range(5, 9), arrival=300), run(range(9, 12), arrival=400)):
        chain.add(each)
    assert [(each.messages, each.arrival) for each in chain.ascending()] == [(11, 300)]


def test_runs_of_which_a_message_expires_stay_apart() -> None:
    chain = RunChain()
    for each in (run(range(1, 5), expires=900), run(range(5, 9)), run(range(9, 12), expires=800)):
        chain.add(each)
    assert [(each.messages, each.expires) for each in chain.ascending()] == [(4, 900), (4, 0), (3, 800)]


def test_runs_whose_numbers_lie_between_each_others_become_one() -> None:
    chain = RunChain()
    for each in (run(range(10, 12), range(20, 22)), run(range(1, 2), range(15, 16), expires=700), run(range(30, 31))):
        chain.add(each)
    first, last = chain.ascending()
    assert (list(first.firsts), list(first.lasts)) == ([1, 10, 15, 20], [1, 11, 15, 21])
    assert (first.messages, first.bytes, first.expires) == (6, 60, 700)
    assert last.firsts[0] == 30
