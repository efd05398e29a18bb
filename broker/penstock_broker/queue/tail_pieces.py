"""The pieces that what waits behind a window is made of: runs of messages that are in the log, and messages in memory.

Part of `paged_tail`. Source: docs/decisions/082-paging.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from penstock_amqp.endpoint.events import DATA, EXPIRES, FLAGS, NUMBER, Entry
from penstock_broker.queue.flags import SPILLED
from penstock_broker.queue.run import Run

__all__ = ["Kept", "Piece", "bytes_of", "ceiling_of", "expires", "key_of", "spilled", "take_chosen"]


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
