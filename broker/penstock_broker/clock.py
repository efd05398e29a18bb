"""The time: where the loop gets it, the time of the turn, and the timers.

Nothing below the loop asks the system for the time: the loop sets `TurnClock` at the beginning of each turn, and runs
the timers that are due. Work that is done in slices, which are counted in messages, asks `TurnClock.stint` as well.
Timers are one heap of deadlines, and none is ever taken out early: an action whose reason is gone has to find that out
by itself. Source: docs/decisions/027-timers.md.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final

__all__ = ["SYSTEM_CLOCK", "Clock", "Timers", "TurnClock"]

logger = logging.getLogger(__name__)


STINT_SECONDS: Final = 0.002
"""What work that is done in slices may take of a turn."""

AGAIN_MS: Final = 1000
"""After so long a timer of the broker's own runs again that has failed."""

TAKEN_AT_ONCE: Final = 250
"""So many timers whose time has come are taken out of the heap in one turn: less than half a millisecond. Ten thousand
queues may have one each, and all are due when a process goes on that stood still."""

_NEVER: Final = 1 << 62


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

    __slots__ = ("_due", "_heap", "_numbers", "next_ms")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None], Callable[[], None] | None]] = []
        self._numbers = count()
        self._due: deque[tuple[Callable[[], None], Callable[[], None] | None]] = deque()
        """Whose time has come, and whose turn has not yet; others may be in the heap still."""
        self.next_ms = _NEVER
        """When `run` has something to do; a field, because each turn asks for it."""

    def at(self, deadline_ms: int, action: Callable[[], None], failed: Callable[[], None] | None = None) -> None:
        """Run `action` once, at the deadline or soon after.

        `failed` is called if it raises an exception, while that is handled: it closes what the action belonged to.
        Without it the exception is logged and the action runs again after `AGAIN_MS`, unless it has set its next timer
        already: it belongs to the broker, which can't do without it.
        """
        heapq.heappush(self._heap, (deadline_ms, next(self._numbers), action, failed))
        if deadline_ms < self.next_ms:
            self.next_ms = deadline_ms

    def run(self, now_ms: int, may_go_on: Callable[[], bool] = lambda: True) -> None:
        """Run what is due, at least one action, as long as `may_go_on`; the next call begins with the rest.

        What an action adds runs in the next call at the earliest, due or not.
        """
        heap, due = self._heap, self._due
        while heap and heap[0][0] <= now_ms and len(due) < TAKEN_AT_ONCE:
            _, _, action, failed = heapq.heappop(heap)
            due.append((action, failed))
        try:
            while due:
                action, failed = due.popleft()
                first = next(self._numbers)
                try:
                    action()
                except Exception:
                    if failed is not None:
                        failed()
                    else:
                        self._run_again(action, first, now_ms + AGAIN_MS)
                if not may_go_on():
                    return
        finally:
            self.next_ms = now_ms if due else heap[0][0] if heap else _NEVER

    def _run_again(self, action: Callable[[], None], first: int, deadline_ms: int) -> None:
        """An action of the broker's own has failed, which may have set timers with higher numbers than `first`."""
        logger.exception("A timer failed; it runs again in %d s, or when it has said before", AGAIN_MS // 1000)
        what = _what(action)
        if not any(number > first and _what(again) == what for _, number, again, _ in self._heap):
            self.at(deadline_ms, action)

    def wait_ms(self, now_ms: int, at_most_ms: int) -> int:
        """Milliseconds until the next deadline, at most `at_most_ms`."""
        left = self.next_ms - now_ms
        return at_most_ms if left > at_most_ms else left if left > 0 else 0


def _what(action: Callable[[], None]) -> object:
    """What an action does; the same for two that a piece of code made one after the other."""
    if isinstance(action, partial):
        return _what(action.func)
    return getattr(action, "__code__", action)


class TurnClock:
    """The time of this turn, which the loop sets, and the timers."""

    __slots__ = ("now_ms", "now_us", "seconds", "timers", "turns")

    def __init__(self) -> None:
        self.now_us = 0
        """Microseconds since the epoch."""
        self.now_ms = 0
        """Milliseconds of a clock that never goes back."""
        self.timers = Timers()
        self.turns = 0
        """Turns since the start."""
        self.seconds: Callable[[], float] = lambda: 0.0
        """`Clock.seconds` of the loop, for `stint`; without a loop no time passes."""

    def stint(self) -> Callable[[], bool]:
        """Begin a slice of some work: what is returned says whether the slice has taken its time."""
        seconds = self.seconds
        end = seconds() + STINT_SECONDS
        return lambda: seconds() >= end

    def after(self, milliseconds: int, action: Callable[[], None], failed: Callable[[], None] | None = None) -> None:
        """Run `action` once, the given number of milliseconds after the time of this turn. `failed`: see `Timers`."""
        self.timers.at(self.now_ms + milliseconds, action, failed)
