"""Message numbers that a consumer may have seen, in tables that stay small.

One set of a million numbers is copied as a whole whenever it grows: a turn of 20 ms. Must not know queues or the log.
Source: docs/decisions/087-departures.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["TABLE_BITS", "SeenNumbers"]

TABLE_BITS: Final = 12
"""A table holds at most so many numbers, as a power of two: those of which all higher bits are the same."""

_ALL_BELOW: Final = -1
"""The key of the table that is there, and empty, once `note_up_to` was called."""


class SeenNumbers(dict[int, set[int]]):
    """Tables by their higher bits; true while there is any number. The forwarding path asks for nothing else."""

    __slots__ = ("_up_to",)

    def __init__(self) -> None:
        super().__init__()
        self._up_to = -1
        """All numbers up to this one are in, and stay in; -1: none."""

    def note(self, number: int) -> None:
        """The number is in from now on."""
        table = self.get(number >> TABLE_BITS)
        if table is None:
            table = self[number >> TABLE_BITS] = set()
        table.add(number)

    def note_all(self, numbers: Iterable[int]) -> None:
        """They are in from now on."""
        for number in numbers:
            self.note(number)

    def note_up_to(self, last: int) -> None:
        """All numbers up to this one are in from now on, and stay in."""
        self._up_to = last
        self[_ALL_BELOW] = set()

    def holds(self, number: int) -> bool:
        """Whether the number is in."""
        return number <= self._up_to or number in self.get(number >> TABLE_BITS, ())

    def forget(self, number: int) -> None:
        """The number is in no longer, unless it is one of `note_up_to`."""
        table = self.get(number >> TABLE_BITS)
        if table is not None:
            table.discard(number)
            if not table:
                del self[number >> TABLE_BITS]

    def count(self) -> int:
        """How many are in, without those of `note_up_to`."""
        return sum(map(len, self.values()))
