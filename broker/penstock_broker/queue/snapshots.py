"""What waits in a backlog, as it is at one time: copied at once what is in memory, read on the way what is not."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain, islice
from typing import TypeVar

from penstock_amqp.endpoint.events import Entry
from penstock_broker.queue.priority_level import PriorityLevel
from penstock_broker.queue.sorted_messages import SortedMessages

__all__ = ["LazyCopy", "snapshot", "take_some"]

T = TypeVar("T")


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


def snapshot(levels: Iterable[tuple[PriorityLevel, list[SortedMessages[Entry]]]], due_us: int) -> Iterator[Entry]:
    """All that waits at these levels, the first first, each with what is reserved of it; `due_us`: see the tail's."""
    parts: list[Iterable[Entry]] = []
    for level, set_aside in levels:
        reserved = [messages for messages in (level.back, *set_aside) if messages.blocks]
        copies = [_given(deque(chain.from_iterable(messages.blocks))) for messages in reserved]
        parts += copies if len(copies) < 2 else [merge(*copies)]
        parts.append(_given(level.fresh.copy()))
        if level.tail is not None:
            parts.append(level.tail.snapshot(due_us))
    return chain.from_iterable(parts)
