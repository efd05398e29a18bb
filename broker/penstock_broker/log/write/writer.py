"""The end of the log: puts blocks into segments, one `pwrite` per block, and begins the next segment when one is full.

Knows what a block is. Of the records it knows only that a put needs its route set defined in its own segment, and how
to cut what one segment can't hold.
"""

import errno
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

from penstock_broker.log.disk.failure_file import FailureFile
from penstock_broker.log.disk.files import Buffer, FileLayer, write_all
from penstock_broker.log.disk.spare_segments import SpareSegments, segment_name
from penstock_broker.log.format.blocks import (
    BLOCK_HEADER,
    SEGMENT_START,
    BlockFlag,
    SegmentHeader,
    encode_segment_header,
    seal_block,
    seed_of,
)
from penstock_broker.log.format.record_codec import (
    PUT,
    RecordType,
    checkpoint_records,
    decode_records,
    definition_bytes,
)
from penstock_broker.log.format.records import Ack, Commit, Put
from penstock_broker.log.format.route_sets import RouteSets, SegmentRoutes
from penstock_broker.log.segments.segment import Segment
from penstock_broker.log.segments.segment_usage import SegmentUsage
from penstock_broker.log.write.checkpoint import CheckpointSchedule

LOGGER = logging.getLogger(__name__)

HEADER_SPACE = bytes(BLOCK_HEADER.size)
"""What a block begins with until `SegmentWriter.write_block` fills it in."""

Puts = Mapping[int, list[int]]  # route set -> messages, ascending
_FIRST, _LAST = itemgetter(0), itemgetter(-1)


class NoSegmentLeft(OSError):
    """Even the reserve is used up: there is no place for acks and topology."""


