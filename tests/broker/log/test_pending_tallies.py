"""Messages for very many queues are counted in each of these later, and nobody can tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.log.segments import segment_usage
from penstock_broker.log.segments.pending_tallies import PendingTallies, Share
from penstock_broker.log.segments.segment import Segment, Tally
from penstock_broker.log.segments.segment_usage import SegmentUsage

QUEUES = (11, 12, 13, 14, 15)
ALL = 1 << 60


def usage() -> SegmentUsage:
    made = SegmentUsage()
    for number, first in ((1, 1), (2, 100), (3, 200)):
        made.add_segment(Segment(number, Path(f"{number}"), number, 16384, 4096, first))
    for queue in QUEUES:
        made.begin_queue(queue)
    return made


def test_shares_come_a_few_at_a_time_and_each_once() -> None:
    pending = PendingTallies()
    assert pending.add(1, QUEUES, dict.fromkeys((11, 12, 13, 14)).keys(), 2, 7) == 4
    first = list(pending.take(3))
    assert len(first) == 3
    rest = list(pending.take(3))
    assert sorted(first + rest) == [Share(queue, 1, 2, 7) for queue in (11, 12, 13, 14)]
    assert not pending.spreads


def test_messages_for_the_same_queues_are_counted_together_unless_that_has_begun() -> None:
    pending = PendingTallies()
    pending.add(1, QUEUES, dict.fromkeys(QUEUES).keys(), 1, 5)
    pending.add(1, QUEUES, dict.fromkeys(QUEUES).keys(), 1, 6)
    assert list(pending.of_queue(12)) == [Share(12, 1, 2, 11)]
    pending.add(1, QUEUES, dict.fromkeys(QUEUES).keys(), 1, 7)
    assert list(pending.of_queue(12)) == [Share(12, 1, 1, 7)]
    assert sorted(pending.of_queue(13)) == [Share(13, 1, 1, 7), Share(13, 1, 2, 11)]


def test_messages_for_other_queues_are_counted_in_these() -> None:
    """Else acks would find counts that say something else, and the segments would be kept until the next start."""
    pending = PendingTallies()
    pending.add(1, QUEUES[:2], dict.fromkeys(QUEUES).keys(), 1, 5)
    assert pending.add(1, QUEUES[2:], dict.fromkeys(QUEUES).keys(), 2, 13) == 3
    found = [share for _ in range(5) for share in pending.take(1)]
    assert sorted(found) == [
        *(Share(each, 1, 1, 5) for each in (11, 12)),
        *(Share(each, 1, 2, 13) for each in (13, 14, 15)),
    ]


def test_shares_of_a_segment_leave_those_of_others() -> None:
    pending = PendingTallies()
    pending.add(1, QUEUES, dict.fromkeys(QUEUES).keys(), 1, 5)
    pending.add(2, QUEUES, dict.fromkeys(QUEUES).keys(), 1, 100)
    assert {share.segment for share in pending.of_segment(1)} == {1}
    assert sorted(share.incarnation for share in pending.take(100)) == list(QUEUES)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), max_size=30))
def test_whatever_is_asked_in_between_the_counts_are_those_of_one_who_counts_at_once(
    steps: list[tuple[int, int]],
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        late = usage()
        early = usage()
        route = QUEUES[:4]
        number = 0
        alive: list[tuple[int, int]] = []
        for kind, which in steps:
            if kind <= 1 and number < 290:
                number += 1
                for each, most in ((late, 2), (early, 1000)):
                    patched.setattr(segment_usage, "MOST_AT_ONCE", most)
                    each.put(each.by_number[1 + number // 100], route, [number])
                alive += [(queue, number) for queue in route if queue in late.queues]
            elif kind == 2 and alive:
                queue, message = alive.pop(which % len(alive))
                assert late.ack(queue, [message], number) == early.ack(queue, [message], number)
            elif kind == 3:
                late.count_pending(which)
            elif kind == 4 and which < 4 and len(late.queues) > 2:
                queue = route[which]
                alive = [each for each in alive if each[0] != queue]
                late.end_queue(queue, number)
                early.end_queue(queue, number)
            assert [each.live for each in late.segments] == [each.live for each in early.segments]
            assert late.recyclable(ALL, ALL) is None or early.recyclable(ALL, ALL) is not None
        for segment in late.segments:
            late.count_segment(segment)
        assert late.queues == early.queues
        assert not any(each.miscounted for each in late.segments)


def test_a_turn_counts_in_so_many_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_usage, "MOST_AT_ONCE", 2)
    made = usage()
    made.put(made.by_number[1], QUEUES, [1, 2])
    assert (made.by_number[1].live, made.by_number[1].put_places) == (10, 10)
    counted: list[int] = []
    for _ in range(3):
        made.count_pending(2)
        counted.append(sum(Tally(2, 3) in tallies.values() for tallies in made.queues.values()))
    assert counted == [2, 4, 5]
