"""Which segments are merged and which polls stay."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_api.ledger_format import SegmentName
from penstock_observer.merge_plan import LARGEST_BYTES, LoggedPoll, Mergeable, contained, kept_polls, plan_merge

MINUTE = 60_000
HOUR = 60 * MINUTE
NOON = 472_222 * HOUR


def segment(number: int, minute: int, *, epoch: int = 3, thinned: bool = False, size: int = 1000) -> Mergeable:
    """The segment of ten rows that begins so many minutes after noon and lasts 50 s."""
    first_ms = NOON + minute * MINUTE
    name = SegmentName(first=number * 10 + 1, last=number * 10 + 10, epoch=epoch)
    return Mergeable(name, size, first_ms, first_ms + 50_000, thinned)


def hours_until(minute: int) -> Mergeable:
    """A merged segment that begins an hour after noon and ends 50 s after this minute; it is never due itself."""
    name = SegmentName(first=501, last=510, epoch=3)
    return Mergeable(name, 1000, NOON + HOUR, NOON + minute * MINUTE + 50_000, thinned=True)


def numbers(segments: list[Mergeable]) -> list[int]:
    """What to compare by."""
    return [each.name.first // 10 for each in segments]


def test_nothing_is_merged_before_it_is_a_quarter_of_an_hour_old() -> None:
    """The segment of 12:14 ends at 12:14:50, so 12:29:50 is the first moment."""
    block = [segment(minute, minute) for minute in range(15)]
    late = [segment(minute, minute) for minute in range(15, 30)]
    assert numbers(plan_merge([*block, *late[:-1]])) == []
    assert numbers(plan_merge([*block, *late])) == list(range(15))


def test_a_merge_has_one_epoch_one_block_and_no_gap() -> None:
    """A restart at number 3, lost rows between 4 and 6, the next quarter at 7."""
    places = [(0, 1, 3), (1, 2, 3), (2, 3, 3), (3, 4, 4), (4, 5, 4), (6, 7, 4), (7, 15, 4), (8, 16, 4)]
    there = [*(segment(number, minute, epoch=epoch) for number, minute, epoch in places), hours_until(300)]
    found: list[list[int]] = []
    while merged := plan_merge(there):
        found.append(numbers(merged))
        there = [each for each in there if each not in merged]
    assert found == [[0, 1, 2], [3, 4], [6], [7, 8]]


def test_quarters_become_an_hour_when_all_are_two_hours_old() -> None:
    """After 12:45:50 a minute counts until 13:00, because nobody polled; 14:59:00 would be two hours after it."""
    quarters = [segment(number, 15 * number, thinned=True) for number in range(4)]
    assert plan_merge([*quarters, hours_until(177)]) == []
    assert numbers(plan_merge([*quarters, hours_until(179)])) == [0, 1, 2, 3]


def test_what_is_merged_already_is_left_alone() -> None:
    """One thinned segment, however old."""
    assert plan_merge([segment(0, 0, thinned=True), segment(1, 600, thinned=True)]) == []


def test_a_merged_segment_is_never_too_large() -> None:
    """Two of half the bound fit, the third does not."""
    quarters = [segment(number, 15 * number, thinned=True, size=LARGEST_BYTES // 2) for number in range(4)]
    assert numbers(plan_merge([*quarters, hours_until(600)])) == [0, 1]


DAYS = 3 * 24 * HOUR


@pytest.mark.parametrize(("step_ms", "minutes"), [(DAYS, 15), (-DAYS, 16)])
def test_a_clock_that_is_set_makes_nothing_old(step_ms: int, minutes: int) -> None:
    """By three days, ten seconds after 12:10:50. What was before is thinned when a quarter of an hour was observed
    after it: 14 min 50 s and a minute for the step forward, or 15 min 50 s and nothing for the step back.
    """
    before = [segment(minute, minute) for minute in range(11)]

    def after(minutes: int) -> list[Mergeable]:
        later = [segment(11 + minute, 11 + minute) for minute in range(minutes)]
        return [replace(each, first_ms=each.first_ms + step_ms, last_ms=each.last_ms + step_ms) for each in later]

    assert plan_merge([*before, *after(minutes - 1)]) == []
    assert numbers(plan_merge([*before, *after(minutes)])) == list(range(11))


def test_after_a_clock_was_set_forward_and_back_new_segments_wait_as_ever() -> None:
    """One segment has times three days ahead."""
    ahead = replace(segment(0, 0), first_ms=NOON + DAYS, last_ms=NOON + DAYS + 50_000)
    assert plan_merge([ahead, *(segment(1 + minute, minute) for minute in range(10))]) == []
    assert numbers(plan_merge([ahead, *(segment(1 + minute, minute) for minute in range(16))])) == [0]


def poll(seq: int, second: int, complete: bool = True) -> LoggedPoll:
    """A poll so many seconds after noon."""
    return LoggedPoll(seq, NOON + second * 1000, complete)


def test_the_last_complete_poll_of_each_minute_stays() -> None:
    """11 is after 10 but not complete; the minute of 21 has no complete one; 31 is the last of all, 8 the first."""
    polls = [poll(7, 20, False), poll(8, 30), poll(9, 40), poll(10, 50), poll(11, 59, False)]
    polls += [poll(20, 60, False), poll(21, 70, False), poll(29, 121), poll(30, 125), poll(31, 130, False)]
    assert kept_polls(polls) == {8, 10, 21, 30, 31}


def test_the_first_complete_poll_of_each_data_folder_and_start_stays() -> None:
    """The broker's volume was replaced within the minute, and then by a backup of itself."""
    polls = [LoggedPoll(seq, NOON + seq, True, "i-1" if seq < 4 else "i-2", 5 + seq // 6) for seq in range(1, 9)]
    assert kept_polls(polls) == {1, 4, 6, 8}


@given(st.lists(st.tuples(st.integers(0, 600), st.booleans()), min_size=1, max_size=60), st.integers(1, 59))
def test_to_thin_in_steps_keeps_what_is_kept_at_once(found: list[tuple[int, bool]], cut: int) -> None:
    """First two parts, then both together, in which the polls that went are marked as not complete."""
    polls = [poll(at, second, complete) for at, (second, complete) in enumerate(found)]
    parts = [part for part in (polls[:cut], polls[cut:]) if part]
    steps = frozenset[int]().union(*(kept_polls(part) for part in parts))
    marked = [poll(at, second, complete and at in steps) for at, (second, complete) in enumerate(found)]
    complete = {each.seq for each in polls if each.complete}
    assert kept_polls(polls) & complete <= kept_polls(marked)


def test_what_a_merge_has_left_behind_is_known_by_its_name() -> None:
    """All inputs of 1-30; not what follows, and not a segment of another epoch."""
    whole = SegmentName(first=1, last=30, epoch=3)
    inputs = [SegmentName(first=first, last=first + 9, epoch=3) for first in (1, 11, 21)]
    others = [SegmentName(first=31, last=40, epoch=3)]
    assert contained([*inputs, whole, *others]) == inputs
    assert contained([*inputs, *others]) == []
