"""Which segments a ledger deletes: by age first, then by size, oldest first, never the newest.

The limit of size is the setting, or what the volume offers if that is less. Pure. Source:
docs/reference/observer.md, "Retention".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock_api.ledger_format import SegmentName
from penstock_observer.observed_time import LONGEST_GAP_MS, observed_ages_ms
from penstock_observer.volume import VolumeSpace

__all__ = ["KeptSegment", "RetentionLimits", "allowed_bytes", "next_bytes", "surplus"]

NEXT_SEGMENTS: Final = 2
"""There is always room for so many segments of the size of the largest recent one."""

RECENT_SEGMENTS: Final = 8

LEAST_ROOM_SHARE: Final = 64
"""At least the volume's size divided by this is kept free."""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """How much a ledger keeps: milliseconds of age, and bytes."""

    age_ms: int
    bytes: int


@dataclass(frozen=True, slots=True)
class KeptSegment:
    """One segment as retention sees it."""

    name: SegmentName
    bytes: int
    first_ms: int
    last_ms: int


def surplus(
    segments: Iterable[KeptSegment], limits: RetentionLimits, now_ms: int, gap_ms: int = LONGEST_GAP_MS
) -> list[SegmentName]:
    """Names to delete, in order. The newest stays, however old or big: the next segment begins after its last seq.

    The age of a segment is the time that was observed after it (`observed_ages_ms`), so that a broker's clock that is
    set deletes nothing. `gap_ms`: what counts at most between two segments.
    """
    ordered = sorted(segments, key=lambda segment: segment.name)
    ages = observed_ages_ms([(segment.first_ms, segment.last_ms) for segment in ordered], now_ms, gap_ms)
    size = sum(segment.bytes for segment in ordered)
    gone: list[SegmentName] = []
    for segment, age_ms in zip(ordered[:-1], ages, strict=False):
        if age_ms <= limits.age_ms and size <= limits.bytes:
            break
        gone.append(segment.name)
        size -= segment.bytes
    return gone


def next_bytes(sizes: Sequence[int], space: VolumeSpace) -> int:
    """Room for the next segments, from the sizes of those that are there, in ledger order."""
    largest = max(sizes[-RECENT_SEGMENTS:], default=0)
    return max(NEXT_SEGMENTS * largest, space.total // LEAST_ROOM_SHARE)


def allowed_bytes(limits: RetentionLimits, space: VolumeSpace, ledger_bytes: int, wanted_bytes: int) -> int:
    """How many bytes of segments may stay: `limits.bytes`, or less, so that `wanted_bytes` of the volume are free.

    `ledger_bytes` are there now. What others write to the volume counts against the ledger, too.
    """
    return max(min(limits.bytes, ledger_bytes + space.free - wanted_bytes), 0)
