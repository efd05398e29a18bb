"""The time: where the loop gets it, the time of the turn, and the timers.

Nothing below the loop asks the system for the time: the loop sets `TurnClock` at the beginning of each turn, and runs
the timers that are due. Timers are one heap of deadlines, and none is ever taken out early: an action whose reason is
gone has to find that out by itself. Source: docs/decisions/027-timers.md.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final

__all__ = ["SYSTEM_CLOCK", "Clock", "Timers", "TurnClock"]

logger = logging.getLogger(__name__)


AGAIN_MS: Final = 1000
"""After so long a timer of the broker's own runs again that has failed."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Where the loop gets the time."""

    now_us: Callable[[], int]
    """Microseconds since the epoch."""
    now_ms: Callable[[], int]
    """Milliseconds of a clock that never goes back (monotonic)."""
    seconds: Callable[[], float]
    """Seconds of a clock of high resolution: bounds the length of a turn."""


SYSTEM_CLOCK: Final = Clock(
    now_us=lambda: time.time_ns() // 1000,
    now_ms=lambda: time.monotonic_ns() // 1_000_000,
    seconds=time.perf_counter,
)


class Timers:
    """Actions by deadline (milliseconds of a monotonic clock)."""

    __slots__ = ("_due", "_heap", "_numbers")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None], Callable[[], None] | None]] = []
        self._numbers = count()
        self._due: deque[tuple[Callable[[], None], Callable[[], None] | None]] = deque()
        """Whose time has come, and whose turn has not yet."""

    def at(self, deadline_ms: int, action: Callable[[], None], failed: Callable[[], None] | None = None) -> None:
        """Run `action` once, at the deadline or soon after.

        `failed` is called if it raises an exception, while that is handled: it closes what the action belonged to.
        Without it the exception is logged and the action runs again after `AGAIN_MS`: it belongs to the broker, which
        can't do without it. So an action without `failed` sets its next timer as the last thing that it does.
        """
        heapq.heappush(self._heap, (deadline_ms, next(self._numbers), action, failed))

    def run(self, now_ms: int, may_go_on: Callable[[], bool] = lambda: True) -> None:
        """Run what is due, at least one action, as long as `may_go_on`; the next call begins with the rest.

        What an action adds runs in the next call at the earliest, due or not.
        """
        heap, due = self._heap, self._due
        while heap and heap[0][0] <= now_ms:
            _, _, action, failed = heapq.heappop(heap)
            due.append((action, failed))
        while due:
            action, failed = due.popleft()
            try:
                action()
            except Exception:
                if failed is not None:
                    failed()
                else:
                    logger.exception("A timer failed; it runs again in %d s", AGAIN_MS // 1000)
                    self.at(now_ms + AGAIN_MS, action)
            if not may_go_on():
                return

    def wait_ms(self, now_ms: int, at_most_ms: int) -> int:
        """Milliseconds until the next deadline, at most `at_most_ms`."""
        if self._due:
            return 0
        if not self._heap:
            return at_most_ms
        return min(max(self._heap[0][0] - now_ms, 0), at_most_ms)


class TurnClock:
    """The time of this turn, which the loop sets, and the timers."""

    __slots__ = ("now_ms", "now_us", "timers", "turns")

    def __init__(self) -> None:
        self.now_us = 0
        """Microseconds since the epoch."""
        self.now_ms = 0
        """Milliseconds of a clock that never goes back."""
        self.timers = Timers()
        self.turns = 0
        """Turns since the start."""

    def after(self, milliseconds: int, action: Callable[[], None], failed: Callable[[], None] | None = None) -> None:
        """Run `action` once, the given number of milliseconds after the time of this turn. `failed`: see `Timers`."""
        self.timers.at(self.now_ms + milliseconds, action, failed)
