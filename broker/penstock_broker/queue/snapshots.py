"""What waits in a backlog, as it is at one time: copied at once what is in memory, read on the way what is not.

Of a level that has too many messages in memory for that, what has left before it is looked at is left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain, islice
from typing import Final, TypeVar

from penstock_amqp.endpoint.events import Entry
from penstock_broker.queue.level_walk import LevelWalks, Parts
from penstock_broker.queue.priority_level import PriorityLevel

__all__ = ["MOST_COPIED", "LazyCopy", "snapshot", "take_some"]

T = TypeVar("T")

MOST_COPIED: Final = 16_384
"""Messages of a level that are copied at once: some tenths of a millisecond."""


class LazyCopy:
    """A snapshot of which parts are read from the log only when it is their turn; taken from as from a deque."""

    __slots__ = ("_entries", "_error", "_next")

    def __init__(self, entries: Iterator[Entry]) -> None:
        self._entries = entries
        self._next: Entry | None = None
        self._error: OSError | None = None
        self._advance()

    def _advance(self) -> None:
        self._error = None
        try:
            self._next = next(self._entries, None)
        except OSError as error:
            self._next, self._error = None, error

    def __bool__(self) -> bool:
        return self._next is not None or self._error is not None

    def __iter__(self) -> Iterator[Entry]:
        while self:
            yield self.popleft()

    def popleft(self) -> Entry:
        """Take the first entry. Raises `IndexError` if there is none, and OSError; it may be tried again then."""
        if self._error is not None:
            self._advance()
        if self._error is not None:
            raise self._error
        entry = self._next
        if entry is None:
            raise IndexError("nothing is left of the snapshot")
        self._advance()
        return entry


def take_some(entries: Iterator[T], most: int) -> tuple[list[T], OSError | None]:
    """The next of a snapshot, `most` at most, and why there are no more of them if they can't be read now."""
    taken: list[T] = []
    try:
        for entry in islice(entries, most):
            taken.append(entry)
    except OSError as error:
        return taken, error
    return taken, None


def _given(copied: deque[Entry]) -> Iterator[Entry]:
    """Yield the entries and drop each with the next: what was consumed meanwhile is not freed all at once at the
    end."""
    while copied:
        yield copied.popleft()


def snapshot(
    levels: Iterable[PriorityLevel], walks: LevelWalks, parts: Parts, due_us: int, below: int | None
) -> Iterator[Entry]:
    """All that waits at these levels, the first first; `due_us`: see the tail's. `below`: the number of the next
    message; if it is given, levels that hold very many are looked through without being copied.
    """
    return chain.from_iterable([_of_level(level, walks, parts, due_us, below) for level in levels])


def _of_level(level: PriorityLevel, walks: LevelWalks, parts: Parts, due_us: int, below: int | None) -> Iterator[Entry]:
    not_fresh = parts(level)
    if below is not None and sum(map(len, not_fresh)) + len(level.fresh) > MOST_COPIED:
        return walks.walk(level, parts, below, due_us)
    copies = [_given(deque(chain.from_iterable(messages.blocks))) for messages in not_fresh if messages.blocks]
    found: list[Iterable[Entry]] = [*copies] if len(copies) < 2 else [merge(*copies)]
    found.append(_given(level.fresh.copy()))
    if level.tail is not None:
        found.append(level.tail.snapshot(due_us))
    return chain.from_iterable(found)
