"""Retention: age, then size, oldest first, never the newest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock_api.ledger_format import SegmentName
from penstock_observer.observed_time import LONGEST_GAP_MS, longest_gap_ms, observed_ages_ms
from penstock_observer.retention import KeptSegment, RetentionLimits, allowed_bytes, next_bytes, surplus
from penstock_observer.volume import VolumeSpace

NOW = 1_000_000


def kept(first: int, size: int = 10, last_ms: int = NOW, first_ms: int | None = None) -> KeptSegment:
    """A segment of ten rows, of one moment unless it began earlier."""
    name = SegmentName(first=first, last=first + 9, epoch=1)
    return KeptSegment(name, size, last_ms if first_ms is None else first_ms, last_ms)


def firsts(names: list[SegmentName]) -> list[int]:
    """What to compare by."""
    return [name.first for name in names]


def test_nothing_goes_within_the_limits() -> None:
    """Exactly at both limits is within."""
    assert surplus([kept(1, last_ms=NOW - 100), kept(11)], RetentionLimits(age_ms=100, bytes=20), NOW) == []


def test_too_old_goes() -> None:
    """One millisecond over."""
    segments = [kept(1, last_ms=NOW - 101), kept(11, last_ms=NOW - 100), kept(21)]
    assert firsts(surplus(segments, RetentionLimits(age_ms=100, bytes=1000), NOW)) == [1]


def test_too_big_goes_oldest_first() -> None:
    """Until the rest fits, whatever the order of the list."""
    assert firsts(surplus([kept(31), kept(1), kept(21), kept(11)], RetentionLimits(age_ms=10**9, bytes=25), NOW)) == [
        1,
        11,
    ]


def test_the_newest_stays_though_too_old_and_too_big() -> None:
    """It tells a restarted observer where seq goes on."""
    assert surplus([kept(1, size=99, last_ms=0)], RetentionLimits(age_ms=1, bytes=1), NOW) == []
    assert firsts(surplus([kept(1, last_ms=0), kept(11, last_ms=0)], RetentionLimits(age_ms=1, bytes=1), NOW)) == [1]


DAYS_MS = 3 * 24 * 3_600_000
HOUR_MS = 3_600_000
TWO_DAYS = RetentionLimits(age_ms=48 * HOUR_MS, bytes=1000)
SINCE_MS = 472_222 * HOUR_MS


def hours(number: int, count: int, ahead_ms: int = 0) -> list[KeptSegment]:
    """Segments of an hour each, which follow each other without a gap, from this hour on."""
    return [
        kept(10 * at + 1, 1, SINCE_MS + (at + 1) * HOUR_MS + ahead_ms, SINCE_MS + at * HOUR_MS + ahead_ms)
        for at in range(number, number + count)
    ]


def test_48_hours_are_kept_of_a_steady_clock() -> None:
    """Of 50 hours the last row of hour 1 is exactly 48 hours old."""
    there = hours(0, 50)
    assert firsts(surplus(there, TWO_DAYS, there[-1].last_ms)) == [1]


def test_a_clock_set_forward_by_days_deletes_nothing() -> None:
    """Nor does it when it is set back an hour later, nor for the hours that follow. Then the oldest go as ever; that of
    hour 2 is 48 hours old, and a minute that counts for the step.
    """
    before, ahead = hours(0, 40), hours(40, 1, DAYS_MS)
    assert surplus([*before, *ahead], TWO_DAYS, ahead[-1].last_ms) == []
    assert surplus(before, TWO_DAYS, before[-1].last_ms + DAYS_MS) == []
    after = hours(41, 10)
    assert surplus([*before, *ahead, *after[:7]], TWO_DAYS, after[6].last_ms) == []
    assert firsts(surplus([*before, *ahead, *after], TWO_DAYS, after[9].last_ms)) == [1, 11, 21]


def test_rows_from_the_future_go_like_all_others() -> None:
    """After 49 hours by a clock that was set back; and by bytes as ever."""
    ahead, after = hours(0, 1, DAYS_MS), hours(1, 50)
    assert surplus([*ahead, *after[:48]], TWO_DAYS, after[47].last_ms) == []
    assert firsts(surplus([*ahead, *after[:49]], TWO_DAYS, after[48].last_ms)) == [1]
    assert firsts(surplus([*ahead, *after[:9]], RetentionLimits(TWO_DAYS.age_ms, bytes=5), after[8].last_ms)) == [
        1, 11, 21, 31, 41,
    ]  # fmt: skip


def test_a_ledger_that_nobody_wrote_for_a_week_is_still_there() -> None:
    """Nor can a week be told from a clock that was set while no observer ran."""
    there = hours(0, 40)
    assert surplus(there, TWO_DAYS, there[-1].last_ms + 7 * 24 * HOUR_MS) == []


@given(
    steps=st.lists(st.tuples(st.integers(0, 30), st.integers(-(10**10), 10**10)), max_size=4),
    lengths=st.lists(st.integers(1, 3_600_000), min_size=1, max_size=30),
    gap_ms=st.integers(0, 60_000),
)
def test_an_age_is_never_off_by_more_than_a_gap_for_each_step(
    steps: list[tuple[int, int]], lengths: list[int], gap_ms: int
) -> None:
    """Whatever the steps are: each is made behind the segment of its number."""
    true: list[tuple[int, int]] = []
    for length in lengths:
        begin = true[-1][1] + gap_ms if true else SINCE_MS
        true.append((begin, begin + length))
    ahead = [sum(step for behind, step in steps if behind < at) for at in range(len(true))]
    shown = [(first + by, last + by) for (first, last), by in zip(true, ahead, strict=True)]
    ages = observed_ages_ms(shown)
    for at, (age, (_, last)) in enumerate(zip(ages, true, strict=True)):
        later = len({behind for behind, _ in steps if at <= behind < len(true) - 1})
        assert abs(age - (true[-1][1] - last)) <= later * LONGEST_GAP_MS
    assert observed_ages_ms([(0, 5), (10**9, 10**9 + 7)], None, longest_gap_ms(300_000)) == [600_007, 0]


def test_nothing_to_keep() -> None:
    """An empty ledger."""
    assert surplus([], RetentionLimits(age_ms=1, bytes=1), NOW) == []


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=12),
    limit=st.integers(1, 200),
)
def test_what_goes_is_a_prefix_and_no_more_than_needed(sizes: list[int], limit: int) -> None:
    """The rest fits, or only the newest is left; one segment less and it would not fit."""
    segments = [kept(1 + 10 * index, size) for index, size in enumerate(sizes)]
    gone = surplus(segments, RetentionLimits(age_ms=10**9, bytes=limit), NOW)
    rest = sizes[len(gone) :]
    assert gone == [segment.name for segment in segments[: len(gone)]]
    assert sum(rest) <= limit or len(rest) == 1
    assert not gone or sum(rest) + sizes[len(gone) - 1] > limit


MIB = 1024 * 1024


def test_a_volume_smaller_than_the_setting_is_the_limit() -> None:
    """512 MiB under a setting of 1 GiB: 400 of the ledger, 100 free, of which 70 have to stay free."""
    limits, space = RetentionLimits(age_ms=1, bytes=1024 * MIB), VolumeSpace(total=512 * MIB, free=100 * MIB)
    assert allowed_bytes(limits, space, 400 * MIB, 70 * MIB) == 430 * MIB


def test_the_setting_is_the_limit_of_a_large_volume() -> None:
    """10 GiB free."""
    limits, space = (
        RetentionLimits(age_ms=1, bytes=1024 * MIB),
        VolumeSpace(total=20 * 1024 * MIB, free=10 * 1024 * MIB),
    )
    assert allowed_bytes(limits, space, 900 * MIB, 70 * MIB) == 1024 * MIB


def test_a_volume_that_others_fill_leaves_nothing() -> None:
    """Never below 0."""
    limits = RetentionLimits(age_ms=1, bytes=1024 * MIB)
    assert allowed_bytes(limits, VolumeSpace(total=512 * MIB, free=0), 10 * MIB, 70 * MIB) == 0


def test_room_is_kept_for_two_segments_as_large_as_the_largest_recent_one() -> None:
    """An old large one does not count; at least a 64th of the volume."""
    space = VolumeSpace(total=64 * MIB, free=0)
    assert next_bytes([9 * MIB, *[MIB] * 3, 5 * MIB, *[MIB] * 4], space) == 10 * MIB
    assert next_bytes([], space) == MIB
