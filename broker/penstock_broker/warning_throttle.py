"""Warnings that strangers cause: as many as a person can read, and a count of the others.

Whoever connects a thousand times a second must not fill the volume that holds the logs. The clock is an argument.

Log lines about what may happen thousands of times a second: one in a while for each subject.

Must not know the clock: whoever asks says what time it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

__all__ = ["WarningIntervals", "WarningThrottle"]

logger = logging.getLogger(__name__)

PER_SECOND: Final = 20


class WarningThrottle:
    """Of one broker. `now_ms`: the monotonic time of the turn."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._second = 0
        self._written = 0
        self._left_out = 0

    def warn(self, text: str, *arguments: object) -> None:
        """Log a warning, or count it if there were too many in this second."""
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


PAUSE_MS: Final = 60_000
MOST_SUBJECTS: Final = 1000


class WarningIntervals:
    """Says whether it is time for a line."""

    __slots__ = ("_said",)

    def __init__(self) -> None:
        self._said: dict[str, int] = {}

    def may_say(self, subject: str, now_ms: int) -> bool:
        """True if nothing was said about `subject` for a minute; then the caller says it."""
        said = self._said.get(subject)
        if said is not None and now_ms - said < PAUSE_MS:
            return False
        if len(self._said) >= MOST_SUBJECTS:
            self._said.clear()
        self._said[subject] = now_ms
        return True
