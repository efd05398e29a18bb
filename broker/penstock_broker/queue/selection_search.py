"""How far one selection has looked through a level whose messages are not all in memory.

What is not selected stays where it is, and is not looked at again; nothing of it is kept. What comes later is looked
at later. Source: docs/decisions/082-paging.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from penstock_amqp.endpoint.events import NUMBER, Entry
from penstock_broker.queue.paged_tail import PagedTail
from penstock_broker.queue.priority_level import PriorityLevel
from penstock_broker.queue.tail_snapshot import TailSnapshot, behind

__all__ = ["SelectionSearch"]


class SelectionSearch:
    """The way of one selection through a window and its tail, both as they were when it began, and then what came."""

    __slots__ = ("_found", "_read", "_seen", "_tail", "_window", "error")

    def __init__(self, level: PriorityLevel, tail: PagedTail) -> None:
        self._tail = tail
        self._found: deque[Entry] = deque()
        """Selected, and left where they are."""
        self.error: OSError | None = None
        """Why it can't go on now."""
        self._begin(level, -1)

    def _begin(self, level: PriorityLevel, after: int) -> None:
        self._window = deque(behind(level.fresh, after))
        self._read: TailSnapshot = self._tail.snapshot(after=after)
        numbers = (self._tail.highest(), *(entry[NUMBER] for entry in self._window), after)
        self._seen = max(numbers)
        """What has a higher number came later."""

    def is_of(self, tail: PagedTail | None) -> bool:
        """Whether it looks through this tail."""
        return self._tail is tail

    def next(self, level: PriorityLevel, wants: Callable[[Entry], bool], most: int) -> tuple[Entry | None, int]:
        """The next message that is wanted, left where it is, and how many were looked at for that: `most` at most.

        None if there is none, if `most` were looked at, or if the log can't be read now (`error`).
        """
        while self._found:
            if level.waits(self._found[0]):
                return self._found[0], 1
            self._found.popleft()
        looked = 0
        for entry in self._unseen(level):
            looked += 1
            if wants(entry) and level.waits(entry):
                self._found.append(entry)
                return entry, looked
            if looked >= most:
                break
        return None, looked

    def _unseen(self, level: PriorityLevel) -> Iterator[Entry]:
        self.error = None
        while True:
            while self._window:
                yield self._window.popleft()
            try:
                yield from self._read
            except OSError as error:
                self.error = error
                return
            highest = self._tail.highest()
            if highest <= self._seen:
                return
            self._begin(level, self._seen)

    def came_late(self, entry: Entry) -> None:
        """A message is there that was delayed and is wanted. If its number is not lower than that of one before it, it
        comes as all others do; else it is in memory as long as it waits."""
        if entry[NUMBER] <= self._seen:
            self._found.append(entry)

    def copy(self) -> SelectionSearch:
        """Another one that is as far as this."""
        made = SelectionSearch.__new__(SelectionSearch)
        made._tail, made._seen, made.error = self._tail, self._seen, self.error
        made._found, made._window, made._read = self._found.copy(), self._window.copy(), self._read.copy()
        return made
