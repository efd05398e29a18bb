"""Blocks into segments: where the next block goes, when a segment is sealed, when topology is restated. One pwrite
per block.

Knows what a block is and nothing of what the records mean, but that a put needs its route set defined in its own
segment.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from penstock_broker.log.blocks import (
    BLOCK_HEADER,
    SEGMENT_START,
    BlockFlag,
    BlockHeader,
    SegmentHeader,
    encode_segment_header,
    padded,
    seal_block,
    seed_of,
)
from penstock_broker.log.bodies import Extent, StagedBody
from penstock_broker.log.encoding import part_prefix, route_record
from penstock_broker.log.files import Buffer, FileLayer, write_all
from penstock_broker.log.segment_usage import Living, Segment
from penstock_broker.log.records import PART
from penstock_broker.log.ack_compaction import Restated
from penstock_broker.log.spare_segments import Spares, segment_name
from penstock_broker.log.splitting import split_records

_HEADER_SPACE = bytes(BLOCK_HEADER.size)
_SEAL = BLOCK_HEADER.size
_LEAST_PART = 4096  # a shorter part of a longer piece is not worth the end of a segment

Puts = Mapping[int, list[int]]  # route set -> messages


class NoSegmentLeft(OSError):
    """Even the reserve is used up: acks and topology have no place."""


class Writer:
    """The end of the log.

    `sequence`: last block written; `synced`: last block known to survive a crash of the machine.
    """

    def __init__(
        self, files: FileLayer, folder: Path, living: Living, spares: Spares, *, log_id: bytes, clock: Callable[[], int]
    ) -> None:
        self._files, self._folder, self._spares = files, folder, spares
        self.living = living
        self._log_id, self.seed, self._clock = log_id, seed_of(log_id), clock
        self.epoch = self.sequence = self.synced = 0
        self.reserve = 0
        self.segment_bytes = 0
        self.routes: dict[int, tuple[int, ...]] = {}
        self.dirty: set[int] = set()  # handles written to since the last fdatasync was begun
        # Makes the records of a checkpoint, or None if it is not due; told how many bytes were written since the last.
        self.checkpoint: Callable[[int], list[Buffer] | None] = lambda written: None
        # (last block, segment) of checkpoints not known synced; segments below `kept_from` hold no needed topology.
        self._checkpoints: list[tuple[int, int]] = []
        self.kept_from = 0
        self._since_checkpoint = 0
        self._rotated = False
        self.unsynced_parts = 0
        """Bytes of bodies that are written and not known synced."""
        self._parts: deque[tuple[int, int]] = deque()  # of these, by block

    def start(self, *, epoch: int, sequence: int, kept_from: int) -> None:
        """Go on behind what was recovered, all of it synced."""
        self.epoch, self.kept_from = epoch, kept_from
        self.sequence = self.synced = self.living.written = sequence
        # A run that ended before its checkpoint left segments that only one can free.
        self._since_checkpoint = sum(each.end for each in self.living.segments if each.number >= kept_from)
        self._rotated = self._since_checkpoint > self.segment_bytes

    @property
    def capacity(self) -> int:
        """Bytes of records that one block in an empty segment can hold."""
        return self.segment_bytes - SEGMENT_START - 2 * BLOCK_HEADER.size

    def place(self, records: list[Buffer], puts: Puts, first_message: int) -> list[Segment]:
        """Write records as one block, as several if no segment could hold them; the segments written to.

        `first_message`: no put in here has a lower number. OSError: nothing may be written any more.
        """
        segment = self.living.segments[-1]
        block = self._join(segment, records, puts)
        if not segment.fits(padded(len(block)), _SEAL):
            segment = self._rotate(first_message)
            block = self._join(segment, records, puts)
            if not segment.fits(padded(len(block)), _SEAL):
                return self._place_parts(records, first_message)
        self._write_block(segment, block, BlockFlag.NONE)
        segment.routes.update(puts)
        for route_set, messages in puts.items():
            self.living.put(segment, self.routes[route_set], messages)
        return [segment]

    def _place_parts(self, records: list[Buffer], first_message: int) -> list[Segment]:
        # Half a segment, so that a part fits with the route sets it needs.
        touched: list[Segment] = []
        for part in split_records(records, self.capacity // 2):
            touched += self.place(part.records, part.puts, part.first_message or first_message)
            first_message = max([first_message, *(messages[-1] for messages in part.puts.values())])
        return touched

    def _join(self, segment: Segment, records: list[Buffer], puts: Puts) -> bytearray:
        routes = [route_record(number, self.routes[number]) for number in puts if number not in segment.routes]
        return bytearray().join([_HEADER_SPACE, *routes, *records])

    def write_parts(self, pieces: Sequence[tuple[StagedBody, Buffer]], first_message: int) -> None:
        """Write what came of bodies in blocks of its own, cut where a segment ends, and tell each body where it lies.

        `first_message` and OSError as for `place`.
        """
        records: list[Buffer] = []
        placed: list[tuple[StagedBody, int, int]] = []  # body, where its data begin behind the header, length
        used = 0
        for body, data in pieces:
            rest, offset = memoryview(data), body.placed
            while rest:
                room = self.living.segments[-1].room - used - PART.size
                if room < min(len(rest), _LEAST_PART):
                    self._write_placed(records, placed)
                    used = 0
                    if self.living.segments[-1].room - PART.size < min(len(rest), _LEAST_PART):
                        self._rotate(first_message)
                    continue
                taken, rest = rest[:room], rest[room:]
                records += [part_prefix(body.number, offset, len(taken)), taken]
                placed.append((body, used + PART.size, len(taken)))
                used += PART.size + len(taken)
                offset += len(taken)
        self._write_placed(records, placed)

    def _write_placed(self, records: list[Buffer], placed: list[tuple[StagedBody, int, int]]) -> None:
        if not records:
            return
        segment = self.living.segments[-1]
        start = segment.end + BLOCK_HEADER.size
        self._write_block(segment, bytearray().join([_HEADER_SPACE, *records]), BlockFlag.NONE)
        for body, at, length in placed:
            body.place(Extent(segment, start + at, length))
        written = sum(length for _, _, length in placed)
        self._parts.append((self.sequence, written))
        self.unsynced_parts += written
        records.clear()
        placed.clear()

    def _write_block(self, segment: Segment, block: bytearray, flags: BlockFlag) -> None:
        sequence = self.sequence + 1
        length = len(block) - BLOCK_HEADER.size
        order = (self.epoch, sequence, self.synced, self._clock())
        seal_block(block, self.seed, BlockHeader(segment.number, segment.end, length, flags, *order))
        write_all(self._files, segment.handle, block, segment.end)
        self.sequence = self.living.written = sequence
        self._since_checkpoint += len(block)
        self.dirty.add(segment.handle)
        segment.end += len(block)

    def _rotate(self, first_message: int) -> Segment:
        """Seal the segment being written and begin the next."""
        current = self.living.segments[-1]
        self._write_block(current, bytearray(_HEADER_SPACE), BlockFlag.SEAL)
        self.begin_segment(current.number + 1, first_message)
        self._rotated = True
        return self.living.segments[-1]

    def write_checkpoint(self, first_message: int) -> None:
        """Restate topology, if a segment was begun since the last call and it is due.

        Called between turns: a checkpoint must not show half of what one block does as a whole.
        """
        if not self._rotated:
            return
        self._rotated = False
        records = self.checkpoint(self._since_checkpoint)
        if records is None:
            return
        first, *_ = self.place(records, {}, first_message)
        self._rotated = False
        self._since_checkpoint = 0
        self._checkpoints.append((self.sequence, first.number))

    def restate(self, restated: Restated, first_message: int) -> None:
        """Write acks once more; who had them, and nothing else that is needed, is free once that is synced.

        Called between turns. `first_message` and OSError as for `place`.
        """
        touched = self.place(restated.records, {}, first_message) if restated.records else []
        for segment in touched:
            segment.names |= restated.held - {segment.number}
        for source in restated.sources:
            source.names -= restated.held
            source.touched = max(source.touched, self.sequence)

    def begin_segment(self, number: int, first_message: int) -> None:
        """Make a spare the segment being written; its name is durable on return, its header with its first block."""
        if not self._spares.full and len(self._spares) <= self.reserve:
            self._spares.fill_one()
        spare = self._spares.take()
        if spare is None:
            raise NoSegmentLeft("no segment is left for acknowledgements and topology: give the volume more space")
        header = SegmentHeader(number, self.segment_bytes, self._log_id, self._clock())
        write_all(self._files, spare.handle, encode_segment_header(header), 0)
        path = self._folder / segment_name(number)
        self._files.rename(spare.path, path)
        self._files.fsync_folder(self._folder)
        self.living.add_segment(Segment(number, path, spare.handle, self.segment_bytes, SEGMENT_START, first_message))

    def note_synced(self, sequence: int) -> None:
        """Every block up to `sequence` is synced; what an older checkpoint kept may go if a newer one is among them."""
        self.synced = sequence
        while self._parts and self._parts[0][0] <= sequence:
            self.unsynced_parts -= self._parts.popleft()[1]
        while self._checkpoints and self._checkpoints[0][0] <= sequence:
            self.kept_from = self._checkpoints.pop(0)[1]
