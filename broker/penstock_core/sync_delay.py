"""Whether the next fdatasync waits a moment for the messages of those who were just answered.

On a disk whose fdatasync takes long, producers that wait for each accept fall into two halves: one is being synced
while the other comes, so that each message takes two fdatasyncs. If the log waits a part of an fdatasync's time for the
answered half to send again, all of them are in the next one.

Pure: the times and the numbers of answers come in as arguments. Source: docs/decisions/155-sync-delay.md.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MOST_ANSWERS", "SLOW_US", "SyncDelay"]

SLOW_US: Final = 300
"""Microseconds that an fdatasync takes at least, where waiting pays. On a faster disk the processor is what limits."""
MOST_US: Final = 1_000
"""Microseconds that the log waits at most."""
PART: Final = 2
"""It waits for what the last fdatasync took, divided by this."""
MOST_ANSWERS: Final = 1_000
"""With more answers than that the processor is the limit on every disk."""
LEAST_PAUSE: Final = 8
MOST_PAUSE: Final = 256
"""Fdatasyncs that begin at once after waiting was in vain: twice as many each time, up to this."""


class SyncDelay:
    """Of one log. `is_open`: the next fdatasync waits."""

    __slots__ = ("_expected", "_left_out", "_pause", "_until_us", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._expected = self._until_us = self._left_out = 0
        self._pause = LEAST_PAUSE

    def sync_ended(self, now_us: int, took_us: int, answered: int, waiting: int) -> None:
        """An fdatasync has ended, after `took_us` microseconds. `answered`: the answers that it allows. `waiting`:
        those that came since it began.
        """
        self.is_open = False
        if answered == 0 or answered + waiting > MOST_ANSWERS:
            return
        if self._left_out:
            self._left_out -= 1
            return
        self.is_open = True
        self._expected = answered + waiting
        self._until_us = now_us + min(took_us // PART, MOST_US)

    @property
    def expected(self) -> int:
        """How many answers wait once all are there that were answered last."""
        return self._expected

    def is_over(self, now_us: int, waiting: int) -> bool:
        """Whether the next fdatasync may begin. `waiting`: answers that wait for it, `expected` if there are more."""
        if waiting < self._expected and now_us < self._until_us:
            return False
        self.is_open = False
        if waiting * 4 >= self._expected * 3:
            self._pause = LEAST_PAUSE
        else:
            self._left_out = self._pause
            self._pause = min(2 * self._pause, MOST_PAUSE)
        return True
