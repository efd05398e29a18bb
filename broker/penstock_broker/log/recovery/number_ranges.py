"""Sets of message numbers as ranges: however many numbers follow each other, they take 16 bytes. Pure."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

__all__ = ["NumberRanges"]


class NumberRanges:
    """Ascending ranges, both ends included, that do not touch each other."""

    __slots__ = ("firsts", "lasts")

    def __init__(self) -> None:
        self.firsts = array("Q")
        self.lasts = array("Q")

    def __contains__(self, number: int) -> bool:
        at = bisect_left(self.lasts, number)
        return at < len(self.lasts) and self.firsts[at] <= number

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.firsts, self.lasts, strict=True)

    def add(self, first: int, last: int) -> None:
        """All numbers from `first` to `last`."""
        firsts, lasts = self.firsts, self.lasts
        if not lasts or first > lasts[-1] + 1:
            firsts.append(first)
            lasts.append(last)
            return
        if first == lasts[-1] + 1:
            lasts[-1] = last
            return
        low, high = bisect_left(lasts, first - 1 if first else 0), bisect_right(firsts, last + 1)
        if low < high:
            first, last = min(first, firsts[low]), max(last, lasts[high - 1])
        firsts[low:high] = array("Q", (first,))
        lasts[low:high] = array("Q", (last,))

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
        at = bisect_left(self.lasts, first)
        return at < len(self.lasts) and self.firsts[at] <= last

    def gaps(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The ranges of numbers from `first` to `last` that are not here."""
        firsts, lasts = self.firsts, self.lasts
        at = bisect_left(lasts, first)
        while first <= last:
            if at == len(lasts) or firsts[at] > last:
                yield first, last
                return
            if firsts[at] > first:
                yield first, firsts[at] - 1
            first = lasts[at] + 1
            at += 1
