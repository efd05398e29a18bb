"""Which segments a ledger deletes: by age first, then by size, oldest first, never the newest.

Pure. Source: docs/reference/observer.md, "Retention".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock_api.ledger_format import SegmentName

__all__ = ["KeptSegment", "RetentionLimits", "surplus"]


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
    last_ms: int


def surplus(segments: Iterable[KeptSegment], limits: RetentionLimits, now_ms: int) -> list[SegmentName]:
    """Names to delete, in order. The newest stays, however old or big: the next segment begins after its last seq."""
    ordered = sorted(segments, key=lambda segment: segment.name)
    size = sum(segment.bytes for segment in ordered)
    gone: list[SegmentName] = []
    for segment in ordered[:-1]:
        if segment.last_ms >= now_ms - limits.age_ms and size <= limits.bytes:
            break
        gone.append(segment.name)
        size -= segment.bytes
    return gone
