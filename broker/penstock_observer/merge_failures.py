"""Which segments could not be merged, and when that is tried again.

What a segment says of itself does not change: it stays as it is. A disk that was full, or did not give a file, may be
better later; but each attempt reads many segments, so it is not made in every round. Pure. Source:
docs/reference/observer.md, "Retention".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from penstock_api.ledger_format import SegmentName

__all__ = ["REST_ROUNDS", "MergeFailures", "causes_of", "named"]

REST_ROUNDS: Final = 30
"""After a failure of the disk, segments are left alone for so many rounds: a quarter of an hour."""


def causes_of(names: Sequence[SegmentName], file: str | None) -> Sequence[SegmentName]:
    """Which of the segments a merge has failed of: the one of this file, or all if it is none of them."""
    return [name for name in names if str(name) == file] or names


def named(names: Sequence[SegmentName]) -> str:
    """How a sentence begins that is about these."""
    return f"segment {names[0]}" if len(names) == 1 else f"segments {names[0]} to {names[-1]}"


class MergeFailures:
    """The segments of one ledger that could not be merged."""

    def __init__(self) -> None:
        self._round = 0
        self._refused: set[SegmentName] = set()
        self.damaged: frozenset[SegmentName] = frozenset()
        """Segments that are listed, and part of which can't be read."""
        self._failed: dict[SegmentName, int] = {}  # the round in which each may be tried again

    def begin_round(self) -> None:
        """To be called each time that something may be merged."""
        self._round += 1

    def allow(self, name: SegmentName) -> bool:
        """Whether a segment may be merged in this round."""
        return name not in self._refused and self._failed.get(name, 0) <= self._round

    def refused(self, names: Iterable[SegmentName]) -> None:
        """Their contents cannot be merged: not before the observer starts again. Others are merged without them."""
        self._refused.update(names)

    def damage(self, names: Iterable[SegmentName]) -> None:
        """Part of these can't be read; to be called beside `refused`."""
        self.damaged |= frozenset(names)

    def failed(self, names: Iterable[SegmentName]) -> bool:
        """The disk failed; whether that is new for one of them, and so is to be told."""
        due = dict.fromkeys(names, self._round + REST_ROUNDS)
        is_new = not due.keys() <= self._failed.keys()
        self._failed |= due
        return is_new

    def forget(self, name: SegmentName) -> None:
        """The segment is gone."""
        self._refused.discard(name)
        self.damaged -= {name}
        self._failed.pop(name, None)
