"""The records of an audit of one queue: what happened to each message, in a buffer that has a bound.

A queue without an audit has None in its field `audit`, and asks nothing else. With one it calls a method of this for
each message that comes, is delivered, comes back or leaves. The records wait until they are fetched. When their bytes
reach `MAX_BYTES` the audit ends and says so: it never waits, and never takes more memory. Must not know management,
links or the log. Source: docs/decisions/074-message-audit.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from penstock_amqp.endpoint.events import AVAILABLE, NUMBER, Entry, Held
from penstock_api.message_audit import EndedBy, EventKind, packed

__all__ = ["CHUNK_BYTES", "MAX_BYTES", "Chunk", "QueueAudit"]

MAX_BYTES: Final = 16 * 1024 * 1024
"""Of records that wait to be fetched."""

CHUNK_BYTES: Final = 256 * 1024
"""Records that are fetched together have about so many bytes."""


@dataclass(slots=True)
class Chunk:
    """Records in a row."""

    first: int
    """How many records came before."""
    count: int
    records: bytearray


class QueueAudit:
    """One audit, from its start until its records are fetched."""

    __slots__ = ("_bytes", "_chunks", "_name_of", "_now_us", "_when_over", "ended_by", "written")

    def __init__(
        self, now_us: Callable[[], int], name_of: Callable[[Entry], str], when_over: Callable[[EndedBy], None]
    ) -> None:
        """`name_of`: the message-id as text. `when_over` is called once, and takes the audit off the queue."""
        self._now_us = now_us
        self._name_of = name_of
        self._when_over = when_over
        self._chunks: deque[Chunk] = deque()
        self._bytes = 0
        self.written = 0
        """Records so far, those that were fetched included."""
        self.ended_by: EndedBy | None = None

    def came(self, entries: Iterable[Entry], kind: EventKind = EventKind.ENQUEUED) -> None:
        """Messages were put into the queue; or, with another kind, were there."""
        now = self._now_us()
        for entry in entries:
            if not self._write(packed(kind, entry[NUMBER], now, entry[AVAILABLE], self._name_of(entry))):
                return

    def delivered(self, entries: Iterable[Entry]) -> None:
        """Messages were sent to a consumer."""
        self._note(EventKind.DELIVERED, entries)

    def returned(self, held: Iterable[Held]) -> None:
        """Deliveries have come back."""
        self._note(EventKind.RETURNED, (entry for _, entry, _ in held))

    def accepted(self, held: Iterable[Held]) -> None:
        """Deliveries were accepted, and their messages have left."""
        self._note(EventKind.ACCEPTED, (entry for _, entry, _ in held))

    def left(self, entry: Entry, kind: EventKind) -> None:
        """A message has left the queue for good."""
        self._note(kind, (entry,))

    def waiting(self, entries: Iterable[Entry]) -> None:
        """Messages that were in the queue at the end."""
        self._note(EventKind.WAITING, entries)

    def end(self, reason: EndedBy) -> None:
        """From now on nothing is written but `waiting`."""
        if self.ended_by is None:
            self.ended_by = reason
            self._when_over(reason)

    def _note(self, kind: EventKind, entries: Iterable[Entry]) -> None:
        now = self._now_us()
        for entry in entries:
            if not self._write(packed(kind, entry[NUMBER], now)):
                return

    def _write(self, record: bytes) -> bool:
        """False if the buffer is full: nothing is ever written behind a record that is missing."""
        if self._bytes + len(record) > MAX_BYTES:
            self.overflow()
        if self.ended_by is EndedBy.OVERFLOW:
            return False
        last = self._chunks[-1] if self._chunks else None
        if last is None or len(last.records) + len(record) > CHUNK_BYTES:
            last = Chunk(self.written, 0, bytearray())
            self._chunks.append(last)
        last.records += record
        last.count += 1
        self._bytes += len(record)
        self.written += 1
        return True

    def overflow(self) -> None:
        """The buffer is full, also where the audit has ended and what waits is still being written."""
        self.end(EndedBy.OVERFLOW)
        self.ended_by = EndedBy.OVERFLOW

    def fetch(self, after: int) -> Chunk | None:
        """Forget the first `after` records, and give the chunk that begins there; None if there is nothing more."""
        while self._chunks and self._chunks[0].first + self._chunks[0].count <= after:
            self._bytes -= len(self._chunks.popleft().records)
        if not self._chunks:
            return None
        first = self._chunks[0]
        if len(self._chunks) == 1:  # what comes now begins another chunk, so that this one stays as it was fetched
            self._chunks.append(Chunk(self.written, 0, bytearray()))
        return first
