"""A queue of the keys of resources to reconcile, with priorities, delays and back-off.

A key that was added several times is in the queue once, with its best priority and its earliest time. A key that a
worker has taken is handed out again only after `done` or `retry`, so that no two workers reconcile the same resource.
Delays are spread, so that what failed together does not come back together. Synchronous; time and randomness are
arguments, the time in seconds. Source: docs/decisions/057-lists-are-the-truth.md.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Generic, TypeVar

__all__ = ["FIRST_RETRY_SECONDS", "LONGEST_RETRY_SECONDS", "Priority", "WorkQueue"]

KeyT = TypeVar("KeyT", bound=Hashable)

FIRST_RETRY_SECONDS: Final = 1.0
LONGEST_RETRY_SECONDS: Final = 30.0
_MOST_DOUBLINGS: Final = 30
"""Far more than any delay needs: a power of all failures would be no number any more after some hours."""


class Priority(IntEnum):
    """The order in which due keys are taken; the lowest value first."""

    BROKER = 0
    """It is a Broker: nothing can be declared or deleted on it before it is reconciled."""
    DELETION = 1
    CHANGE = 2
    """The resource itself changed."""
    DEPENDENCY = 3
    """Another resource changed that affects this one."""
    RESYNC = 4
    """Nothing is known to have changed."""


@dataclass(slots=True)
class _Waiting:
    due: float
    priority: Priority


@dataclass(slots=True)
class WorkQueue(Generic[KeyT]):
    """The keys that wait, and those that workers have taken."""

    spread: Callable[[], float] = lambda: 0.0
    """A random number from 0 to 1: up to half of a delay is taken off by it. The default takes nothing off."""
    _waiting: dict[KeyT, _Waiting] = field(default_factory=dict[KeyT, _Waiting])
    _delayed: list[tuple[float, int, KeyT]] = field(default_factory=list[tuple[float, int, KeyT]])
    _ready: list[tuple[int, int, KeyT]] = field(default_factory=list[tuple[int, int, KeyT]])
    _working: set[KeyT] = field(default_factory=set[KeyT])
    _failures: dict[KeyT, int] = field(default_factory=dict[KeyT, int])
    _sequence: int = 0
    """Keys of the same priority are taken in the order in which they became due."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def working(self) -> int:
        """The number of keys that workers have taken."""
        return len(self._working)

    def add(self, key: KeyT, priority: Priority, now: float, delay: float = 0) -> None:
        """Add `key`, due in `delay` seconds; if it waits already, the earlier time and the better priority apply."""
        due = now + delay
        waiting = self._waiting.get(key)
        if waiting is not None:
            if due >= waiting.due and priority >= waiting.priority:
                return
            due, priority = min(due, waiting.due), min(priority, waiting.priority)
        self._waiting[key] = _Waiting(due, priority)
        if key not in self._working:
            self._push(key, due)

    def take(self, now: float) -> KeyT | None:
        """Take the next key that is due, None if there is none."""
        while self._delayed and self._delayed[0][0] <= now:
            due, _, key = heapq.heappop(self._delayed)
            waiting = self._waiting.get(key)
            if waiting is not None and waiting.due == due and key not in self._working:
                self._sequence += 1
                heapq.heappush(self._ready, (waiting.priority, self._sequence, key))
        while self._ready:
            priority, _, key = heapq.heappop(self._ready)
            waiting = self._waiting.get(key)
            # An entry of the heap is stale if its key was taken since, or was added again with a better priority.
            if waiting is None or key in self._working or waiting.priority != priority or waiting.due > now:
                continue
            del self._waiting[key]
            self._working.add(key)
            return key
        return None

    def done(self, key: KeyT) -> None:
        """The reconcile of `key` succeeded; its back-off starts anew."""
        self._failures.pop(key, None)
        self._release(key)

    def retry(self, key: KeyT, priority: Priority, now: float, at_least: float = 0) -> float:
        """The reconcile of `key` must be repeated; return the delay in seconds, which doubles with each repetition.

        `at_least`: the seconds that the API server asked to wait; the delay begins after them.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        longest = min(FIRST_RETRY_SECONDS * 2.0 ** min(failures, _MOST_DOUBLINGS), LONGEST_RETRY_SECONDS)
        delay = at_least + longest * (1 - self.spread() / 2)
        self._release(key)
        self.add(key, priority, now, delay)
        return delay

    def next_due(self) -> float | None:
        """When to call `take` next, None if nothing waits. It may be in the past, or earlier than a key is due."""
        if self._ready:
            return 0.0
        return self._delayed[0][0] if self._delayed else None

    def _push(self, key: KeyT, due: float) -> None:
        self._sequence += 1
        heapq.heappush(self._delayed, (due, self._sequence, key))

    def _release(self, key: KeyT) -> None:
        self._working.discard(key)
        waiting = self._waiting.get(key)
        if waiting is not None:
            self._push(key, waiting.due)
