"""Bodies of messages that came in parts and lie in segments: where each part lies, how a body is read, what keeps it.

A body keeps the segments in which its parts lie for as long as some object refers to it. It is released with its last
reference. If a committed put names it, `SegmentUsage` refers to it until the message has left all its queues.
Compaction moves parts to other segments. Nothing here is on the path of small messages. Measured cost:
docs/reference/performance.md. Source: docs/decisions/034-large-messages.md.
"""

from __future__ import annotations

import logging
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock_broker.log.disk.files import FileLayer
from penstock_broker.log.format.blocks import BLOCK_HEADER
from penstock_broker.log.recovery.replay import PartPlace, Replay
from penstock_broker.log.segments.checked_blocks import CheckedBlocks
from penstock_broker.log.segments.segment import Segment
from penstock_broker.log.segments.segment_usage import SegmentUsage

LOGGER = logging.getLogger(__name__)

_HEAD_BYTES = 64 * 1024
"""Bytes that recovery reads into memory of a large payload that was put without a head."""


class Extent(NamedTuple):
    """Where a part of a body lies: `length` bytes, `at` bytes from the start of a segment's file, in the block that
    begins at byte `block`.
    """

    segment: Segment
    at: int
    length: int
    block: int


class StagedBody:
    """A body that comes in parts, which lie in the log or wait to be written. `len` is what came so far, in bytes."""

    __slots__ = ("__weakref__", "_blocks", "_extents", "_files", "_starts", "_usage", "length", "number", "segments")

    def __init__(self, number: int, files: FileLayer, usage: SegmentUsage, blocks: CheckedBlocks) -> None:
        """An empty body. `number` is from the same series as message numbers; `blocks` reads its parts."""
        self.number = number
        self.length = 0
        self.segments: dict[Segment, int] = {}
        """Bytes of its parts by segment."""
        self._files, self._usage, self._blocks = files, usage, blocks
        self._extents: list[Extent] = []
        self._starts: list[int] = []
        usage.staged[number] = self
        weakref.finalize(self, usage.release_body, self.segments).atexit = False

    def __len__(self) -> int:
        return self.length

    def __bool__(self) -> bool:
        return True

    @property
    def placed(self) -> int:
        """Bytes that lie in segments; the others wait in memory."""
        return self._starts[-1] + self._extents[-1].length if self._starts else 0

    def place(self, extent: Extent) -> None:
        """The next bytes of the body lie there; the segment is kept from now on."""
        self._starts.append(self.placed)
        self._extents.append(extent)
        self._usage.place_part(self.segments, extent.segment, extent.length)

    def part_at(self, offset: int, segment: Segment, at: int) -> int | None:
        """The index of the part that begins at this offset, if it lies `at` bytes from the start of this segment."""
        index = bisect_left(self._starts, offset)
        if index == len(self._starts) or self._starts[index] != offset:
            return None
        found = self._extents[index]
        return index if found.segment is segment and found.at == at else None

    def move_part(self, index: int, extent: Extent) -> None:
        """A part was copied there, by the last block written."""
        source, self._extents[index] = self._extents[index].segment, extent
        self._usage.move_part(self.segments, source, extent.segment, extent.length)

    def read(self, offset: int, length: int, *, is_checked: bool = True) -> bytes:
        """`length` bytes from `offset` on, fewer at the end. `is_checked`: whether checksums are looked at.

        Raises OSError, also after the body was discarded; with EBADMSG if the bytes are not what was written.
        """
        index = bisect_right(self._starts, offset) - 1
        pieces: list[bytes] = []
        while length > 0 and offset < self.length:
            if not 0 <= index < len(self._extents):
                raise OSError(f"body {self.number} has no byte {offset}: it was discarded, or is not written")
            segment, at, extent_length, block = self._extents[index]
            skipped = offset - self._starts[index]
            wanted = min(length, extent_length - skipped)
            if is_checked:
                piece = self._blocks.read(segment, block, at + skipped, wanted)
            else:
                piece = self._files.pread(segment.handle, wanted, at + skipped)
            if not piece:
                raise OSError(f"{segment.path} ends within a body")
            pieces.append(piece)
            offset += len(piece)
            length -= len(piece)
            if skipped + len(piece) == extent_length:
                index += 1
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def forget_places(self) -> None:
        """The body was discarded and can't be read any more. The caller releases the segments."""
        self._extents.clear()
        self._starts.clear()


