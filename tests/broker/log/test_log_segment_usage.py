"""Which segment is dead: the counts, and each reason to keep one."""

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

from penstock_broker.log.segments.segment import Segment, Tally
from penstock_broker.log.segments.segment_usage import SegmentUsage

QUEUE, OTHER = 11, 12
ALL = 1 << 60  # every block is synced, every topology restated later


def usage_of(*first_messages: int) -> SegmentUsage:
    """Segments 1, 2, 3... whose puts begin at these messages."""
    result = SegmentUsage()
    for number, first in enumerate(first_messages, 1):
        result.add_segment(Segment(number, Path(f"{number}"), number, 16384, 4096, first))
    result.begin_queue(QUEUE)
    result.begin_queue(OTHER)
    return result


def put(usage: SegmentUsage, segment: int, messages: Sequence[int], *queues: int) -> None:
    usage.put(usage.by_number[segment], queues or (QUEUE,), messages)


def recyclable(usage: SegmentUsage, kept_from: int = ALL, synced: int = ALL) -> int | None:
    segment = usage.recyclable(kept_from, synced)
    return None if segment is None else segment.number


def calls_in(work: Callable[[], None]) -> int:
    """How many functions were called."""
    called = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal called
        called += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return called


class Body:
    """What a large message names."""

    def __init__(self) -> None:
        self.segments: dict[Segment, int] = {}


def test_the_end_of_an_empty_queue_costs_the_same_beside_many_large_messages() -> None:
    costs: list[int] = []
    for large in (1, 1000):
        state = usage_of(1)
        put(state, 1, range(1, large + 1))
        for message in range(1, large + 1):
            state.hold_body(message, (QUEUE,), Body())
        costs.append(calls_in(partial(state.end_queue, OTHER, 5)))
        assert 1 in state.in_parts
        state.end_queue(QUEUE, 6)
        assert 1 not in state.in_parts
    assert costs[0] == costs[1]


def test_a_segment_is_dead_when_its_last_message_is_gone() -> None:
    state = usage_of(1, 10)
    put(state, 1, [1, 2, 3])
    assert state.ack(QUEUE, [1, 3], 5) == {1}
    assert recyclable(state) is None
    state.ack(QUEUE, [2], 6)
    assert (recyclable(state), state.died) == (1, 3)


def test_every_queue_must_have_let_go() -> None:
    state = usage_of(1, 10)
    put(state, 1, [1, 2], QUEUE, OTHER)
    assert (state.by_number[1].put_places, state.by_number[1].last_message) == (4, 2)
    state.ack(QUEUE, [1, 2], 5)
    assert recyclable(state) is None
    state.end_queue(OTHER, 6)
    assert recyclable(state) == 1


def test_the_segment_being_written_is_never_dead() -> None:
    assert recyclable(usage_of(1)) is None


def test_a_segment_stays_until_the_block_that_emptied_it_is_synced() -> None:
    state = usage_of(1, 10)
    put(state, 1, [1])
    assert not state.awaits_sync(ALL, 4)
    state.ack(QUEUE, [1], 5)
    assert (recyclable(state, synced=4), state.awaits_sync(ALL, 4)) == (None, True)
    assert (recyclable(state, synced=5), state.awaits_sync(ALL, 5)) == (1, False)


def test_the_same_for_a_queue_that_ended() -> None:
    state = usage_of(1, 10)
    put(state, 1, [1])
    state.end_queue(QUEUE, 5)
    assert recyclable(state, synced=4) is None
    assert recyclable(state, synced=5) == 1


def test_topology_keeps_a_segment_until_a_later_checkpoint() -> None:
    state = usage_of(1, 10, 20)
    assert recyclable(state, kept_from=1) is None
    assert recyclable(state, kept_from=2) == 1


def test_acks_keep_their_segment_while_a_put_they_name_is_there() -> None:
    state = usage_of(1, 10, 20)
    put(state, 1, [1, 2])
    put(state, 2, [10])
    state.by_number[2].acks_into |= state.ack(QUEUE, [1], 5)
    state.ack(QUEUE, [10], 6)
    assert recyclable(state) is None
    state.ack(QUEUE, [2], 7)
    assert recyclable(state) == 1
    state.remove_segment(state.by_number[1])
    assert recyclable(state) == 2


def test_acks_of_one_batch_find_their_segments() -> None:
    state = usage_of(1, 10, 20)
    put(state, 1, [1, 9])
    put(state, 2, [10, 19])
    put(state, 3, [20])
    assert state.ack(QUEUE, [1, 9, 10, 20], 5) == {1, 2, 3}
    assert [segment.live for segment in state.segments] == [0, 1, 0]


