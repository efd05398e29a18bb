"""What waits at one level, looked through a little at a time where it is too much to be copied in one turn.

Nothing is copied: what has left meanwhile is not seen. The walk goes by number through what came back, was looked at or
is reserved; the fresh messages join these as it reaches them (`LevelWalks.move_back`), as they do where a selector
passes them over. So it finds its place again whatever others take or put. Must not know queues or the log. Source:
docs/decisions/023-bounded-turns.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import chain, islice
from typing import Final
from weakref import WeakSet

from penstock_amqp.endpoint.events import FLAGS, NUMBER, Entry
from penstock_broker.queue.flags import SCHEDULED
from penstock_broker.queue.priority_level import PriorityLevel
from penstock_broker.queue.seen_numbers import SeenNumbers
from penstock_broker.queue.selections import Selections
from penstock_broker.queue.sorted_messages import SortedMessages

__all__ = ["LOOKED_AT", "LevelWalk", "LevelWalks", "Parts"]

LOOKED_AT: Final = 256
"""Messages that a step of a walk looks at: less than half a millisecond."""

WINDOW: Final = 16_384
"""The fresh messages before a tail are copied if they are no more: soon they will be, because the tail takes them."""

Parts = Callable[[PriorityLevel], list[SortedMessages[Entry]]]
"""What of a level is not fresh."""


class LevelWalk:
    """An iterator over the messages of one level that came before a number. A step may raise OSError, and be tried
    again.
    """

    __slots__ = ("__weakref__", "_at", "_below", "_due_us", "_found", "_level", "_parts", "_rest", "_seen", "_walks")

    def __init__(self, level: PriorityLevel, parts: Parts, walks: LevelWalks, below: int, due_us: int) -> None:
        """`below`: what has this number or a higher one came later. `due_us`: see `PagedTail.snapshot`."""
        self._level, self._parts, self._walks = level, parts, walks
        self._below, self._due_us = below, due_us
        self._at = -1
        """Up to this number all was seen that is not fresh."""
        self._found: deque[Entry] = deque()
        self._seen = SeenNumbers()
        """A message that was seen may be fresh again: it was paged, and read back since."""
        self._rest: Iterator[Entry] | None = None
        """What follows, once no more is left than can be copied, or than is in no memory."""

    def __iter__(self) -> LevelWalk:
        return self

    def __next__(self) -> Entry:
        while True:
            while self._found:
                entry = self._found.popleft()
                if entry[NUMBER] < self._below and not self._seen.holds(entry[NUMBER]):
                    self._seen.note(entry[NUMBER])
                    return entry
            if self._rest is not None:
                self._found.append(next(self._rest))
            else:
                self._find_more()

    def _find_more(self) -> None:
        level = self._level
        found = list(islice(merge(*(each.following(self._at, LOOKED_AT) for each in self._parts(level))), LOOKED_AT))
        if found and found[0][NUMBER] < self._below:
            self._pass(found)
        elif level.tail is not None and len(level.fresh) <= WINDOW:
            self._rest = chain(self._unseen(level.fresh), level.tail.snapshot(self._due_us, self._at))
        elif level.fresh and level.fresh[0][NUMBER] < self._below:
            self._pass(self._walks.move_back(level, LOOKED_AT, self))
        else:
            self._rest = iter(())

    def _unseen(self, fresh: Iterable[Entry]) -> list[Entry]:
        """A message that was delayed may have a lower number than those before it."""
        return [entry for entry in fresh if entry[NUMBER] > self._at or entry[FLAGS] & SCHEDULED]

    def _pass(self, entries: Iterable[Entry]) -> None:
        self._found.extend(entries)
        self._at = max(self._at, *(entry[NUMBER] for entry in self._found))

    def came_back(self, level: PriorityLevel, entries: Iterable[Entry]) -> None:
        """Another walk has moved fresh messages to those that came back: take those whose numbers were passed."""
        if level is self._level and self._rest is None:
            self._found.extend(entry for entry in entries if entry[NUMBER] <= self._at)


class LevelWalks:
    """The walks through one backlog. The fresh messages that one has looked at join those that came back."""

    __slots__ = ("_selections", "_walks")

    def __init__(self, selections: Selections) -> None:
        self._selections = selections
        self._walks: WeakSet[LevelWalk] = WeakSet()
        """Those that are under way."""

    def walk(self, level: PriorityLevel, parts: Parts, below: int, due_us: int) -> LevelWalk:
        """Begin to look through a level."""
        walk = LevelWalk(level, parts, self, below, due_us)
        self._walks.add(walk)
        return walk

    def move_back(self, level: PriorityLevel, most: int, by: LevelWalk) -> list[Entry]:
        """Move the first fresh messages, `most` at most; those that were moved. Other walks than `by` are told."""
        fresh = level.fresh
        moved = [fresh.popleft() for _ in range(min(most, len(fresh)))]
        add = level.back.add
        for entry in moved:
            add(entry)
        if self._selections.cursors:
            for entry in moved:
                self._selections.came_back(level, entry[NUMBER])
        for walk in self._walks:
            if walk is not by:
                walk.came_back(level, moved)
        return moved