class LargePayload(bytes):
    """A payload whose beginning, the head, is in memory and whose rest is in the log.

    As bytes it is the head only: slices, comparisons, and code that parses the beginning of a message see just that.
    `len` is the length of the whole. `with_head` makes a payload with another head and the same rest.
    """

    _body: StagedBody
    _offset: int

    @classmethod
    def of(cls, head: bytes, body: StagedBody, offset: int) -> LargePayload:
        """The payload that begins with `head` and goes on with `body` from `offset` on."""
        made = cls(head)
        made._body, made._offset = body, offset
        return made

    def __len__(self) -> int:
        return bytes.__len__(self) + self._body.length - self._offset

    @property
    def head(self) -> bytes:
        """The bytes in memory."""
        return self[:]

    @property
    def rest(self) -> tuple[StagedBody, int]:
        """What is in the log: a body, and the offset at which the rest begins."""
        return self._body, self._offset

    @property
    def bytes_in_log(self) -> int:
        """Bytes that are not in memory."""
        return self._body.length - self._offset

    def with_head(self, head: bytes) -> LargePayload:
        """The payload that begins with another head and goes on with the same rest."""
        return LargePayload.of(head, self._body, self._offset)

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes of the whole from `offset` on, fewer at the end. Raises OSError."""
        in_memory = bytes.__len__(self)
        if offset >= in_memory:
            return self._body.read(offset - in_memory + self._offset, length)
        first = self[offset : offset + length]
        return first + self._body.read(self._offset, length - len(first)) if len(first) < length else first


def bytes_in_log(payloads: Iterable[bytes]) -> int:
    """Of the payloads together, the bytes that are not in memory."""
    return sum(payload.bytes_in_log for payload in payloads if isinstance(payload, LargePayload))


class FetchedBodies(NamedTuple):
    """What recovery found of bodies: those that live messages name, by message, and what can't be read."""

    bodies: dict[int, StagedBody]
    incomplete: dict[int, list[int]]
    """By incarnation, the messages of which not all parts can be read."""
    put_in: set[int]
    """Numbers of the segments with the puts of these."""


def fetch_bodies(
    replay: Replay,
    files: FileLayer,
    usage: SegmentUsage,
    inline_bytes: int,
    blocks: CheckedBlocks,
    fetched: Callable[[], None] = lambda: None,
) -> FetchedBodies:
    """At recovery, give each live put with a staged body its payload. Puts that name the same body share it.

    Payloads up to `inline_bytes` become plain bytes. Puts of which not all parts can be read are taken out of `replay`.
    `fetched` is called after each message.
    """
    queues = {document.incarnation for document in replay.documents.values()}
    known: dict[int, StagedBody | None] = {}
    bodies: dict[int, StagedBody] = {}
    incomplete: dict[int, list[int]] = {}
    put_in = set[int]()
    for number in sorted(replay.staged & replay.puts.keys()):
        live = replay.puts[number]
        lives_in = queues.intersection(live.waits_in)
        if live.staged is None or not lives_in:  # if the queue has ended, parts may be recycled already
            continue
        body_number, offset, length = live.staged
        if body_number not in known:
            places = replay.parts_of(body_number)
            known[body_number] = _placed(StagedBody(body_number, files, usage, blocks), usage, length, places)
        body = known[body_number]
        if body is not None:
            bodies[number] = body
            live.put = live.put._replace(payload=_payload(live.put.payload, body, offset, inline_bytes))
            fetched()
            continue
        LOGGER.error("message %d is lost: not all parts of its body can be read", number)
        for incarnation in lives_in:
            incomplete.setdefault(incarnation, []).append(number)
        put_in |= {live.segment, *live.older}
        del replay.puts[number]
    return FetchedBodies(bodies, incomplete, put_in)


def _placed(body: StagedBody, usage: SegmentUsage, length: int, places: Iterable[PartPlace]) -> StagedBody | None:
    """The body with all its parts, or None if one of its `length` bytes is missing."""
    for place in places:
        if place.offset != body.length or place.segment not in usage.by_number:
            return None
        body.length += place.length
        body.place(Extent(usage.by_number[place.segment], place.at, place.length, place.records - BLOCK_HEADER.size))
    return body if body.length == length else None


def _payload(head: bytes, body: StagedBody, offset: int, inline_bytes: int) -> bytes:
    if len(head) + body.length - offset <= inline_bytes:
        return head + body.read(offset, body.length - offset, is_checked=False)  # the whole block was checked just now
    if not head:
        head = body.read(offset, _HEAD_BYTES, is_checked=False)
        offset += len(head)
    return LargePayload.of(head, body, offset)
