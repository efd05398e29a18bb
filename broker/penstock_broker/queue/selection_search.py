"""How far one selection has looked through a level whose messages are not all in memory.

What is not selected stays where it is, and is not looked at again; nothing of it is kept, or a thousand selections that
wait for credit would each keep a window which others have taken since. What comes later is looked at later. Source:
docs/decisions/082-paging.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from penstock_amqp.endpoint.events import NUMBER, Entry
from penstock_broker.queue.paged_tail import PagedTail
from penstock_broker.queue.priority_level import PriorityLevel
from penstock_broker.queue.seen_numbers import SeenNumbers
from penstock_broker.queue.tail_snapshot import TailSnapshot

__all__ = ["SelectionSearch"]

_MOST_LATE: Final = 64
"""So many messages that came late are not tidied."""


class SelectionSearch:
    """The way of one selection through a window and its tail, both as they were when it began, and then what came."""

    __slots__ = (
        "_after", "_at", "_found", "_is_in_window", "_is_used", "_last", "_late", "_looked", "_most_found", "_read",
        "_seen", "_tail", "_until", "error",
    )  # fmt: skip

    def __init__(self, level: PriorityLevel, tail: PagedTail) -> None:
        self._tail = tail
        self._found: deque[Entry] = deque()
        """Selected, and left where they are."""
        self._most_found = _MOST_LATE
        self._is_used = True
        self.error: OSError | None = None
        """Why it can't go on now."""
        self._begin(level, -1)

    def _begin(self, level: PriorityLevel, after: int) -> None:
        window = [entry[NUMBER] for entry in level.fresh if entry[NUMBER] > after]
        self._after = self._last = after
        """Of the window, what has a higher number; and what was looked at last."""
        self._until = max(window, default=after)
        """The window had no higher number."""
        self._looked = None if window == sorted(window) else SeenNumbers()
        """What was looked at of a window whose numbers do not ascend, because some of it was delayed."""
        self._at = 0
        """Where in the window that was."""
        self._is_in_window = bool(window)
        self._late: TailSnapshot | None = None
        """What has left the window for the tail before it was looked at."""
        self._read: TailSnapshot = self._tail.snapshot(after=after)
        self._seen = max(self._tail.highest(), self._until)
        """What has a higher number came later."""

    def is_of(self, tail: PagedTail | None) -> bool:
        """Whether it looks through this tail."""
        return self._tail is tail

    def next(self, level: PriorityLevel, wants: Callable[[Entry], bool], most: int) -> tuple[Entry | None, int]:
        """The next message that is wanted, left where it is, and how many were looked at for that: `most` at most.

        None if there is none, if `most` were looked at, or if the log can't be read now (`error`).
        """
        self._is_used = True
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
            yield from self._in_window(level)
            try:
                yield from self._from_tail()
            except OSError as error:
                self.error = error
                return
            if self._tail.highest() <= self._seen:
                return
            self._begin(level, self._seen)

    def _in_window(self, level: PriorityLevel) -> Iterator[Entry]:
        if not self._is_in_window:
            return
        fresh, at = level.fresh, self._at
        if not 0 < at <= len(fresh) or fresh[at - 1][NUMBER] != self._last:
            at = 0  # others have taken some
        for place, entry in enumerate(islice(fresh, at, None), at + 1):
            if self._is_new(entry):
                self._at = place
                yield entry
        self._is_in_window = False
        after = self._last if self._looked is None else self._after
        if after < self._until:
            self._late = self._tail.snapshot(after=after, below=self._until + 1)

    def _from_tail(self) -> Iterator[Entry]:
        if self._late is not None:
            for entry in self._late:
                if self._is_new(entry):
                    yield entry
            self._late = None
        yield from self._read

    def _is_new(self, entry: Entry) -> bool:
        """Whether the message is of the window and was not looked at, as it is from now on."""
        number, looked = entry[NUMBER], self._looked
        if not self._after < number <= self._until:
            return False
        if number <= self._last if looked is None else looked.holds(number):
            return False
        if looked is not None:
            looked.note(number)
        self._last = number
        return True

    def came_late(self, level: PriorityLevel, entry: Entry) -> None:
        """A message is there that was delayed and is wanted. If its number is not lower than that of one before it, it
        comes as all others do; else it is in memory as long as it waits."""
        if entry[NUMBER] <= self._seen:
            self._found.append(entry)
            if len(self._found) > self._most_found:
                self._tidy(level)

    def rest(self, level: PriorityLevel) -> None:
        """Give up what was read ahead, and what others took, unless it was used since this was called last."""
        if not self._is_used:
            self._read.give_back()
            if self._late is not None:
                self._late.give_back()
            if self._found:
                self._tidy(level)
        self._is_used = False

    def _tidy(self, level: PriorityLevel) -> None:
        fresh = {entry[NUMBER] for entry in level.fresh}
        self._found = deque(each for each in self._found if each[NUMBER] in fresh or self._tail.holds(each))
        self._most_found = max(_MOST_LATE, 2 * len(self._found))

    def copy(self) -> SelectionSearch:
        """Another one that is as far as this."""
        made = SelectionSearch.__new__(SelectionSearch)
        for name in self.__slots__:
            setattr(made, name, getattr(self, name))
        made._found, made._read = self._found.copy(), self._read.copy()
        made._late = None if self._late is None else self._late.copy()
        made._looked = None if self._looked is None else SeenNumbers(self._looked)
        return made
