"""The puts of one block, and what a read gathers of such blocks: for queues that read deep backlogs back.

Most blocks of a deep backlog hold plain puts of one route set, one after the other. Of these the reader looks only at
what stands before the payloads: who asked makes of the bytes what it needs, once for all queues that read the same.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock_broker.log.format.puts import PutStretch, puts_in
from penstock_broker.log.format.records import Put
from penstock_broker.log.segments.segment_usage import Segment

__all__ = ["Gathering", "PutBlock", "Reading"]


class PutBlock:
    """The puts of one block with a payload of their own."""

    __slots__ = (
        "_made", "_puts", "at", "bytes", "count", "end", "first", "flags", "last", "route_set", "segment", "stretch",
    )  # fmt: skip

    def __init__(self, segment: Segment, at: int, end: int, found: PutStretch | list[Put]) -> None:
        """`at`: where the block begins in the segment, `end`: where the next one does; `found`: ascending."""
        self.segment, self.at, self.end = segment, at, end
        self._made: list[Any] | None = None
        self._puts: list[Put] | None = None
        self.stretch: PutStretch | None = None
        """The bytes of the puts, if these are plain and nobody has made anything of them yet."""
        self.route_set: int | None
        """All of them are of this one; None: of several, or there is none."""
        self.flags = 0
        """Of each put of a stretch."""
        if isinstance(found, PutStretch):
            self.stretch = found
            self.first, self.last, self.count, self.bytes = found.first, found.last, found.puts, found.bytes
            self.route_set, self.flags = found.route_set, found.flags
        else:
            self._puts, self.count = found, len(found)
            self.bytes = sum([len(put.payload) for put in found])
            self.first, self.last = (found[0].message, found[-1].message) if found else (-1, -1)
            route_sets = {put.route_set for put in found}
            self.route_set = route_sets.pop() if len(route_sets) == 1 else None

    @property
    def made(self) -> list[Any] | None:
        """What was made of the bytes: one thing for each put, the same for all who read them. It must not be changed."""
        return self._made

    @made.setter
    def made(self, made: list[Any]) -> None:
        self._made, self.stretch = made, None  # so that no payload is in memory twice

    def puts(self) -> list[Put] | None:
        """By number; None if something else was made of the bytes, so that they have to be read again."""
        if self._puts is None and self.stretch is not None:
            stretch = self.stretch
            self._puts, self.stretch = puts_in(stretch.data, stretch.begin, stretch.end, with_volatile=False), None
        return self._puts


class Reading(NamedTuple):
    """What was found, by number, and the number at which to go on."""

    parts: list[PutBlock | list[Put]]
    """Blocks of which all puts were asked for, and others' puts."""
    following: int

    @property
    def puts(self) -> list[Put]:
        """All of them; for those who make nothing else of the blocks."""
        return [put for part in self.parts for put in (part if isinstance(part, list) else part.puts() or ())]


class Gathering:
    """What one read has found so far."""

    def __init__(self, puts_of: Callable[[PutBlock], list[Put]]) -> None:
        """`puts_of` may raise OSError."""
        self._puts_of = puts_of
        self.parts: list[PutBlock | list[Put]] = []
        self.count = self.bytes = 0
        self.last = -1
        """The highest number."""

    def add(self, block: PutBlock) -> None:
        """All puts of a block that has some. Of a message that was there before, the later put counts."""
        if block.first > self.last:
            self._append(block, block.last, block.count, block.bytes)
        else:
            self.add_puts(self._puts_of(block))

    def add_puts(self, puts: list[Put]) -> None:
        """The same of puts, by number."""
        if not puts:
            return
        size = sum([len(put.payload) for put in puts])
        if puts[0].message > self.last:
            self._append(puts, puts[-1].message, len(puts), size)
            return
        by_number = {put.message: put for put in self._puts()} | {put.message: put for put in puts}
        self.parts = [[by_number[number] for number in sorted(by_number)]]
        self.count, self.last = len(by_number), max(by_number)
        self.bytes += size

    def _append(self, part: PutBlock | list[Put], last: int, count: int, size: int) -> None:
        self.parts.append(part)
        self.last = last
        self.count += count
        self.bytes += size

    def _puts(self) -> list[Put]:
        return [put for part in self.parts for put in (part if isinstance(part, list) else self._puts_of(part))]

    def reading(self, following: int) -> Reading:
        """What was found below this number, at which the next read goes on."""
        if self.last >= following:
            return Reading([[put for put in self._puts() if put.message < following]], following)
        return Reading(self.parts, following)
