"""Messages of one queue that lie in the log and not in memory, as stretches of consecutive numbers.

However many messages a stretch has, it takes 16 bytes. Source: docs/decisions/082-paging.md.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Final

from penstock_amqp.endpoint.events import DATA, EXPIRES, NUMBER, Entry

__all__ = ["EXPIRING_RUN", "Run"]

EXPIRING_RUN: Final = 4096
"""A run of messages that expire stands for no more than these, so that those that are not due are not read."""

CLOSE: Final = 64
"""Two stretches with no more numbers between them are read at once."""

CLOSE_STRETCHES: Final = 256
"""So many at most."""

MOST_STRETCHES: Final = 4096
"""A run with so many stretches of consecutive numbers becomes no longer; each takes 16 bytes."""

MOST_REMOVED: Final = 4096
"""So many numbers that have left from the middle are remembered, then the stretches are divided: a millisecond."""


class Run:
    """Messages of the queue that are in the log, by number: stretches of consecutive numbers.

    Numbers between two stretches may be of messages that were this queue's too, and have left it.
    """

    __slots__ = ("_firsts", "_lasts", "_removed", "bytes", "count", "expires", "first")

    def __init__(self, entry: Entry) -> None:
        self.first = entry[NUMBER]
        """Those with lower numbers have left."""
        self.count = 1
        self.bytes = len(entry[DATA])
        self.expires = entry[EXPIRES]
        """When the first of them expires, or before; 0: none does."""
        self._firsts = array("Q", (self.first,))
        self._lasts = array("Q", (self.first,))
        self._removed: array[int] | None = None
        """Ascending numbers that have left from the middle."""

    @classmethod
    def of(cls, firsts: array[int], lasts: array[int], count: int, size: int, expires: int) -> Run:
        """Messages as stretches of consecutive numbers, ascending: their number, and their bytes in all."""
        made = cls.__new__(cls)
        made.first, made.count, made.bytes, made.expires = firsts[0], count, size, expires
        made._firsts, made._lasts, made._removed = firsts[:], lasts[:], None
        return made

    @property
    def last(self) -> int:
        """None has a higher number."""
        return self._lasts[-1]

    def takes(self, entry: Entry) -> bool:
        """Whether the run may become longer by this message, whose number is higher than all here."""
        if (self.expires or entry[EXPIRES]) and self.count >= EXPIRING_RUN:
            return False
        return len(self._firsts) < MOST_STRETCHES

    def add(self, entry: Entry) -> None:
        """The message is the last of the run."""
        number = entry[NUMBER]
        if number == self._lasts[-1] + 1:
            self._lasts[-1] = number
        else:
            self._firsts.append(number)
            self._lasts.append(number)
        self.count += 1
        self.bytes += len(entry[DATA])
        if entry[EXPIRES] and (not self.expires or entry[EXPIRES] < self.expires):
            self.expires = entry[EXPIRES]

    def follows(self, entry: Entry) -> bool:
        """Whether `extend` may be called with messages that never expire, of which this is the first."""
        return not self.expires and entry[NUMBER] == self._lasts[-1] + 1 and len(self._firsts) < MOST_STRETCHES

    def extend(self, last: int, count: int, size: int) -> None:
        """So many messages with consecutive numbers, up to `last`, are the last of the run."""
        self._lasts[-1] = last
        self.count += count
        self.bytes += size

    def numbers(self) -> Iterator[int]:
        """Of all messages of the run, ascending; nothing may change meanwhile."""
        removed = frozenset(self._removed or ())
        for first, last in zip(self._firsts, self._lasts, strict=True):
            for number in range(max(first, self.first), last + 1):
                if number not in removed:
                    yield number

    def holds(self, number: int) -> bool:
        """Whether the message is one of the run and has not left it."""
        return number >= self.first and self._held(number)

    def _held(self, number: int) -> bool:
        """Whether it has not left from the middle; those that left at the front count."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0 or number > self._lasts[at]:
            return False
        removed = self._removed
        if removed is None:
            return True
        at = bisect_left(removed, number)
        return at == len(removed) or removed[at] != number

    def _stretch(self, number: int) -> int:
        """Which stretch the message is in; if it is in none, the next one, or the last."""
        at = max(bisect_right(self._firsts, number) - 1, 0)
        return at + 1 if number > self._lasts[at] and at + 1 < len(self._firsts) else at

    def near(self, number: int) -> tuple[int, int]:
        """The first and the last number of the stretches that are read at once, from this number on, which is not above
        `last`. What lies between two that are far from each other is not this queue's, or of another priority."""
        firsts, lasts = self._firsts, self._lasts
        at = self._stretch(number)
        begin = max(number, firsts[at])
        most = min(at + CLOSE_STRETCHES, len(firsts) - 1)
        while at < most and firsts[at + 1] - lasts[at] <= CLOSE:
            at += 1
        return begin, lasts[at]

    def own(self, entries: list[Entry]) -> list[Entry]:
        """Those of the entries that are of the run."""
        if self._removed is None and len(self._firsts) == 1:
            return entries
        return [entry for entry in entries if self._held(entry[NUMBER])]

    def remove(self, number: int) -> None:
        """The message leaves from the middle; `count` and `bytes` are the caller's."""
        if number < self.last and number <= max(self.first, self._firsts[self._stretch(self.first)]):
            self.first = number + 1
            return
        if self._removed is None:
            self._removed = array("Q")
        if not self._removed or number > self._removed[-1]:
            self._removed.append(number)
        else:
            insort(self._removed, number)
        if len(self._removed) % MOST_REMOVED == 0:
            self._divide()

    def _divide(self) -> None:
        """Make gaps between stretches of what has left from the middle: where one message is left behind while others
        pass it for weeks, a number for each of them would be kept. The first number is never among them (`remove`), and
        the last one stays, so that the run begins and ends where it did. Where the gaps are far from each other, too
        many stretches would have to be looked at for one turn.
        """
        removed = self._removed
        assert removed is not None
        low, upto = self._stretch(removed[0]), self._stretch(removed[-1]) + 1
        if upto - low > MOST_STRETCHES:
            return
        gone = iter(removed[: bisect_left(removed, self.last)])
        left = next(gone, None)
        firsts, lasts = array("Q"), array("Q")
        for first, last in zip(self._firsts[low:upto], self._lasts[low:upto], strict=True):
            begin = first
            while left is not None and left <= last:
                if begin < left:
                    firsts.append(begin)
                    lasts.append(left - 1)
                begin, left = left + 1, next(gone, None)
            if begin <= last:
                firsts.append(begin)
                lasts.append(last)
        self._firsts[low:upto], self._lasts[low:upto] = firsts, lasts
        self._removed = removed[bisect_left(removed, self.last) :] or None

    def end_before(self, number: int) -> None:
        """The messages from this number on are the run's no longer; `count` and `bytes` are the caller's."""
        at = bisect_left(self._firsts, number)
        del self._firsts[at:], self._lasts[at:]
        self._lasts[-1] = min(self._lasts[-1], number - 1)

    def split(self, number: int) -> Run | None:
        """The messages from this number on, as another run; None if there are none. This one keeps those before, of
        which there must be some. How the bytes divide is estimated. For runs of which nothing was removed.
        """
        if number > self.last:
            return None
        at = bisect_left(self._lasts, number)
        rest = Run.of(self._firsts[at:], self._lasts[at:], 0, 0, self.expires)
        rest.first = rest._firsts[0] = max(rest.first, number)
        rest.count = sum(rest._lasts) - sum(rest._firsts) + len(rest._firsts)
        rest.bytes = self.bytes * rest.count // self.count
        self.end_before(number)
        self.count -= rest.count
        self.bytes -= rest.bytes
        return rest
