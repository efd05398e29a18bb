"""The pieces that what waits behind a window is made of: runs of messages that are in the log, and messages in memory.

Part of `paged_tail`. Source: docs/decisions/082-paging.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import penstock_native
from penstock_amqp.endpoint.events import DATA, EXPIRES, FLAGS, NUMBER, Entry
from penstock_broker.queue.flags import SPILLED
from penstock_broker.queue.run import Run

__all__ = ["Kept", "Pageable", "Piece", "ceiling_of", "key_of", "pageable_if", "take_chosen", "tally"]

_native: Any = penstock_native.messages


class Kept:
    """Messages that stay in memory, by number. `key`: no run before them has so high a number."""

    __slots__ = ("key", "numbers")

    def __init__(self, key: int) -> None:
        self.key = key
        self.numbers: deque[int] = deque()


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


def _tally(entries: list[Entry], flag: int) -> tuple[int, int, int]:
    size = sum([len(entry[DATA]) for entry in entries])
    return size, len([1 for each in entries if each[EXPIRES]]), len([1 for each in entries if each[FLAGS] & flag])


_count: Callable[[list[Entry], int], tuple[int, int, int]] = _native.tally if _native else _tally


def tally(entries: list[Entry]) -> tuple[int, int, int]:
    """The bytes of their bodies, how many of them expire, and how many end with the process."""
    return _count(entries, SPILLED)


class Pageable(Protocol):
    """Says which messages the log can give back as they are."""

    def __call__(self, entries: list[Entry], at: int, ceiling: int, limit: int, /) -> int:
        """How many of the entries from `at` on, up to the first that it can't, or whose number does not rise, or is
        below `ceiling`, or not below `limit`.
        """
        ...


def pageable_if(can_page: Callable[[Entry], bool]) -> Pageable:
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
