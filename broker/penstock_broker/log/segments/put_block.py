"""The puts of one block, and what a read gathers of such blocks: for queues that read deep backlogs back.

Most blocks of a deep backlog hold plain puts of one route set, one after the other. Of these the reader looks only at
what stands before the payloads: who asked makes of the bytes what it needs, once for all queues that read the same.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock_broker.log.format.puts import put_stretch, puts_in
from penstock_broker.log.format.records import Put
from penstock_broker.log.segments.segment import Segment

__all__ = ["Gathering", "PutBlock", "Reading"]


class PutBlock:
    """The puts of one block with a payload of their own."""

    __slots__ = (
        "_puts", "at", "begin", "count", "data", "end", "first", "flags", "last", "made", "route_set",
        "segment", "size", "upto",
    )  # fmt: skip

    def __init__(self, segment: Segment, at: int, end: int, data: bytes, begin: int, upto: int) -> None:
        """`at`: where the block begins in the segment, `end`: where the next one does; `data` has its records from
        `begin` to `upto`.
        """
        self.segment, self.at, self.end = segment, at, end
        self.made: list[Any] | None = None
        """What was made of the bytes: one thing for each put, the same for all who read them. Nobody may change it."""
        self._puts: list[Put] | None = None
        stretch = put_stretch(data, begin, upto)
        if stretch is not None:
            self.data: bytes | None = data
            """The bytes of the puts, from `begin` to `upto`, if these are a stretch (`puts.put_stretch`) of which
            nobody has made anything yet.
            """
            self.begin, self.upto, self.first, self.last, self.count, self.size, routes, self.flags = stretch
            self.route_set: int | None = routes
            """All of them are of this one; None: of several, or there is none."""
            return
        self.data = None
        self.begin = self.upto = self.flags = 0

    def use(self, puts: list[Put]) -> None:
        """These are all puts of a block that are not a stretch, by number."""
        self._puts, self.count = puts, len(puts)
        self.size = sum([len(put.payload) for put in puts])
        self.first, self.last = (puts[0].message, puts[-1].message) if puts else (-1, -1)
        route_sets = {put.route_set for put in puts}
        self.route_set = route_sets.pop() if len(route_sets) == 1 else None

    def keep(self, made: list[Any]) -> None:
        """Something was made of the bytes, which are given up, so that no payload is in memory twice."""
        self.made, self.data = made, None

    def puts(self) -> list[Put] | None:
        """By number; None if something else was made of the bytes, so that they have to be read again."""
        if self._puts is None and self.data is not None:
            self._puts, self.data = puts_in(self.data, self.begin, self.upto, with_volatile=False), None
        return self._puts


class Reading(NamedTuple):
    """What was found, by number, and the number at which to go on."""

    parts: list[PutBlock | list[Put]]
    """Blocks of which all puts were asked for, and others' puts."""
    following: int
    bytes: int
    """Of all payloads."""

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
            self.parts.append(block)
            self.last = block.last
            self.count += block.count
            self.bytes += block.size
        else:
            self.add_puts(self._puts_of(block))

    def add_puts(self, puts: list[Put]) -> None:
        """The same of puts, by number."""
        if not puts:
            return
        size = sum([len(put.payload) for put in puts])
        if puts[0].message > self.last:
            self.parts.append(puts)
            self.last = puts[-1].message
            self.count += len(puts)
            self.bytes += size
            return
        by_number = {put.message: put for put in self._puts()} | {put.message: put for put in puts}
        self.parts = [[by_number[number] for number in sorted(by_number)]]
        self.count, self.last = len(by_number), max(by_number)
        self.bytes = sum([len(put.payload) for put in by_number.values()])

    def _puts(self) -> list[Put]:
        return [put for part in self.parts for put in (part if isinstance(part, list) else self._puts_of(part))]

    def reading(self, following: int) -> Reading:
        """What was found below this number, at which the next read goes on."""
        if self.last >= following:
            puts = [put for put in self._puts() if put.message < following]
            return Reading([puts], following, sum([len(put.payload) for put in puts]))
        return Reading(self.parts, following, self.bytes)
