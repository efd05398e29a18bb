"""How old parts of the ledger are by the time that was observed after them, whatever the broker's clock shows.

An age that is a difference of two times of the broker's clock lies when the clock is set: three days forward, and the
whole ledger looks too old. Within a segment the clock was not set, so what its first and last row differ by has passed.
Between two segments the clock may have been set, or no observer may have run: there a short time counts as it is, a
long one as the longest that lies between two polls, and a negative one as nothing. So an age is never more than the
true one by more than that for each step of the clock, and a part whose times are yet to come ages like all others.

Pure. Source: docs/reference/observer.md, "Retention"; docs/decisions/063-ledger.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["LONGEST_GAP_MS", "TimeSpan", "longest_gap_ms", "observed_ages_ms"]

LONGEST_GAP_MS: Final = 60_000
"""Counted at most of the time between two segments, unless polls are rarer than twice a minute."""

TimeSpan = tuple[int, int]
"""Times of the first and the last row, milliseconds of the broker's clock."""


def longest_gap_ms(interval_ms: int) -> int:
    """What counts at most between two segments, if polls are so far apart."""
    return max(LONGEST_GAP_MS, 2 * interval_ms)


def observed_ages_ms(spans: Sequence[TimeSpan], now_ms: int | None = None, gap_ms: int = LONGEST_GAP_MS) -> list[int]:
    """For each span, in the order of the ledger, how much time was observed after its last row: up to `now_ms`, or up
    to the last row of all.
    """
    ages: list[int] = []
    age = 0
    later_ms = now_ms
    for first_ms, last_ms in reversed(spans):
        if later_ms is not None:
            age += min(max(later_ms - last_ms, 0), gap_ms)
        ages.append(age)
        age += max(last_ms - first_ms, 0)
        later_ms = first_ms
    return ages[::-1]
