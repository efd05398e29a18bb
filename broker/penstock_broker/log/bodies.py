"""Bodies that come in parts: appended to the log as they come, named by a put later, read by slices.

A body holds the segments in which its parts lie for as long as somebody has it in hand; a body that nothing names is
released with its last reference. What a committed put names is held by `segment_usage` until the message has left all its
queues. Nothing here is on the path of small messages. Measured cost stands in docs/performance.md.

Bodies of live messages put together again from the parts that recovery has found.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple
from penstock_broker.log.files import Buffer, FileLayer
from penstock_broker.log.segment_usage import Living, Segment
from penstock_broker.log.records import Outcome
import logging
from collections.abc import Sequence
from penstock_broker.log.segment_usage import Living
from penstock_broker.log.replay import PartPlace, Replay

LOGGER = logging.getLogger(__name__)

class NoRoom(Exception):
    """The log takes no bodies now: the disk is full but for the reserve, or the log has failed."""


class RecordTooLarge(Exception):
    """A record larger than half a segment: raise the segment size, or refuse such a thing."""


class Extent(NamedTuple):
    """`length` bytes of a body, at `at` in the file of a segment."""

    segment: Segment
    at: int
    length: int


class StagedBody:
    """A body whose parts are in the log. `len` is what was appended so far."""

    __slots__ = ("__weakref__", "_extents", "_files", "_starts", "length", "number", "segments")

    def __init__(self, number: int, files: FileLayer) -> None:
        """Use `Bodies.stage`."""
        self.number = number
        self.length = 0
        self.segments: list[Segment] = []
        self._files = files
        self._extents: list[Extent] = []
        self._starts: list[int] = []

    def __len__(self) -> int:
        return self.length

    def __bool__(self) -> bool:
        return True

    @property
    def placed(self) -> int:
        """Bytes that are in segments; the others wait in memory."""
        return self._starts[-1] + self._extents[-1].length if self._starts else 0

    def place(self, extent: Extent) -> None:
        """The next bytes of the body lie there; the segment is held from now on."""
        self._starts.append(self.placed)
        self._extents.append(extent)
        if extent.segment not in self.segments:
            self.segments.append(extent.segment)
            extent.segment.live += 1

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on, fewer at the end. Raises OSError, also once the body was discarded."""
        index = bisect_right(self._starts, offset) - 1
        pieces: list[bytes] = []
        while length > 0 and offset < self.length:
            if not 0 <= index < len(self._extents):
                raise OSError(f"body {self.number} has no byte {offset}: it was discarded, or is not written")
            segment, at, extent_length = self._extents[index]
            skipped = offset - self._starts[index]
            piece = self._files.pread(segment.handle, min(length, extent_length - skipped), at + skipped)
            if not piece:
                raise OSError(f"{segment.path} ends within a body")
            pieces.append(piece)
            offset += len(piece)
            length -= len(piece)
            if skipped + len(piece) == extent_length:
                index += 1
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def forget(self) -> None:
        """What the parts' places were; the segments are let go by `Bodies`."""
        self._extents.clear()
        self._starts.clear()