def test_a_copy_out_of_order_is_counted_where_it_lies() -> None:
    state = usage_of(1, 10)
    state.locate([(5, 2)], 10)
    state.restore(QUEUE, [5], 2)
    state.restore(OTHER, [5], 2)
    assert [segment.live for segment in state.segments] == [0, 2]
    assert state.ack(QUEUE, [5], 9) == {2}
    assert state.ack(OTHER, [5], 9) == {2}
    assert [segment.live for segment in state.segments] == [0, 0]


def test_stretches_of_recovered_messages_count_as_each_of_them_would(caplog: pytest.LogCaptureFixture) -> None:
    """So acks that come later find nothing wrong, and the segment is free in this run already."""
    state = usage_of(1, 10)
    state.restore_run(QUEUE, [2, 6], [4, 6], 1)
    restored = state.by_number[1]
    assert (state.queues[QUEUE], restored.live, restored.put_places) == ({1: Tally(4, 2 + 3 + 4 + 6)}, 4, 4)
    assert (restored.last_message, restored.largest_put) == (6, restored.size)
    state.ack(QUEUE, [2, 3], 5)
    state.ack(QUEUE, [4, 6], 6)
    assert (recyclable(state), caplog.text) == (1, "")


def test_where_copies_came_from_is_forgotten_with_that_segment() -> None:
    """A message that stays is copied again and again for years: its segment must not name all that it has lain in."""
    state = usage_of(1, 10, 20)
    put(state, 1, [1])
    state.move(state.by_number[1], state.by_number[2], (1, 1), {QUEUE: Tally(1, 1)}, 5)
    assert state.by_number[2].copied_from == {1}
    state.remove_segment(state.by_number[1])
    assert state.by_number[2].copied_from == set()
    assert state.ack(QUEUE, [1], 6) == {2}


def test_acks_of_a_queue_that_ended_change_nothing() -> None:
    state = usage_of(1, 10)
    put(state, 1, [1], QUEUE, OTHER)
    state.end_queue(QUEUE, 5)
    assert state.ack(QUEUE, [1], 6) == set()
    assert state.by_number[1].live == 1


def test_a_message_acknowledged_twice_costs_space_and_no_other_message(caplog: pytest.LogCaptureFixture) -> None:
    state = usage_of(1, 10)
    put(state, 1, [1, 2])
    state.ack(QUEUE, [1], 5)
    with caplog.at_level(logging.ERROR):
        state.ack(QUEUE, [1], 6)
    assert recyclable(state) is None
    assert "acknowledged twice" in caplog.text


class Looks(list[Segment]):
    """Counts how many segments are looked at."""

    looked = 0

    def __iter__(self) -> Iterator[Segment]:
        for each in super().__iter__():
            self.looked += 1
            yield each


def test_segments_are_looked_at_again_only_when_something_has_changed() -> None:
    state = usage_of(1, 10, 20)
    put(state, 1, [1, 2])
    put(state, 2, [10, 11])
    state.ack(QUEUE, [1, 2], 7)
    looks = Looks(state.segments)
    state.segments = looks
    assert recyclable(state, synced=6) is None
    assert looks.looked == 3
    state.ack(QUEUE, [10], 8)
    assert (recyclable(state, synced=6), looks.looked) == (None, 3)
    assert (recyclable(state, synced=7), looks.looked) == (1, 4)  # block 7 emptied it
    state.remove_segment(state.by_number[1])
    looks.looked = 0
    assert (recyclable(state, synced=7), looks.looked) == (None, 2)
    state.ack(QUEUE, [11], 9)
    assert (recyclable(state, synced=9), looks.looked) == (2, 3)


def whole(usage: SegmentUsage) -> tuple[object, ...]:
    """All that acks change."""
    segments = [(each.live, each.released_by, each.miscounted) for each in usage.segments]
    tallies = {
        queue: {number: (tally.count, tally.total) for number, tally in found.items()}
        for queue, found in usage.queues.items()
    }
    return segments, tallies, usage.died, usage.emptied, usage.emptied_by


