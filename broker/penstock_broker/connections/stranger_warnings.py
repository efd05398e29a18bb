"""Warnings that strangers cause: as many as a person can read, and a count of the others.

Whoever connects a thousand times a second must not fill the volume that holds the logs. The clock is an argument.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

__all__ = ["Warnings"]

logger = logging.getLogger(__name__)

PER_SECOND: Final = 20


class Warnings:
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
