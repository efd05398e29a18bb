"""One count of everything that recovery goes through: it rises with each step, and never falls.

Who watches a start takes a count that stands still for a start that hangs (docs/decisions/026-probes.md). So bytes that
are read a second time count again, and so does what is done beside the reading of the segments.
"""

from __future__ import annotations

from penstock_broker.log.recovery.record_reader import Progress

__all__ = ["RecoveryProgress"]


class RecoveryProgress:
    """Tells `progress` what has been done, of how much in all."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._opened = 0
        self._before = 0
        """What was done before the reading that goes on, or beside it."""
        self._read = self._total = 0

    def opened(self) -> None:
        """A segment or a digest is opened; none has been gone through yet."""
        self._opened += 1
        self._progress(0, self._opened)

    def reading(self, read: int, total: int) -> None:
        """So many bytes of all segments are read."""
        self._read, self._total = read, total
        self._progress(self._before + read, self._before + total)

    def again(self) -> None:
        """The segments are read once more, from the first one."""
        self._before, self._read = self._before + self._read, 0

    def step(self) -> None:
        """Something else was done that may take a read or a sync: a body fetched, a segment made durable."""
        self._before += 1
        self.reading(self._read, self._total)

    def end(self, total: int) -> None:
        """Everything is read."""
        self.reading(total, total)
