"""Where messages lie: from ranges of message numbers to segments.

Message numbers rise in the order of the log, so one number per segment says which messages begin in it; no table of
messages is kept. Compaction copies messages into newer segments. Then the ranges of the old segment are pointed to the
new one, and ranges of the same segment that meet become one. Pure.
"""

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

S = TypeVar("S")


class Places(Generic[S]):
    """Half-open ranges of numbers, ascending and without gaps; each lies in one segment. The last one has no end."""

    __slots__ = ("_firsts", "_segments")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._segments: list[S] = []

    def __len__(self) -> int:
        return len(self._firsts)

    def __getitem__(self, message: int) -> S:
        """The segment in which the message lies, if it lies anywhere. IndexError if there is no segment."""
        return self._segments[max(0, bisect_right(self._firsts, message) - 1)]

    def stretch(self, message: int) -> tuple[S, int]:
        """The segment in which the message lies, if it lies anywhere, and the last number of its range. IndexError if
        there is no segment.
        """
        segment, _, upto = self.around(message)
        return segment, upto

    def around(self, message: int) -> tuple[S, int, int]:
        """The same, with the first number of the range before its last one."""
        firsts = self._firsts
        if message >= firsts[-1]:  # as most are that are looked for
            return self._segments[-1], firsts[-1], sys.maxsize
        index = max(0, bisect_right(firsts, message) - 1)
        upto = firsts[index + 1] - 1 if index + 1 < len(firsts) else sys.maxsize
        return self._segments[index], min(firsts[index], message), upto

    def begin(self, first: int, segment: S) -> None:
        """From number `first` on, which is not below any earlier one, messages lie in this segment."""
        self._firsts.append(first)
        self._segments.append(segment)

    def split(self, messages: Sequence[int]) -> Iterator[tuple[S, Sequence[int]]]:
        """Ascending messages, those that follow each other in one range together."""
        firsts, at, count = self._firsts, 0, len(messages)
        while at < count:
            index = max(1, bisect_right(firsts, messages[at]))
            end = bisect_left(messages, firsts[index], at) if index < len(firsts) else count
            yield self._segments[index - 1], messages[at:end]
            at = end

    def move(self, source: S, first: int, last: int, target: S) -> None:
        """What lay in `source`, of the numbers from `first` to `last`, lies in `target` from now on."""
        firsts, segments = self._firsts, self._segments
        low = max(0, bisect_right(firsts, first) - 1)
        high = max(low + 1, bisect_right(firsts, last))
        moved: list[tuple[int, S]] = []
        for index in range(low, high):
            begin, segment = firsts[index], segments[index]
            if segment is not source:
                moved.append((begin, segment))
                continue
            if begin < first:
                moved.append((begin, source))
            moved.append((max(begin, first), target))
            if index + 1 == len(firsts) or firsts[index + 1] > last + 1:
                moved.append((last + 1, source))
        self._replace(low, high, moved)

    def remove(self, segment: S) -> None:
        """No message lies in the segment any more: its ranges fall to their neighbours. The last range stays."""
        firsts, segments = self._firsts, self._segments
        at = 0
        for _ in range(segments.count(segment)):
            at = segments.index(segment, at)
            meets = 0 < at < len(segments) - 1 and segments[at - 1] is segments[at + 1]
            del firsts[at : at + 1 + meets], segments[at : at + 1 + meets]

    def rebuild(self, messages: Iterable[tuple[int, S]], first_free: int, newest: S) -> None:
        """Begin anew from messages, ascending, with their segments. From `first_free` on they lie in the newest."""
        self._rebuild(messages)
        self.begin(first_free, newest)

    def _replace(self, low: int, high: int, ranges: list[tuple[int, S]]) -> None:
        """Put other ranges in the place of those from index `low` to below `high`, joined to their neighbours."""
        if low:
            low -= 1
            ranges.insert(0, (self._firsts[low], self._segments[low]))
        if high < len(self._firsts):
            ranges.append((self._firsts[high], self._segments[high]))
            high += 1
        joined = list(_joined(ranges))
        self._firsts[low:high] = [first for first, _ in joined]
        self._segments[low:high] = [segment for _, segment in joined]

    def _rebuild(self, ranges: Iterable[tuple[int, S]]) -> None:
        joined = list(_joined(ranges))
        self._firsts = [first for first, _ in joined]
        self._segments = [segment for _, segment in joined]


def _joined(ranges: Iterable[tuple[int, S]]) -> Iterator[tuple[int, S]]:
    """Each range that begins in another segment than the one before it."""
    before: list[S] = []
    for first, segment in ranges:
        if not before or before[0] is not segment:
            before = [segment]
            yield first, segment
