"""Sets of message numbers as ranges: however many numbers follow each other, they take 16 bytes. Pure.

The ranges lie in blocks of limited length. So a number in the middle costs about as much as one at the end, whatever
the order in which millions of messages were acknowledged.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

__all__ = ["MOST_IN_BLOCK", "NumberRanges"]

MOST_IN_BLOCK: Final = 512
"""Ranges of one block. Twice as many are cut into two blocks."""


class _Block:
    """Ascending ranges that follow each other."""

    __slots__ = ("firsts", "lasts")

    def __init__(self, firsts: "array[int]", lasts: "array[int]") -> None:
        self.firsts, self.lasts = firsts, lasts


class NumberRanges:
    """Ascending ranges, both ends included, that do not touch each other."""

    __slots__ = ("_begins", "_blocks")

    def __init__(self) -> None:
        self._blocks: list[_Block] = []  # none of them is empty
        self._begins: list[int] = []
        """The first number of each block."""

    def __contains__(self, number: int) -> bool:
        return self.touches(number, number)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return chain.from_iterable(zip(block.firsts, block.lasts, strict=True) for block in self._blocks)

    def add(self, first: int, last: int) -> None:
        """All numbers from `first` to `last`."""
        if not self._blocks:
            self._append(first, last)
            return
        lasts = self._blocks[-1].lasts
        if first > lasts[-1] + 1:
            if len(lasts) >= MOST_IN_BLOCK:
                self._append(first, last)
            else:
                self._blocks[-1].firsts.append(first)
                lasts.append(last)
        elif first == lasts[-1] + 1:
            lasts[-1] = last
        else:
            self._insert(first, last)

    def add_all(self, numbers: Sequence[int]) -> None:
        """Ascending numbers."""
        if not numbers:
            return
        first = last = numbers[0]
        if numbers[-1] - first + 1 == len(numbers):
            self.add(first, numbers[-1])
            return
        for number in numbers:
            if number > last + 1:
                self.add(first, last)
                first = number
            last = number
        self.add(first, last)

    def touches(self, first: int, last: int) -> bool:
        """Whether one of the numbers from `first` to `last` is here."""
        at = bisect_right(self._begins, last) - 1
        if at < 0:
            return False
        block = self._blocks[at]
        return block.lasts[bisect_right(block.firsts, last) - 1] >= first

    def within(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The ranges of numbers from `first` to `last` that are here."""
        begin = max(bisect_right(self._begins, first) - 1, 0)
        for at in range(begin, len(self._blocks)):
            firsts, lasts = self._blocks[at].firsts, self._blocks[at].lasts
            for index in range(max(bisect_right(firsts, first) - 1, 0), len(firsts)):
                if firsts[index] > last:
                    return
                if lasts[index] >= first:
                    yield max(firsts[index], first), min(lasts[index], last)

    def gaps(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The ranges of numbers from `first` to `last` that are not here."""
        for low, high in self.within(first, last):
            if low > first:
                yield first, low - 1
            first = high + 1
        if first <= last:
            yield first, last

    def ends(self) -> "tuple[array[int], array[int]]":
        """The first and the last numbers of all ranges."""
        firsts, lasts = array("Q"), array("Q")
        for block in self._blocks:
            firsts += block.firsts
            lasts += block.lasts
        return firsts, lasts

    def block_lengths(self) -> list[int]:
        """How many ranges each block has: at most so many move when a number comes between them."""
        return [len(block.firsts) for block in self._blocks]

    def _append(self, first: int, last: int) -> None:
        self._blocks.append(_Block(array("Q", (first,)), array("Q", (last,))))
        self._begins.append(first)

    def _insert(self, first: int, last: int) -> None:
        """The same as `add` where ranges with higher numbers are here."""
        blocks, begins = self._blocks, self._begins
        at = max(bisect_right(begins, first) - 1, 0)
        end = max(bisect_right(begins, last + 1, at), at + 1)
        firsts, lasts = blocks[at].firsts, blocks[at].lasts
        for covered in blocks[at + 1 : end]:
            firsts += covered.firsts
            lasts += covered.lasts
        low = bisect_right(firsts, first)
        if low and lasts[low - 1] >= first - 1:
            low -= 1
        high = bisect_right(firsts, last + 1, low)
        if low == high:
            firsts.insert(low, first)
            lasts.insert(low, last)
        else:
            firsts[low], lasts[low] = min(first, firsts[low]), max(last, lasts[high - 1])
            del firsts[low + 1 : high], lasts[low + 1 : high]
        del blocks[at + 1 : end], begins[at + 1 : end]
        begins[at] = firsts[0]
        if len(firsts) > 2 * MOST_IN_BLOCK:
            middle = len(firsts) // 2
            blocks.insert(at + 1, _Block(firsts[middle:], lasts[middle:]))
            begins.insert(at + 1, firsts[middle])
            del firsts[middle:], lasts[middle:]
