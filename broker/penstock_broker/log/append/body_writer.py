"""Takes in bodies that come in parts, and writes their parts into segments, before any put names them.

Source: docs/decisions/034-large-messages.md.
"""

from collections import deque
from collections.abc import Sequence

from penstock_broker.log.append.space import NoRoom, Space
from penstock_broker.log.disk.files import Buffer, FileLayer
from penstock_broker.log.format.blocks import BLOCK_HEADER
from penstock_broker.log.format.record_codec import PART, part_prefix
from penstock_broker.log.recovery.bodies import Extent, LargePayload, StagedBody
from penstock_broker.log.segments.checked_blocks import CheckedBlocks
from penstock_broker.log.segments.segment_usage import SegmentUsage
from penstock_broker.log.write.checkpoint import Numbers
from penstock_broker.log.write.writer import HEADER_SPACE, SegmentWriter

GATHERED_BYTES = 256 * 1024
"""Bytes of parts that are gathered before they are written."""
_LEAST_PART = 4096
"""Bytes of the shortest part for which a longer piece is cut, to fill the rest of a segment."""


class BodyWriter:
    """The bodies under way: what of them waits in memory, and what is written and not yet known to be synced."""

    def __init__(
        self,
        files: FileLayer,
        usage: SegmentUsage,
        writer: SegmentWriter,
        numbers: Numbers,
        space: Space,
        inline_bytes: int,
    ) -> None:
        """`inline_bytes`: longer payloads stay in the segments, see `payload_of`."""
        self._files, self._usage, self._writer = files, usage, writer
        self._blocks = CheckedBlocks(files, writer.seed)
        self._numbers, self._space, self._inline_bytes = numbers, space, inline_bytes
        # Less than the room that is left where publishing is still accepted, so that the reserve stays.
        self._gathered = min(GATHERED_BYTES, writer.capacity // 16)
        self._waiting: dict[StagedBody, list[Buffer]] = {}
        self.waiting_bytes = 0
        """Bytes of parts that wait in memory."""
        self._written_bytes = 0  # written, and not known to be synced when last looked at
        self._written: deque[tuple[int, int]] = deque()  # of these, (block, bytes)

    @property
    def unsynced_bytes(self) -> int:
        """Bytes of parts that were taken in and would be lost if the machine crashed now."""
        self._forget_synced()
        return self._written_bytes + self.waiting_bytes

    def stage(self) -> StagedBody:
        """A new, empty body."""
        return StagedBody(self._numbers.next_message(), self._files, self._usage, self._blocks)

    def append(self, body: StagedBody, data: Buffer) -> None:
        """Take in the body's next bytes, which must not change any more; they may be written now. Raises NoRoom."""
        for start in range(0, len(data), self._gathered):
            if not self._space.accepts_publishing():
                raise NoRoom("the log takes no bodies: the disk is full, or the log has failed")
            self.append_unasked(body, data[start : start + self._gathered])

    def append_unasked(self, body: StagedBody, data: Buffer) -> None:
        """As `append`, but without a check for free space: the caller has done that; the reserve is used if it is not
        enough."""
        self.hold_back(body, data)
        if self.waiting_bytes >= self._gathered:
            self.write()

    def hold_back(self, body: StagedBody, data: Buffer) -> None:
        """As `append_unasked`, but nothing is written before a call of `write`."""
        self._waiting.setdefault(body, []).append(data)
        body.length += len(data)
        self.waiting_bytes += len(data)

    def discard(self, body: StagedBody) -> None:
        """The body is no longer needed, even if it is still referred to. From now on it can't be read."""
        self.waiting_bytes -= sum(map(len, self._waiting.pop(body, ())))
        body.forget_places()
        self._usage.release_body(body.segments)

    def payload_of(self, body: StagedBody, head: bytes, offset: int) -> bytes:
        """The payload that begins with `head` and goes on with `body` from `offset` on. Raises NoRoom.

        Up to `inline_bytes` it is plain bytes, else a LargePayload that keeps the body.
        """
        self.write()
        if self._writer.failed is not None:
            raise NoRoom(self._writer.failed)
        if len(head) + body.length - offset > self._inline_bytes:
            return LargePayload.of(head, body, offset)
        return head + body.read(offset, body.length - offset, is_checked=False)  # it was written just now

    def write(self) -> None:
        """Write all parts that wait. If that fails, the log has failed; then the parts are dropped."""
        pieces = [(body, b"".join(buffers)) for body, buffers in self._waiting.items()]
        self._waiting.clear()
        self.waiting_bytes = 0
        if not pieces or self._writer.failed is not None:
            return
        try:
            self._write_pieces(pieces)
        except OSError as error:
            self._writer.fail(f"writing failed: {error}")

    def _write_pieces(self, pieces: Sequence[tuple[StagedBody, Buffer]]) -> None:
        """Write the next bytes of each body in blocks of their own, cut where a segment ends."""
        segments = self._usage.segments
        records: list[Buffer] = []
        placed: list[tuple[StagedBody, int, int]] = []  # body, where its data begin behind the header, length
        used = 0
        for body, data in pieces:
            rest, offset = memoryview(data), body.placed
            while rest:
                room = segments[-1].room - used - PART.size
                if room < min(len(rest), _LEAST_PART):
                    self._write_block(records, placed)
                    used = 0
                    if segments[-1].room - PART.size < min(len(rest), _LEAST_PART):
                        self._writer.begin_next_segment(self._numbers.first_unwritten)
                    continue
                size = min(room, GATHERED_BYTES)  # compaction copies a part as a whole
                taken, rest = rest[:size], rest[size:]
                records += [part_prefix(body.number, offset, len(taken)), taken]
                placed.append((body, used + PART.size, len(taken)))
                used += PART.size + len(taken)
                offset += len(taken)
        self._write_block(records, placed)

    def _write_block(self, records: list[Buffer], placed: list[tuple[StagedBody, int, int]]) -> None:
        if not records:
            return
        segment = self._usage.segments[-1]
        begin = segment.end
        start = begin + BLOCK_HEADER.size
        self._writer.write_block(segment, bytearray().join([HEADER_SPACE, *records]))
        for body, at, length in placed:
            body.place(Extent(segment, start + at, length, begin))
        written = sum(length for _, _, length in placed)
        self._forget_synced()
        self._written.append((self._writer.sequence, written))
        self._written_bytes += written
        records.clear()
        placed.clear()

    def _forget_synced(self) -> None:
        while self._written and self._written[0][0] <= self._writer.synced:
            self._written_bytes -= self._written.popleft()[1]
