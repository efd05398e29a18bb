"""What is to be looked at, and when: a keyed queue with priorities, delays and back-off. Synchronous; the clock is an
argument.

A key is in it once, however often it was added, with its best priority and its earliest time. One that is being
worked on is handed out again only after `done`, so that no two workers have the same resource. Source: section 5 of
the design.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Generic, TypeVar

__all__ = ["FIRST_RETRY_SECONDS", "LONGEST_RETRY_SECONDS", "Priority", "WorkQueue"]

KeyT = TypeVar("KeyT", bound=Hashable)

FIRST_RETRY_SECONDS: Final = 1.0
LONGEST_RETRY_SECONDS: Final = 30.0


class Priority(IntEnum):
    """What goes first when there is more than one thing to do."""

    DELETION = 0
    CHANGE = 1
    """The resource itself changed."""
    DEPENDENCY = 2
    """Something that it refers to changed."""
    RESYNC = 3


@dataclass(slots=True)
class _Waiting:
    due: float
    priority: Priority


@dataclass(slots=True)
class WorkQueue(Generic[KeyT]):
    """Keys that wait, and those that are being worked on."""

    _waiting: dict[KeyT, _Waiting] = field(default_factory=dict[KeyT, _Waiting])
    _delayed: list[tuple[float, int, KeyT]] = field(default_factory=list[tuple[float, int, KeyT]])
    _ready: list[tuple[int, int, KeyT]] = field(default_factory=list[tuple[int, int, KeyT]])
    _working: set[KeyT] = field(default_factory=set[KeyT])
    _failures: dict[KeyT, int] = field(default_factory=dict[KeyT, int])
    _sequence: int = 0
    """Breaks ties: first come, first served."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def working(self) -> int:
        """Keys that were taken and not done yet."""
        return len(self._working)

    def add(self, key: KeyT, priority: Priority, now: float, delay: float = 0) -> None:
        """Have `key` looked at, at the latest after `delay` seconds and with at least this priority."""
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
        """The next key to work on, None if none is due."""
        while self._delayed and self._delayed[0][0] <= now:
            due, _, key = heapq.heappop(self._delayed)
            waiting = self._waiting.get(key)
            if waiting is not None and waiting.due == due and key not in self._working:
                self._sequence += 1
                heapq.heappush(self._ready, (waiting.priority, self._sequence, key))
        while self._ready:
            priority, _, key = heapq.heappop(self._ready)
            waiting = self._waiting.get(key)
            # An entry is stale once its key was taken, or came again with a better priority.
            if waiting is None or key in self._working or waiting.priority != priority or waiting.due > now:
                continue
            del self._waiting[key]
            self._working.add(key)
            return key
        return None

    def done(self, key: KeyT) -> None:
        """Work on `key` ended well; the next failure is its first."""
        self._failures.pop(key, None)
        self._release(key)

    def retry(self, key: KeyT, priority: Priority, now: float) -> float:
        """Work on `key` has to be repeated; after how many seconds it will be."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(FIRST_RETRY_SECONDS * 2.0**failures, LONGEST_RETRY_SECONDS)
        self._release(key)
        self.add(key, priority, now, delay)
        return delay

    def next_due(self) -> float | None:
        """When something will be due, None if nothing waits; may be in the past, or early."""
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