@pytest.mark.parametrize(
    "acks",
    [
        pytest.param([(QUEUE, [1, 2]), (OTHER, [1, 2])], id="the same messages of two queues"),
        pytest.param([(QUEUE, [1, 2, 3, 9]), (OTHER, [2, 3])], id="all of one queue in a segment, some of another"),
        pytest.param([(QUEUE, [9, 10, 11]), (OTHER, [9, 10, 11]), (QUEUE, [1])], id="over two segments"),
        pytest.param([(QUEUE, [10]), (OTHER, [1, 2, 3, 9]), (QUEUE, [1, 2, 3, 9])], id="a segment becomes empty"),
        pytest.param([(QUEUE, [2]), (OTHER, [3]), (99, [1]), (OTHER, [1])], id="a queue that is not there"),
        pytest.param([(QUEUE, [5]), (OTHER, [1])], id="a copy that lies elsewhere"),
        pytest.param([(QUEUE, [10]), (OTHER, [10])], id="a segment that has copies, and no other"),
        pytest.param([(QUEUE, [1, 2, 3, 9]), (QUEUE, [2])], id="one message twice"),
        pytest.param([(QUEUE, [1, 2]), (QUEUE, [1, 2]), (OTHER, [10])], id="the same messages of a queue twice"),
    ],
)
def test_acks_of_several_queues_count_as_one_by_one(acks: list[tuple[int, list[int]]]) -> None:
    def made() -> SegmentUsage:
        state = usage_of(1, 10, 20)
        state.locate([(1, 1), (2, 1), (3, 1), (5, 2), (9, 1), (10, 2), (11, 2), (20, 3)], 21)
        put(state, 1, [1, 2, 3, 9], QUEUE, OTHER)
        put(state, 2, [5, 10, 11], QUEUE, OTHER)
        state.by_number[2].copied_from = {1}
        return state

    together, single = made(), made()
    named: set[int] = set()
    for queue, messages in acks:
        named |= single.ack(queue, messages, 7)
    assert together.ack_all(acks, 7) == named
    assert whole(together) == whole(single)


def test_a_body_counts_once_in_each_segment_that_has_parts_of_it_and_leaves_with_the_last_one() -> None:
    state = usage_of(1, 10, 20)
    one, two, newest = state.segments
    emptied = state.emptied
    segments: dict[Segment, int] = {}

    def counts(segment: Segment) -> tuple[int, int, float]:
        assert segment.alive_bytes == segment.body_bytes, "there is nothing else in it"
        return segment.live, segment.bodies, segment.alive_bytes

    for length in (100, 50):
        state.place_part(segments, one, length)
    assert counts(one) == (1, 1, 150)
    state.move_part(segments, one, two, 100)
    assert (counts(one), counts(two)) == ((1, 1, 50), (1, 1, 100))
    state.move_part(segments, one, two, 50)
    assert (counts(one), counts(two), segments) == ((0, 0, 0), (1, 1, 150), {two: 150})
    state.release_body(segments)
    assert (counts(two), segments, state.emptied - emptied) == ((0, 0, 0), {}, 2)
    state.place_part(segments, newest, 10)
    state.release_body(segments)
    assert (counts(newest), state.emptied - emptied) == ((0, 0, 0), 2), "more may come into the newest one"


def test_a_compaction_hears_of_acks_of_several_queues_too() -> None:
    state = usage_of(1, 10)
    put(state, 1, [1, 2], QUEUE, OTHER)
    heard: list[tuple[int, list[int]]] = []
    state.watch = lambda queue, messages: heard.append((queue, list(messages)))
    state.ack_all([(QUEUE, [1, 2]), (OTHER, [2])], 5)
    assert heard == [(QUEUE, [1, 2]), (OTHER, [2])]


def test_a_compaction_that_has_a_tally_finds_nothing_in_it_when_all_has_left() -> None:
    state = usage_of(1, 10)
    put(state, 1, [1, 2])
    tally = state.queues[QUEUE][1]
    state.ack_all([(QUEUE, [1, 2])], 5)
    assert (tally.count, tally.total) == (0, 0)


def test_that_the_newest_segment_is_empty_counts_when_the_next_begins() -> None:
    state = usage_of(1)
    put(state, 1, [1, 2])
    state.ack_all([(QUEUE, [1, 2])], 5)
    assert (state.emptied, recyclable(state)) == (0, None)
    state.add_segment(Segment(2, Path("2"), 2, 16384, 4096, 3))
    assert (state.emptied, state.emptied_by) == (1, 5)
    put(state, 2, [3])
    state.add_segment(Segment(3, Path("3"), 3, 16384, 4096, 4))
    assert state.emptied == 1, "3 is still in the second"
    assert recyclable(state, synced=4) is None
    assert recyclable(state, synced=5) == 1