class SegmentWriter:
    """Writes at the end of the newest segment. All methods that write raise OSError: then call `fail`."""

    def __init__(
        self,
        files: FileLayer,
        folder: Path,
        usage: SegmentUsage,
        spares: SpareSegments,
        schedule: CheckpointSchedule,
        routes: RouteSets,
        *,
        log_id: bytes,
        segment_bytes: int,
        epoch: int,
        sequence: int,
        clock: Callable[[], int],
    ) -> None:
        """Go on behind block `sequence`, the last one recovered. Everything up to it is synced.

        `clock`: milliseconds since 1970.
        """
        self._files, self.folder, self._spares = files, folder, spares
        self.usage, self.schedule, self.routes = usage, schedule, routes
        self._defined = SegmentRoutes()
        self._definitions: dict[int, bytes] = {}  # of route sets, in the block that was put together last
        self._log_id, self.seed, self._clock = log_id, seed_of(log_id), clock
        self.segment_bytes = segment_bytes
        self.epoch = epoch
        """How often the log has been opened."""
        self.sequence = self.synced = self.usage.written = sequence
        """`sequence`: the last block written; `synced`: the last block known to survive a crash of the machine."""
        self.lasting = sequence
        """The last block with something that is to outlive the process."""
        self.dirty: set[int] = set()
        """Handles of files that were written to since the last fdatasync was begun."""
        self.has_new_name = False
        """A segment got its name since the last sync of the folder was begun."""
        self.failed: str | None = None
        """Why nothing more is written until the next start; None while all is well."""
        self.failure_file = FailureFile(files, folder)
        """Tells the next start of it."""

    @property
    def capacity(self) -> int:
        """Bytes of records that one block in an empty segment can hold."""
        return self.segment_bytes - SEGMENT_START - 2 * BLOCK_HEADER.size

    def fail(self, reason: str) -> None:
        """A write or fdatasync has failed: nothing more is written. Only the first reason is kept."""
        if self.failed is None:
            self.failed = reason
            self.failure_file.leave()
            LOGGER.critical("the log has failed and takes no durable work until the broker is restarted: %s", reason)

    def place(self, records: list[Buffer], puts: Puts, first_message: int, other_bytes: int = 0) -> list[Segment]:
        """Write records as one block, as several if no segment could hold them; the segments written to.

        `puts`: the messages that the records put. `first_message`: no put in here has a lower number. `other_bytes`:
        bytes of records that are no puts.
        """
        segment = self.usage.segments[-1]
        block = self._join(records, puts)
        if segment.end + len(block) > segment.limit:
            segment = self.begin_next_segment(first_message)
            block = self._join(records, puts)
            if segment.end + len(block) > segment.limit:
                return self._place_pieces(records, first_message)
        if not puts:
            self.write_block(segment, block)
            return [segment]
        begin, size = segment.end, len(block) - BLOCK_HEADER.size - other_bytes
        self.write_block(segment, block)
        incarnations = self.routes.incarnations
        for number, definition in self._definitions.items():
            size -= len(definition)
            segment.definitions[number] = begin
            self._defined.note(number, incarnations[number])
        segment.put_bytes += size
        if size > segment.largest_put:
            segment.largest_put = size
        segment.blocks.note(min(map(_FIRST, puts.values())), max(map(_LAST, puts.values())), begin)
        for route_set, messages in puts.items():
            self.usage.put(segment, incarnations[route_set], messages)
        return [segment]

    def _place_pieces(self, records: list[Buffer], first_message: int) -> list[Segment]:
        # Half a segment, so that a record of half a segment fits with the route sets it needs.
        pieces = list(split_records(records, self.capacity // 2, self._longest_definition))
        if len(pieces) == 1:
            raise OSError(errno.EFBIG, f"a record and its route sets take more than a segment of {self.segment_bytes}")
        touched: list[Segment] = []
        for piece in pieces:
            at = piece.first_message or first_message
            touched += self.place(piece.records, piece.puts, at, piece.other_bytes)
            first_message = max([first_message, *(messages[-1] + 1 for messages in piece.puts.values())])
        return touched

    def _longest_definition(self, route_set: int) -> int:
        return definition_bytes(len(self.routes.incarnations[route_set]))

    def _join(self, records: list[Buffer], puts: Puts) -> bytearray:
        is_defined = not puts or puts.keys() <= self._defined.numbers
        self._definitions = {} if is_defined else self._define(puts)
        return bytearray().join([HEADER_SPACE, *self._definitions.values(), *records])

    def _define(self, puts: Puts) -> dict[int, bytes]:
        incarnations, defined = self.routes.incarnations, self._defined
        return {
            number: defined.definition(number, incarnations[number]) for number in puts if number not in defined.numbers
        }

    def write_block(self, segment: Segment, block: bytearray, flags: BlockFlag = BlockFlag.NONE) -> None:
        """Write one block, which begins with `HEADER_SPACE` and fits into the newest segment."""
        sequence, begin, handle = self.sequence + 1, segment.end, segment.handle
        seal_block(
            block,
            self.seed,
            segment=segment.number,
            offset=begin,
            flags=flags,
            epoch=self.epoch,
            sequence=sequence,
            synced=self.synced,
            time_ms=self._clock(),
        )
        write_all(self._files, handle, block, begin)
        self.sequence = self.usage.written = self.lasting = sequence
        self.schedule.written += len(block)
        self.dirty.add(handle)
        segment.end = begin + len(block)

    def begin_next_segment(self, first_message: int) -> Segment:
        """Seal the newest segment and begin the next. A recovered log may end with a seal: then it has it already."""
        current = self.usage.segments[-1]
        if current.end < current.size:
            self.write_block(current, bytearray(HEADER_SPACE), BlockFlag.SEAL)
        self.begin_segment(current.number + 1, first_message)
        self.schedule.segment_begun = True
        return self.usage.segments[-1]

    def begin_segment(self, number: int, first_message: int) -> None:
        """Make a spare the newest segment. Its name and its header are durable with its first block: see `Sync`."""
        if not self._spares.full and len(self._spares) <= self._spares.reserve:
            self._spares.fill_one()
        spare = self._spares.take()
        if spare is None:
            raise NoSegmentLeft(
                "no segment is left for acknowledgements and topology: "
                f"give the volume more space, at least {self.segment_bytes} bytes"
            )
        header = SegmentHeader(number, self.segment_bytes, self._log_id, self._clock())
        write_all(self._files, spare.handle, encode_segment_header(header), 0)
        path = self.folder / segment_name(number)
        self._files.rename(spare.path, path)
        self.has_new_name = True
        self._defined.clear()
        self.usage.add_segment(Segment(number, path, spare.handle, self.segment_bytes, SEGMENT_START, first_message))

    def segments_for(self, records: Sequence[bytes]) -> int:
        """How many segments `write_checkpoint` would begin for these records."""
        segment, size = self.usage.segments[-1], sum(map(len, records)) + 2 * BLOCK_HEADER.size
        if size <= segment.room:
            return 0
        if size <= self.capacity:
            return 1
        room = count = 0
        for piece in split_records(list(checkpoint_records(self.sequence + 1, records)), self.capacity // 2):
            if piece.size > room:
                room, count = self.capacity, count + 1
            room -= piece.size + BLOCK_HEADER.size
        return count

    def write_checkpoint(self, records: Sequence[bytes], first_message: int) -> None:
        """Write a checkpoint of these records.

        Called between turns: a checkpoint must not show half of what one block does as a whole.
        """
        first, *_ = self.place(list(checkpoint_records(self.sequence + 1, records)), {}, first_message)
        self.schedule.note_checkpoint(self.sequence, first.number)

    def note_synced(self, sequence: int) -> None:
        """Every block up to `sequence` is synced."""
        self.synced = sequence
        if self.schedule.unsynced:
            self.schedule.note_synced(sequence)


# A turn larger than a segment -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Piece:
    """Records for one block.

    `puts`: message numbers by route set; `first_message`: the lowest message put here, 0 if none is; `size`: bytes of
    the records and the route sets; `other_bytes`: bytes of records without a put.
    """

    records: list[Buffer] = field(default_factory=list[Buffer])
    puts: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    first_message: int = 0
    size: int = 0
    other_bytes: int = 0


def split_records(
    buffers: Sequence[Buffer], largest: int, definition: Callable[[int], int] = lambda _: 0
) -> Iterator[Piece]:
    """Cut the records of one write into pieces of at most `largest` bytes; no record is cut.

    A put is two buffers, its fixed part and its payload; every other record is one, a commit too. `definition`: bytes
    that a route set takes at most, once in each piece with a put that names it.
    """
    piece = Piece()
    for record in record_buffers(buffers):
        size = sum(map(len, record))
        puts = list(_puts_in(record[0]))
        routes = {route_set for route_set, _ in puts}
        more = size + sum(map(definition, routes - piece.puts.keys()))
        if piece.records and piece.size + more > largest:
            yield piece
            piece, more = Piece(), size + sum(map(definition, routes))
        piece.records += record
        piece.size += more
        if not puts:
            piece.other_bytes += size
        for route_set, message in puts:
            piece.puts.setdefault(route_set, []).append(message)
            piece.first_message = piece.first_message or message
    if piece.records:
        yield piece


def record_buffers(buffers: Sequence[Buffer]) -> Iterator[list[Buffer]]:
    """The buffers of each record: two of a put, one of every other."""
    iterator = iter(buffers)
    for buffer in iterator:
        if buffer[0] in (RecordType.PUT, RecordType.VOLATILE_PUT):
            yield [buffer, next(iterator)]
        else:
            yield [buffer]


def _puts_in(record: Buffer) -> Iterator[tuple[int, int]]:
    """Route set and message of the put that begins with this buffer, or of each put in this commit."""
    match record[0]:
        case RecordType.PUT | RecordType.STAGED_PUT | RecordType.VOLATILE_PUT:
            _, _, _, _, route_set, _, message, _ = PUT.unpack_from(record)
            yield route_set, message
        case RecordType.COMMIT:
            for item in decode_records(memoryview(record)):
                assert isinstance(item, Commit)
                for inner in item.records:
                    if not isinstance(inner, Ack):
                        put = inner if isinstance(inner, Put) else inner.put
                        yield put.route_set, put.message
        case _:
            pass
