"""Where the blocks with messages begin in one segment, so that a message is found by its number. Pure.

Not every block is noted: at most one per `INDEX_BYTES`. A reader goes on from the noted block to the one that it looks
for. Copies that compaction makes have lower numbers than what was written before them, so the notes of a segment are
kept as stretches in which numbers rise from block to block; almost every segment has one. Where the lowest number of a
block alone decided, a block that holds what lay far apart would hide its higher numbers behind the next block.
"""

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["INDEX_BYTES", "BlockIndex", "Start"]

INDEX_BYTES: Final = 16 * 1024
"""From one noted block to the next there are so many bytes at least."""


class Start(NamedTuple):
    """Where to begin to look for a message: at byte `offset`, up to `end` (0: the end of the segment)."""

    offset: int
    end: int


class _Stretch:
    """Notes of blocks each of which has only higher numbers than those before it: its lowest message, and where it
    begins.
    """

    __slots__ = ("firsts", "last", "offsets")

    def __init__(self) -> None:
        self.last = 0
        """The highest message of the last block, noted or not."""
        self.firsts = array("Q")
        self.offsets = array("Q")


class BlockIndex:
    """The notes of one segment."""

    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        self._stretches: list[_Stretch] = []

    def __len__(self) -> int:
        return sum(len(stretch.firsts) for stretch in self._stretches)

    def note(self, first: int, last: int, offset: int) -> None:
        """A block whose lowest message is `first` and whose highest is `last` begins there, behind all that were
        noted.
        """
        stretch = self._stretches[-1] if self._stretches else None
        if stretch is None or first <= stretch.last:
            stretch = _Stretch()
            self._stretches.append(stretch)
        elif offset - stretch.offsets[-1] < INDEX_BYTES:
            stretch.last = last
            return
        stretch.last = last
        stretch.firsts.append(first)
        stretch.offsets.append(offset)

    def stretches(self) -> Iterator[tuple["array[int]", "array[int]"]]:
        """All notes, to be kept elsewhere: the lowest messages of blocks, and where these begin."""
        for stretch in self._stretches:
            yield stretch.firsts, stretch.offsets

    def restore(self, firsts: "array[int]", offsets: "array[int]") -> None:
        """Take in what `stretches` gave of a segment in which no block is written any more."""
        stretch = _Stretch()
        stretch.firsts, stretch.offsets, stretch.last = firsts, offsets, sys.maxsize
        self._stretches.append(stretch)

    def starts(self, message: int) -> Iterator[Start]:
        """Where to look for the message and those with higher numbers: one place in each stretch that may have any."""
        for index, stretch in enumerate(self._stretches):
            if stretch.last < message:
                continue
            at = max(bisect_right(stretch.firsts, message) - 1, 0)
            following = self._stretches[index + 1] if index + 1 < len(self._stretches) else None
            yield Start(stretch.offsets[at], following.offsets[0] if following is not None else 0)

    def next_after(self, offset: int) -> int:
        """The first noted block behind this place; 0 if there is none."""
        return min((each for stretch in self._stretches for each in stretch.offsets if each > offset), default=0)
