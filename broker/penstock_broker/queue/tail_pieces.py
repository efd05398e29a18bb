"""The pieces that what waits behind a window is made of: runs of messages that are in the log, and messages in memory.

Part of `paged_tail`. Source: docs/decisions/082-paging.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final
from weakref import WeakSet

from penstock_amqp.endpoint.events import DATA, EXPIRES, FLAGS, NUMBER, Entry
from penstock_broker.queue.flags import SPILLED
from penstock_broker.queue.run import Run

__all__ = [
    "MOST_KEPT",
    "Kept",
    "KeptPart",
    "Piece",
    "bytes_of",
    "ceiling_of",
    "expires",
    "key_of",
    "spilled",
    "take_chosen",
]


MOST_KEPT: Final = 4096
"""Messages of a piece that stays in memory: what is copied of it in one turn, in some tenths of a millisecond."""


class Kept:
    """Messages that stay in memory, by number. `key`: no run before them has so high a number."""

    __slots__ = ("_parts", "highest", "key", "numbers")

    def __init__(self, key: int) -> None:
        self.key = key
        self.numbers: deque[int] = deque()
        """Whoever adds or takes one calls `changes` before."""
        self.highest = -1
        """No number here is higher."""
        self._parts: WeakSet[KeptPart] | None = None
        """Those of snapshots that have not looked at it yet; a snapshot that nobody goes on with leaves nothing."""

    def add(self, number: int) -> None:
        """A message comes behind the others."""
        self.changes()
        self.numbers.append(number)
        self.highest = max(self.highest, number)

    def is_read_by(self, part: KeptPart) -> None:
        """A snapshot is going to look at it."""
        if self._parts is None:
            self._parts = WeakSet()
        self._parts.add(part)

    def changes(self) -> None:
        """The numbers are about to change: snapshots get what they are."""
        parts, self._parts = self._parts, None
        for part in parts or ():
            part.take()


class KeptPart:
    """What such a piece holds now and has in memory when it is looked at, or before it changes; behind one number."""

    __slots__ = ("__weakref__", "_after", "_entries", "_in_memory", "_kept")

    def __init__(self, kept: Kept, in_memory: Mapping[int, Entry], after: int) -> None:
        self._kept: Kept | None = kept
        self._in_memory, self._after = in_memory, after
        self._entries: list[Entry] = []
        kept.is_read_by(self)

    def take(self) -> list[Entry]:
        """The messages."""
        kept, self._kept = self._kept, None
        if kept is not None:
            found, after = self._in_memory, self._after
            self._entries = [found[number] for number in kept.numbers if number > after and number in found]
        return self._entries

    def copy(self) -> KeptPart:
        """Another one of the same messages."""
        made = KeptPart.__new__(KeptPart)
        made._kept, made._in_memory, made._after = self._kept, self._in_memory, self._after
        made._entries = self._entries
        if made._kept is not None:
            made._kept.is_read_by(made)
        return made


Piece = Run | Kept


def key_of(piece: Piece) -> int:
    """By which the pieces of a tail are in order."""
    return piece.first if isinstance(piece, Run) else piece.key


def ceiling_of(pieces: Sequence[Piece]) -> int:
    """The lowest number that may follow these pieces."""
    if not pieces:
        return 0
    last = pieces[-1]
    return last.last + 1 if isinstance(last, Run) else last.key


def bytes_of(entries: Sequence[Entry]) -> int:
    """Of their bodies."""
    return sum([len(entry[DATA]) for entry in entries])


def expires(entries: Sequence[Entry]) -> bool:
    """Whether one of them ever does."""
    return bool([1 for entry in entries if entry[EXPIRES]])


def spilled(entries: Sequence[Entry]) -> int:
    """How many of them end with the process."""
    return len([1 for entry in entries if entry[FLAGS] & SPILLED])


def take_chosen(entries: deque[Entry], chosen: Mapping[int, Entry]) -> list[Entry]:
    """Take `chosen` (by number) out of the entries; the others keep their places."""
    taken = [entry for entry in entries if entry[NUMBER] in chosen]
    if taken:
        left = [entry for entry in entries if entry[NUMBER] not in chosen]
        entries.clear()
        entries.extend(left)
    return taken
