"""The clock of the loop, and its timers: heartbeats, idle time-outs, probes. A heap of deadlines; nothing is ever taken
out early.

Timers must not know the clock: the loop says what time it is.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final

__all__ = ["SYSTEM_CLOCK", "Clock", "Timers"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Clock:
    """Where the loop gets the time."""

    now_us: Callable[[], int]
    """Microseconds since the epoch."""
    now_ms: Callable[[], int]
    """Milliseconds that never go back."""
    seconds: Callable[[], float]
    """Seconds, as exactly as can be had: bounds turns."""


SYSTEM_CLOCK: Final = Clock(
    now_us=lambda: time.time_ns() // 1000,
    now_ms=lambda: time.monotonic_ns() // 1_000_000,
    seconds=time.perf_counter,
)


class Timers:
    """Actions by deadline (milliseconds of a monotonic clock)."""

    __slots__ = ("_heap", "_numbers")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()

    def at(self, deadline_ms: int, action: Callable[[], None]) -> None:
        """Run `action` once, at the deadline or soon after."""
        heapq.heappush(self._heap, (deadline_ms, next(self._numbers), action))

    def run(self, now_ms: int) -> None:
        """Run everything that is due; what an action adds has its turn in the next run, however soon it is due."""
        due: list[Callable[[], None]] = []
        while self._heap and self._heap[0][0] <= now_ms:
            due.append(heapq.heappop(self._heap)[2])
        for action in due:
            try:
                action()
            except Exception:
                logger.exception("A timer failed; it won't come again")

    def wait_ms(self, now_ms: int, at_most_ms: int) -> int:
        """How long nothing is due."""
        if not self._heap:
            return at_most_ms
        return min(max(self._heap[0][0] - now_ms, 0), at_most_ms)
