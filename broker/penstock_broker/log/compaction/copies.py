"""Writes what compaction copies: puts and parts of bodies, in blocks of their own at the end of the log.

Whether something is alive is decided here, in the turn in which its copy is written. What was copied is moved in
`SegmentUsage` at once; the old segment is released by the block with the copy.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock_broker.log.compaction.live_contents import LiveContents, PartRecord
from penstock_broker.log.disk.files import Buffer
from penstock_broker.log.format.blocks import BLOCK_HEADER
from penstock_broker.log.format.record_codec import PART, moved_part, redirected, route_record
from penstock_broker.log.recovery.bodies import Extent, StagedBody
from penstock_broker.log.segments.segment import Segment, Tally
from penstock_broker.log.segments.segment_usage import SegmentUsage
from penstock_broker.log.write.writer import HEADER_SPACE, SegmentWriter

MOST_ROUTES = 1000
"""Route sets of copies that are remembered; others are defined again."""

Routes = dict[tuple[int, ...], int]
"""Numbers of route sets, by the queues for which they stand."""


class _Put(NamedTuple):
    message: int
    record: bytes
    queues: tuple[int, ...]


class CopyWriter:
    """Writes copies. All methods that write raise OSError."""

    def __init__(self, usage: SegmentUsage, writer: SegmentWriter) -> None:
        self._usage, self._writer = usage, writer
        self.first_message = 0
        """No put of a new message that is still to be written has a lower number. The caller keeps it up to date."""
        self._defined_in: Segment | None = None
        self._routes: Routes = {}  # those that were defined in that segment

    def puts(self, found: LiveContents, chunk: Sequence[tuple[int, bytes]]) -> None:
        """Copy those of these puts, by position and record, that are alive now."""
        alive = [
            _Put(found.number_of(position), record, queues)
            for position, record in chunk
            if (queues := found.queues_of(position))
        ]
        if alive:
            self._write_puts(found.segment, alive)

    def parts(self, source: Segment, chunk: Sequence[tuple[PartRecord, bytes]]) -> None:
        """Copy those of these parts, with their records, to which something still refers."""
        records: list[Buffer] = []
        copied: list[tuple[StagedBody, int, int, int]] = []  # body, index of its part, where its data begin, length
        at = BLOCK_HEADER.size
        for part, record in chunk:
            place = self._part(source, part)
            if place is not None:
                records.append(moved_part(record))
                copied.append((*place, at + PART.size, part.length - PART.size))
                at += part.length
        if not copied:
            return
        block = bytearray().join([HEADER_SPACE, *records])
        target = self._usage.segments[-1]
        if target.end + len(block) > target.limit:
            target = self._writer.begin_next_segment(self.first_message)
        begin = target.end
        self._writer.write_block(target, block)
        for body, index, start, length in copied:
            body.move_part(index, Extent(target, begin + start, length, begin))

    def holds(self, segment: Segment, part: PartRecord) -> bool:
        """Whether something still refers to this part in this segment."""
        return self._part(segment, part) is not None

    def _part(self, segment: Segment, part: PartRecord) -> tuple[StagedBody, int] | None:
        body = self._usage.staged.get(part.body)
        if not isinstance(body, StagedBody):
            return None
        index = body.part_at(part.offset, segment, part.at)
        return None if index is None else (body, index)

    def _write_puts(self, source: Segment, alive: Sequence[_Put]) -> None:
        writer, usage = self._writer, self._usage
        target = usage.segments[-1]
        block, defined = self._block(target, alive)
        if target.end + len(block) > target.limit:
            target = writer.begin_next_segment(self.first_message)
            block, defined = self._block(target, alive)
            if target.end + len(block) > target.limit:  # because of its route sets
                middle = len(alive) // 2
                self._write_puts(source, alive[:middle])
                self._write_puts(source, alive[middle:])
                return
        target.blocks.note(alive[0].message, alive[-1].message, target.end)
        target.definitions |= dict.fromkeys(defined.values(), target.end)
        writer.write_block(target, block)
        self._note_routes(target, defined)
        size = sum(len(put.record) for put in alive)
        target.put_bytes += size
        target.largest_put = max(target.largest_put, size)
        usage.move(source, target, (alive[0].message, alive[-1].message), _tallies(alive), writer.sequence)

    def _block(self, target: Segment, alive: Sequence[_Put]) -> tuple[bytearray, Routes]:
        """The puts, behind the definitions of the route sets that this segment lacks; and these route sets."""
        known = self._routes if self._defined_in is target else {}
        defined: Routes = {}
        records: list[Buffer] = [HEADER_SPACE]
        for put in alive:
            number = known.get(put.queues) or defined.get(put.queues)
            if number is None:
                number = defined[put.queues] = self._writer.routes.fresh()
                records.append(route_record(number, put.queues))
            records.append(redirected(put.record, number))
        return bytearray().join(records), defined

    def _note_routes(self, target: Segment, defined: Routes) -> None:
        if self._defined_in is not target or len(self._routes) > MOST_ROUTES:
            self._defined_in, self._routes = target, {}
        self._routes.update(defined)


def _tallies(alive: Sequence[_Put]) -> dict[int, Tally]:
    """What of each queue is among these messages."""
    together: dict[tuple[int, ...], Tally] = {}
    for put in alive:
        together.setdefault(put.queues, Tally()).add(1, put.message)
    moved: dict[int, Tally] = {}
    for queues, each in together.items():
        for incarnation in queues:
            moved.setdefault(incarnation, Tally()).add(each.count, each.total)
    return moved
