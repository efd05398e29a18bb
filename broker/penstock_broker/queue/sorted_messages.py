"""Messages sorted by their number, or by whatever else their tuple begins with (`delayed` sorts by time).

Blocks of sorted lists: to put a message in its place, to find one and to take one out cost the logarithm of the count
plus a short move in one block, with a million messages too. The library sortedcontainers does the same at 1.6 to 2.9
times the cost, measured for the moves of this module, and each message with a priority or a selector pays it. Must not
know queues or links.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Set
from typing import Final, Generic, TypeVar

__all__ = ["SortedMessages"]

_BLOCK: Final = 256
"""Messages of a full block."""

Numbered = TypeVar("Numbered", bound=tuple[int, *tuple[object, ...]])


def _first_number(block: list[Numbered]) -> int:
    return block[0][0]


class SortedMessages(Generic[Numbered]):
    """A sorted set of entries; numbers are unique within it."""

    __slots__ = ("_count", "blocks")

    def __init__(self) -> None:
        self.blocks: list[list[Numbered]] = []
        """Never holds an empty block: true while there is a message, at the cost of one field access."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Numbered]:
        for block in self.blocks:
            yield from block

    def add(self, entry: Numbered) -> None:
        """Put an entry in its place."""
        blocks = self.blocks
        if not blocks:
            blocks.append([entry])
            self._count += 1
            return
        last = blocks[-1]
        if entry[0] > last[-1][0]:
            self._count += 1
            if len(last) < _BLOCK:
                last.append(entry)
            else:
                blocks.append([entry])
            return
        index = max(bisect_right(blocks, entry[0], key=_first_number) - 1, 0)
        block = blocks[index]
        self._count += 1  # not before: an exception in the search must not leave a count without its entry
        insort(block, entry)
        if len(block) > 2 * _BLOCK:
            blocks[index : index + 1] = [block[:_BLOCK], block[_BLOCK:]]

    def first(self) -> Numbered | None:
        """The lowest entry, left where it is."""
        return self.blocks[0][0] if self.blocks else None

    def last(self) -> Numbered | None:
        """The highest entry, left where it is."""
        return self.blocks[-1][-1] if self.blocks else None

    def at_or_behind(self, number: int) -> Numbered | None:
        """The lowest entry whose number is at least `number`."""
        blocks = self.blocks
        index = max(bisect_right(blocks, number, key=_first_number) - 1, 0)
        for block in blocks[index : index + 2]:
            at = bisect_left(block, (number,))
            if at < len(block):
                return block[at]
        return None

    def following(self, number: int, most: int) -> list[Numbered]:
        """The lowest entries, `most` at most, whose numbers are above `number`."""
        blocks = self.blocks
        found: list[Numbered] = []
        index = max(bisect_right(blocks, number, key=_first_number) - 1, 0)
        while index < len(blocks) and len(found) < most:
            block = blocks[index]
            at = bisect_left(block, (number + 1,))
            found += block[at : at + most - len(found)]
            index += 1
        return found

    def find(self, number: int) -> Numbered | None:
        """The entry of that number."""
        entry = self.at_or_behind(number)
        return entry if entry is not None and entry[0] == number else None

    def pop_first(self) -> Numbered:
        """Take the lowest entry out. Raises `IndexError` if there is none."""
        block = self.blocks[0]
        entry = block.pop(0)
        self._count -= 1
        if not block:
            del self.blocks[0]
        return entry

    def pop_last(self) -> Numbered:
        """Take the highest entry out. Raises `IndexError` if there is none."""
        block = self.blocks[-1]
        entry = block.pop()
        self._count -= 1
        if not block:
            del self.blocks[-1]
        return entry

    def remove(self, number: int) -> Numbered | None:
        """Take the entry of that number out; None if it is not here."""
        blocks = self.blocks
        index = bisect_right(blocks, number, key=_first_number) - 1
        if index < 0:
            return None
        block = blocks[index]
        at = bisect_left(block, (number,))
        if at == len(block) or block[at][0] != number:
            return None
        entry = block.pop(at)
        self._count -= 1
        if not block:
            del blocks[index]
        return entry

    def remove_all(self, numbers: Set[int]) -> list[Numbered]:
        """Take out the entries of these numbers that are here. Costs one look at each block that has some of them."""
        blocks, ordered = self.blocks, sorted(numbers)
        taken: list[Numbered] = []
        at = 0
        while at < len(ordered):
            index = bisect_right(blocks, ordered[at], key=_first_number) - 1
            block: list[Numbered] = blocks[index] if index >= 0 else []
            end = bisect_right(ordered, block[-1][0], at) if block else at
            if end > at:
                taken += [entry for entry in block if entry[0] in numbers]
                left = [entry for entry in block if entry[0] not in numbers]
                blocks[index : index + 1] = [left] if left else []
            at = max(end, at + 1)
        self._count -= len(taken)
        return taken

    def take_all(self) -> list[list[Numbered]]:
        """Hand over all blocks; nothing is here any more."""
        blocks, self.blocks, self._count = self.blocks, [], 0
        return blocks
