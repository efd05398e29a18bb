"""Timers of the loop: heartbeats, idle time-outs, probes. A heap of deadlines; nothing is ever taken out early.

Must not know the clock: the loop says what time it is.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

__all__ = ["Timers"]


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
        """Run everything that is due."""
        while self._heap and self._heap[0][0] <= now_ms:
            heapq.heappop(self._heap)[2]()

    def wait_ms(self, now_ms: int, at_most_ms: int) -> int:
        """How long nothing is due."""
        if not self._heap:
            return at_most_ms
        return min(max(self._heap[0][0] - now_ms, 0), at_most_ms)