class LargePayload(bytes):
    """A payload whose beginning is in memory and whose rest is in the log.

    As bytes it is the beginning only: slices, comparisons and whoever parses the head see that. `len` is the whole. Who
    makes another head of it puts the rest behind it again with `with_head`.
    """

    _body: StagedBody
    _offset: int

    @classmethod
    def of(cls, head: bytes, body: StagedBody, offset: int) -> LargePayload:
        """`head`, and behind it what `body` holds from `offset` on."""
        made = cls(head)
        made._body, made._offset = body, offset
        return made

    def __len__(self) -> int:
        return bytes.__len__(self) + self._body.length - self._offset

    @property
    def head(self) -> bytes:
        """What is in memory."""
        return self[:]

    @property
    def rest(self) -> tuple[StagedBody, int]:
        """What is in the log: a body, and the offset at which the rest begins."""
        return self._body, self._offset

    def with_head(self, head: bytes) -> LargePayload:
        """The same behind another head."""
        return LargePayload.of(head, self._body, self._offset)

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` of the whole on, fewer at the end. Raises OSError."""
        in_memory = bytes.__len__(self)
        if offset >= in_memory:
            return self._body.read(offset - in_memory + self._offset, length)
        first = self[offset : offset + length]
        return first + self._body.read(self._offset, length - len(first)) if len(first) < length else first


@dataclass(frozen=True, slots=True)
class CommitPut:
    """A message of a transaction. `number` is from `Log.next_messages`, ascending, taken in the same turn."""

    number: int
    route_set: int
    body: bytes | StagedBody
    arrival: int
    flags: int = 0


@dataclass(frozen=True, slots=True)
class CommitAck:
    """Messages that leave a queue by a transaction."""

    incarnation: int
    messages: Iterable[int]
    outcome: Outcome = Outcome.ACCEPTED


class Bodies:
    """All bodies under way, and what of them waits in memory."""

    def __init__(self, files: FileLayer, living: Living) -> None:
        self._files, self._living = files, living
        self._waiting: dict[StagedBody, list[Buffer]] = {}
        self.waiting_bytes = 0

    def stage(self, number: int) -> StagedBody:
        """A new, empty body."""
        body = StagedBody(number, self._files)
        weakref.finalize(body, self._living.unpin, body.segments).atexit = False
        return body

    def append(self, body: StagedBody, data: Buffer) -> None:
        """The body's next bytes, to be written by `take` at the latest before something names the body."""
        self._waiting.setdefault(body, []).append(data)
        body.length += len(data)
        self.waiting_bytes += len(data)

    def take(self) -> list[tuple[StagedBody, Buffer]]:
        """What waits, no longer."""
        waiting = [(body, b"".join(pieces)) for body, pieces in self._waiting.items()]
        self._waiting.clear()
        self.waiting_bytes = 0
        return list(waiting)

    def discard(self, body: StagedBody) -> None:
        """The body is not wanted any more."""
        self.waiting_bytes -= sum(map(len, self._waiting.pop(body, ())))
        body.forget()
        self._living.unpin(body.segments)

_HEAD_BYTES = 64 * 1024  # of a large payload that was put without a head of its own, what is kept in memory


def fetch_bodies(replay: Replay, living: Living, bodies: Bodies, inline_bytes: int) -> dict[int, list[int]]:
    """Give each live put with a staged body its payload; bodies that several puts name are shared.

    Puts whose parts are not all there are taken out of `replay`; returns their messages per incarnation.
    """
    queues = {document.incarnation for document in replay.documents.values()}
    known: dict[int, StagedBody | None] = {}
    incomplete: dict[int, list[int]] = {}
    for number, live in sorted(replay.puts.items()):
        lives_in = queues.intersection(live.incarnations).difference(live.acked)
        if live.staged is None or not lives_in:  # of a queue that has ended, parts may be recycled already
            continue
        body_number, offset, length = live.staged
        if body_number not in known:
            known[body_number] = _assemble(bodies, living, body_number, length, replay.parts.get(body_number, ()))
        body = known[body_number]
        if body is not None:
            live.put = live.put._replace(payload=_payload(live.put.payload, body, offset, inline_bytes))
            continue
        LOGGER.error("message %d is lost: not all parts of its body can be read", number)
        for incarnation in lives_in:
            incomplete.setdefault(incarnation, []).append(number)
        del replay.puts[number]
    return incomplete


def _assemble(
    bodies: Bodies, living: Living, number: int, length: int, places: Sequence[PartPlace]
) -> StagedBody | None:
    """The body, or None if something of its `length` bytes lacks."""
    body = bodies.stage(number)
    for place in sorted(places, key=lambda place: place.offset):
        if place.offset != body.length or place.segment not in living.by_number:
            return None
        body.length += place.length
        body.place(Extent(living.by_number[place.segment], place.at, place.length))
    return body if body.length == length else None


def _payload(head: bytes, body: StagedBody, offset: int, inline_bytes: int) -> bytes:
    if len(head) + body.length - offset <= inline_bytes:
        return head + body.read(offset, body.length - offset)
    if not head:
        head = body.read(offset, _HEAD_BYTES)
        offset += len(head)
    return LargePayload.of(head, body, offset)
