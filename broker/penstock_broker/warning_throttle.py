"""Bounds the warnings in the broker's log, so that clients can't fill the volume that holds it.

`warn` is for what clients cause without having logged in: some warnings a second, and a count of the others. `may_warn`
is for what may happen with each message: once a minute for each subject. Must not know the clock: it is an argument.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

__all__ = ["WarningThrottle"]

logger = logging.getLogger(__name__)

PER_SECOND: Final = 20
PAUSE_MS: Final = 60_000
MOST_SUBJECTS: Final = 1000


class WarningThrottle:
    """Of one broker."""

    __slots__ = ("_last_ms", "_left_out", "_now_ms", "_second", "_written")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms`: milliseconds of the monotonic clock."""
        self._now_ms = now_ms
        self._second = 0
        self._written = 0
        self._left_out = 0
        self._last_ms: dict[str, int] = {}
        """When `may_warn` last allowed a warning, by subject."""

    def warn(self, text: str, *arguments: object) -> None:
        """Log a warning, or count it if there were `PER_SECOND` of them in this second."""
        second = self._now_ms() // 1000
        if second != self._second:
            if self._left_out:
                logger.warning("%d more warnings of this kind were left out", self._left_out)
            self._second, self._written, self._left_out = second, 0, 0
        if self._written >= PER_SECOND:
            self._left_out += 1
            return
        self._written += 1
        logger.warning(text, *arguments)

    def may_warn(self, subject: str) -> bool:
        """True if there was no warning about `subject` for `PAUSE_MS`; then the caller logs one."""
        now_ms = self._now_ms()
        last_ms = self._last_ms.get(subject)
        if last_ms is not None and now_ms - last_ms < PAUSE_MS:
            return False
        if len(self._last_ms) >= MOST_SUBJECTS:
            self._last_ms.clear()
        self._last_ms[subject] = now_ms
        return True
