"""Retention: age, then size, oldest first, never the newest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock_api.ledger_format import SegmentName
from penstock_observer.retention import KeptSegment, RetentionLimits, allowed_bytes, next_bytes, surplus
from penstock_observer.volume import VolumeSpace

NOW = 1_000_000


def kept(first: int, size: int = 10, last_ms: int = NOW) -> KeptSegment:
    """A segment of ten rows."""
    return KeptSegment(SegmentName(first=first, last=first + 9, epoch=1), size, last_ms)


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
