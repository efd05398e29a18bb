"""Message numbers that a consumer may have seen, a bit for each, in pieces that stay small.

After a crash of the machine they may be all messages of a deep backlog: ten million take 2 MB. One set of a million
numbers is copied as a whole whenever it grows: a turn of 20 ms. Must not know queues or the log.
Source: docs/decisions/087-departures.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["PIECE_BITS", "SeenNumbers"]

PIECE_BITS: Final = 10
"""A piece is for so many numbers, as a power of two: those of which all higher bits are the same."""

_LOW: Final = (1 << PIECE_BITS) - 1
_ALL: Final = (1 << (1 << PIECE_BITS)) - 1
"""The piece in which every number is; all such pieces are this one."""


class SeenNumbers(dict[int, int]):
    """Pieces by their higher bits; true while there is any number. The forwarding path asks for nothing else."""

    __slots__ = ()

    def note(self, number: int) -> None:
        """The number is in from now on."""
        at = number >> PIECE_BITS
        self[at] = self.get(at, 0) | 1 << (number & _LOW)

    def note_all(self, numbers: Iterable[int]) -> None:
        """They are in from now on."""
        for number in numbers:
            self.note(number)

    def note_stretch(self, first: int, last: int) -> None:
        """All numbers from `first` to `last` are in from now on."""
        for at in range(first >> PIECE_BITS, (last >> PIECE_BITS) + 1):
            low, high = max(first, at << PIECE_BITS), min(last, (at << PIECE_BITS) + _LOW)
            if high - low == _LOW:
                self[at] = _ALL
            else:
                self[at] = self.get(at, 0) | ((1 << high - low + 1) - 1) << (low & _LOW)

    def holds(self, number: int) -> bool:
        """Whether the number is in."""
        return bool(self.get(number >> PIECE_BITS, 0) >> (number & _LOW) & 1)

    def forget(self, number: int) -> None:
        """The number is in no longer."""
        at = number >> PIECE_BITS
        piece = self.get(at)
        if piece is not None:
            left = piece & ~(1 << (number & _LOW))
            if left:
                self[at] = left
            else:
                del self[at]

    def count(self) -> int:
        """How many are in."""
        return sum(map(int.bit_count, self.values()))
