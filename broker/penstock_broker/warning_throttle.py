"""Bounds the lines in the broker's log that clients cause, so that they can't fill the volume that holds it.

`warn` is for what clients cause by connecting: some lines a second, and a count of the others, which `flush` tells
when no further line comes. `may_warn` is for what may happen with each message: once a minute for each subject. Must
not know the clock: it is an argument.
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

    __slots__ = ("_last_ms", "_left_out", "_level", "_now_ms", "_second", "_subject", "_written")

    def __init__(
        self, now_ms: Callable[[], int], level: int = logging.WARNING, subject: str = "warnings of this kind"
    ) -> None:
        """`now_ms`: milliseconds of the monotonic clock. `level`: the severity of `warn`. `subject`: what the count of
        lines that were left out calls them.
        """
        self._now_ms = now_ms
        self._level = level
        self._subject = subject
        self._second = 0
        self._written = 0
        self._left_out = 0
        self._last_ms: dict[str, int] = {}
        """When `may_warn` last allowed a warning, by subject."""

    def warn(self, text: str, *arguments: object) -> None:
        """Log a line, or count it if there were `PER_SECOND` of them in this second."""
        self.flush()
        if self._written >= PER_SECOND:
            self._left_out += 1
            return
        self._written += 1
        logger.log(self._level, text, *arguments)

    def flush(self) -> None:
        """Tell how many lines were left out, once their second is over. Call it now and then."""
        second = self._now_ms() // 1000
        if second != self._second:
            if self._left_out:
                logger.log(self._level, "%d more %s were left out", self._left_out, self._subject)
            self._second, self._written, self._left_out = second, 0, 0

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
