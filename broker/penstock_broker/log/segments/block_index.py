"""Where the blocks with messages begin in one segment, so that a message is found by its number. Pure.

Not every block is noted: at most one per `INDEX_BYTES`. A reader goes on from the noted block to the one that it looks
for. Copies that compaction makes have lower numbers than what was written before them, so the notes of a segment are
kept as stretches in which numbers rise from block to block; almost every segment has one. What is new behind copies
begins a stretch too, so that the numbers of copies say where they lie: else who looks for one copy would have to read
in all stretches. Where the lowest number of a block alone decided, a block that holds what lay far apart would hide its
higher numbers behind the next block.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter
from typing import Final, NamedTuple

__all__ = ["INDEX_BYTES", "BlockIndex", "Start"]

INDEX_BYTES: Final = 16 * 1024
"""From one noted block to the next there are so many bytes at least."""


class Start(NamedTuple):
    """Where to begin to look for messages: at byte `offset`, up to `end` (0: the end of the segment). None below
    `first` is found there.
    """

    offset: int
    end: int
    first: int


_FIRST: Final = itemgetter(2)  # of a `Start`


class _Stretch:
    """Notes of blocks each of which has only higher numbers than those before it: its lowest message, and where it
    begins.
    """

    __slots__ = ("due", "firsts", "last", "offsets")

    def __init__(self) -> None:
        self.last = 0
        """The highest message of the last block, noted or not."""
        self.due = 0
        """From this offset on the next block is noted."""
        self.firsts = array("Q")
        self.offsets = array("Q")


class BlockIndex:
    """The notes of one segment."""

    __slots__ = ("_highest", "_stretches")

    def __init__(self) -> None:
        self._stretches: list[_Stretch] = []
        self._highest = 0
        """The highest message that was noted."""

    def __len__(self) -> int:
        return sum(len(stretch.firsts) for stretch in self._stretches)

    def note(self, first: int, last: int, offset: int) -> None:
        """A block whose lowest message is `first` and whose highest is `last` begins there, behind all that were
        noted.
        """
        stretch = self._stretches[-1] if self._stretches else None
        highest = self._highest
        if last > highest:
            self._highest = last
        if stretch is None or first <= stretch.last or stretch.last < highest < first:
            stretch = _Stretch()
            self._stretches.append(stretch)
        stretch.last = last
        if offset >= stretch.due:
            stretch.due = offset + INDEX_BYTES
            stretch.firsts.append(first)
            stretch.offsets.append(offset)

    def stretches(self) -> Iterator[tuple["array[int]", "array[int]", int]]:
        """All notes, to be kept elsewhere: the lowest messages of blocks, where these begin, and the highest message of
        the last one.
        """
        for stretch in self._stretches:
            yield stretch.firsts, stretch.offsets, stretch.last

    def restore(self, firsts: "array[int]", offsets: "array[int]", last: int) -> None:
        """Take in what `stretches` gave of a segment in which no block is written any more."""
        stretch = _Stretch()
        stretch.firsts, stretch.offsets, stretch.last = firsts, offsets, last
        self._stretches.append(stretch)

    def starts(self, message: int, upto: int) -> list[Start]:
        """Where to look for messages with numbers from `message` to `upto`: one place in each stretch that may have
        any, that with the lowest number first.
        """
        found: list[Start] = []
        for index, stretch in enumerate(self._stretches):
            first = stretch.firsts[0]
            if stretch.last < message or first > upto:
                continue
            at = max(bisect_right(stretch.firsts, message) - 1, 0)
            following = self._stretches[index + 1] if index + 1 < len(self._stretches) else None
            found.append(Start(stretch.offsets[at], following.offsets[0] if following is not None else 0, first))
        if len(found) > 1:
            found.sort(key=_FIRST)
        return found

    def next_after(self, offset: int) -> int:
        """The first noted block behind this place; 0 if there is none."""
        return min((each for stretch in self._stretches for each in stretch.offsets if each > offset), default=0)
