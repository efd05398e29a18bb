"""The pieces that what waits behind a window is made of: runs of messages that are in the log, and messages in memory.

Part of `paged_tail`. Source: docs/decisions/082-paging.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol
from weakref import WeakSet

import penstock_native
from penstock_amqp.endpoint.events import DATA, EXPIRES, FLAGS, NUMBER, Entry
from penstock_broker.queue.flags import SPILLED
from penstock_broker.queue.kept_entries import KeptEntries
from penstock_broker.queue.run import Run

__all__ = [
    "MOST_KEPT",
    "MemoryPart",
    "MemoryPiece",
    "MemorySweep",
    "PageableCount",
    "Piece",
    "ceiling_of",
    "key_of",
    "pageable_if",
    "take_chosen",
    "tally",
    "tally_one_by_one",
]

_native: Any = penstock_native.messages

MOST_KEPT: Final = 4096
"""Messages of a piece that stays in memory: what is copied of it in one turn, in some tenths of a millisecond."""


class MemoryPiece:
    """Messages that stay in memory, by number. `key`: no run before them has so high a number."""

    __slots__ = ("_parts", "highest", "key", "numbers")

    def __init__(self, key: int) -> None:
        self.key = key
        self.numbers: deque[int] = deque()
        """Whoever adds or takes one calls `changes` before."""
        self.highest = -1
        """No number here is higher."""
        self._parts: WeakSet[MemoryPart] | None = None
        """Those of snapshots that have not looked at it yet; a snapshot that nobody goes on with leaves nothing."""

    def add(self, numbers: Sequence[int]) -> None:
        """Messages, one at least, come behind the others."""
        self.changes()
        self.numbers.extend(numbers)
        self.highest = max(self.highest, max(numbers))

    def is_read_by(self, part: MemoryPart) -> None:
        """A snapshot is going to look at it."""
        if self._parts is None:
            self._parts = WeakSet()
        self._parts.add(part)

    def changes(self) -> None:
        """The numbers are about to change: snapshots get what they are."""
        parts, self._parts = self._parts, None
        for part in parts or ():
            part.take()


class MemoryPart:
    """What such a piece holds now and has in memory when it is looked at, or before it changes; behind one number."""

    __slots__ = ("__weakref__", "_after", "_entries", "_in_memory", "_kept")

    def __init__(self, kept: MemoryPiece, in_memory: KeptEntries, after: int) -> None:
        self._kept: MemoryPiece | None = kept
        self._in_memory, self._after = in_memory, after
        self._entries: list[Entry] = []
        kept.is_read_by(self)

    def take(self) -> list[Entry]:
        """The messages."""
        kept, self._kept = self._kept, None
        if kept is not None:
            found, after = self._in_memory, self._after
            entries = (found.get(number) for number in kept.numbers if number > after)
            self._entries = [entry for entry in entries if entry is not None]
        return self._entries

    def copy(self) -> MemoryPart:
        """Another one of the same messages."""
        made = MemoryPart.__new__(MemoryPart)
        made._kept, made._in_memory, made._after = self._kept, self._in_memory, self._after
        made._entries = self._entries
        if made._kept is not None:
            made._kept.is_read_by(made)
        return made


Piece = Run | MemoryPiece


class MemorySweep:
    """Forgets the numbers of what has left the middle of such pieces, some pieces at a time: where one message is left
    behind while others pass it for weeks, a number for each of them would be kept.
    """

    __slots__ = ("_at", "_came")

    def __init__(self) -> None:
        self._at = self._came = 0

    def came(self, pieces: list[Piece], in_memory: KeptEntries, count: int) -> None:
        """So many messages, `MOST_KEPT` at most, come behind `pieces`. With every `MOST_KEPT`th four times as many
        numbers or pieces are looked at, in about a millisecond: more than come meanwhile.
        """
        self._came += count
        if self._came < MOST_KEPT:
            return
        self._came -= MOST_KEPT
        first = upto = min(self._at, len(pieces))
        looked, left = 0, list[Piece]()
        while upto < len(pieces) and looked < 4 * MOST_KEPT:
            piece = pieces[upto]
            upto, looked = upto + 1, looked + 1
            if isinstance(piece, MemoryPiece):
                looked += len(piece.numbers)
                # No snapshot has to be told: it would not find what has left either.
                piece.numbers = deque(number for number in piece.numbers if number in in_memory)
                if not piece.numbers:
                    continue
            left.append(piece)
        is_through = upto == len(pieces)
        pieces[first:upto] = left
        self._at = 0 if is_through else first + len(left)


def key_of(piece: Piece) -> int:
    """By which the pieces of a tail are in order."""
    return piece.first if isinstance(piece, Run) else piece.key


def ceiling_of(pieces: Sequence[Piece]) -> int:
    """The lowest number that may follow these pieces."""
    if not pieces:
        return 0
    last = pieces[-1]
    return last.last + 1 if isinstance(last, Run) else last.key


def tally_one_by_one(entries: list[Entry], flag: int) -> tuple[int, int, int]:
    """The twin of the compiled part."""
    size = sum([len(entry[DATA]) for entry in entries])
    return size, len([1 for each in entries if each[EXPIRES]]), len([1 for each in entries if each[FLAGS] & flag])


_count: Callable[[list[Entry], int], tuple[int, int, int]] = _native.tally if _native else tally_one_by_one


def tally(entries: list[Entry]) -> tuple[int, int, int]:
    """The bytes of their bodies, how many of them expire, and how many end with the process."""
    return _count(entries, SPILLED)


class PageableCount(Protocol):
    """Says which messages the log can give back as they are."""

    def __call__(self, entries: list[Entry], at: int, ceiling: int, limit: int, /) -> int:
        """How many of the entries from `at` on, up to the first that it can't, or whose number does not rise, or is
        below `ceiling`, or not below `limit`.
        """
        ...


def pageable_if(can_page: Callable[[Entry], bool]) -> PageableCount:
    """The same from an answer for each message."""

    def count(entries: list[Entry], at: int, ceiling: int, limit: int, /) -> int:
        upto = at
        while upto < len(entries) and ceiling <= (number := entries[upto][NUMBER]) < limit and can_page(entries[upto]):
            ceiling = number + 1
            upto += 1
        return upto - at

    return count


def take_chosen(entries: deque[Entry], chosen: Mapping[int, Entry]) -> list[Entry]:
    """Take `chosen` (by number) out of the entries; the others keep their places."""
    taken = [entry for entry in entries if entry[NUMBER] in chosen]
    if taken:
        left = [entry for entry in entries if entry[NUMBER] not in chosen]
        entries.clear()
        entries.extend(left)
    return taken
