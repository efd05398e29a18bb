"""What all records of a log together mean: topology, live messages, delivered-up-to numbers and counts.

Pure: records in log order in, state out. Puts, acks and counts are sets keyed by (incarnation, message): a repeated one
changes nothing. A message lives in a queue while its put is there, no ack names it, and a document holds the
incarnation.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from penstock_broker.log.records import (
    Ack,
    CheckpointBegin,
    CheckpointEnd,
    Closed,
    Commit,
    Count,
    Deleted,
    DeliveredUpTo,
    Document,
    Part,
    Put,
    Record,
    Remark,
    RouteSet,
    StagedPut,
    Start,
)

DocumentKey = tuple[str, str]


@dataclass(slots=True)
class LivePut:
    """A put that at least one of its queues has not acknowledged. `segment`: where its newest record lies.

    `staged`: the body that follows the put's own payload: its number, the offset in it, its length.
    """

    put: Put
    segment: int
    incarnations: tuple[int, ...]
    acked: tuple[int, ...] = ()
    staged: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class PartPlace:
    """Where a part of a body lies: `length` bytes, `offset` in the body, at byte `at` of the file of `segment`."""

    offset: int
    segment: int
    at: int
    length: int


@dataclass(slots=True)
class Replay:
    """The state while records are read: call `apply` in log order and `gap` where blocks are missing, then read it."""

    documents: dict[DocumentKey, Document] = field(default_factory=dict[DocumentKey, Document])
    puts: dict[int, LivePut] = field(default_factory=dict[int, LivePut])
    delivered_up_to: dict[int, int] = field(default_factory=dict[int, int])  # by incarnation
    counts: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    remarks: dict[tuple[int, int], bytes] = field(default_factory=dict[tuple[int, int], bytes])
    parts: dict[int, list[PartPlace]] = field(default_factory=dict[int, list[PartPlace]])  # by body
    ended: set[int] = field(default_factory=set[int])  # incarnations whose end was read
    acks_into: dict[int, set[int]] = field(default_factory=dict[int, set[int]])  # segment -> segments its acks name
    first_messages: dict[int, int] = field(default_factory=dict[int, int])  # segment -> its first put
    last_messages: dict[int, int] = field(default_factory=dict[int, int])  # segment -> its highest put
    boot_id: bytes = b""
    message_ceiling: int = 1
    incarnation_ceiling: int = 1
    highest_message: int = 0
    highest_route: int = 0
    checkpoint: int = 0
    closed: bool = False
    _routes: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    _restated: set[DocumentKey] | None = None
    _checkpoint: tuple[int, int] | None = None

    def apply(self, records: Iterable[Record], segment: int, start: int = 0) -> None:
        """Take in records that lie in `segment`; the first of them at byte `start` of its file."""
        for record in records:
            self.closed = False
            match record:
                case Put():
                    self._put(record, segment)
                case StagedPut():
                    self._put(record.put, segment, (record.body, record.offset, record.length))
                case Part():
                    place = PartPlace(record.offset, segment, start + record.at, record.length)
                    self.parts.setdefault(record.body, []).append(place)
                case Commit():
                    self.apply(record.records, segment, start)
                case Ack():
                    self._ack(record, segment)
                case RouteSet():
                    self._routes[record.route_set] = record.incarnations
                    self.highest_route = max(self.highest_route, record.route_set)
                case Document():
                    self._document(record)
                case Deleted():
                    self._delete((record.kind, record.key))
                case DeliveredUpTo():
                    for incarnation, message in record.numbers:
                        self.delivered_up_to[incarnation] = max(message, self.delivered_up_to.get(incarnation, 0))
                case Count():
                    for incarnation, message, count in record.counts:
                        self.counts[incarnation, message] = count
                case Remark():
                    self.remarks[record.incarnation, record.message] = record.text
                case Start():
                    self.boot_id = record.boot_id
                    self.message_ceiling = max(self.message_ceiling, record.message_ceiling)
                    self.incarnation_ceiling = max(self.incarnation_ceiling, record.incarnation_ceiling)
                case CheckpointBegin():
                    self._checkpoint, self._restated = (record.identifier, segment), set()
                case CheckpointEnd():
                    self._end_checkpoint(record.identifier)
                case Closed():
                    self.closed = True
                case _:
                    assert_never(record)

    def is_live(self, incarnation: int, message: int) -> bool:
        """Whether the message is in that queue, provided that the queue exists."""
        live = self.puts.get(message)
        return live is not None and incarnation in live.incarnations and incarnation not in live.acked

    def gap(self) -> None:
        """Blocks are missing here: a checkpoint around this place does not prove that what it leaves out is gone."""
        self._checkpoint = self._restated = None

    def _put(self, put: Put, segment: int, staged: tuple[int, int, int] | None = None) -> None:
        live = self.puts.get(put.message)
        if live is not None:
            live.segment = segment
            return
        self.puts[put.message] = LivePut(put, segment, self._routes.get(put.route_set, ()), staged=staged)
        if put.message > self.highest_message:
            self.first_messages.setdefault(segment, put.message)
            self.highest_message = self.last_messages[segment] = put.message

    def _ack(self, ack: Ack, segment: int) -> None:
        incarnation = ack.incarnation
        for message in ack.messages:
            live = self.puts.get(message)
            if live is None:
                continue
            if live.segment != segment:
                self.acks_into.setdefault(segment, set()).add(live.segment)
            live.acked += (incarnation,)
            if len(live.acked) >= len(live.incarnations) and set(live.acked).issuperset(live.incarnations):
                del self.puts[message]

    def _document(self, document: Document) -> None:
        key = (document.kind, document.key)
        before = self.documents.get(key)
        if before is not None and before.incarnation != document.incarnation:
            self.ended.add(before.incarnation)
        self.documents[key] = document
        self.incarnation_ceiling = max(self.incarnation_ceiling, document.incarnation + 1)
        if self._restated is not None:
            self._restated.add(key)

    def _delete(self, key: DocumentKey) -> None:
        before = self.documents.pop(key, None)
        if before is not None:
            self.ended.add(before.incarnation)

    def _end_checkpoint(self, identifier: int) -> None:
        if self._checkpoint is not None and self._restated is not None and self._checkpoint[0] == identifier:
            for key in [key for key in self.documents if key not in self._restated]:
                self._delete(key)
            self.checkpoint = self._checkpoint[1]
        self._checkpoint = self._restated = None


@dataclass(frozen=True, slots=True)
class LiveMessage:
    """A recovered message of one queue."""

    number: int
    payload: bytes
    flags: int
    arrival: int
    deliveries: int
    """Unsuccessful deliveries that count against its limit."""
    delivered: bool
    """A consumer may have seen it."""
    remark: bytes = b""
    """The last remark about it; empty if there is none."""


def live_messages(replay: Replay, *, delivered_is_known: bool) -> tuple[dict[int, list[LiveMessage]], dict[int, int]]:
    """Per incarnation that a document holds, its messages in number order; and for other incarnations, how many.

    `delivered_is_known`: every delivered-up-to number that was written has been read. Otherwise each message may have
    been delivered.
    """
    queues: dict[int, list[LiveMessage]] = {
        document.incarnation: [] for document in replay.documents.values() if document.incarnation
    }
    without_document: dict[int, int] = {}
    for number in sorted(replay.puts):
        live = replay.puts[number]
        for incarnation in live.incarnations:
            if incarnation in live.acked:
                continue
            if incarnation not in queues:
                without_document[incarnation] = without_document.get(incarnation, 0) + 1
                continue
            queues[incarnation].append(_message(replay, incarnation, live.put, delivered_is_known=delivered_is_known))
    return queues, without_document


def _message(replay: Replay, incarnation: int, put: Put, *, delivered_is_known: bool) -> LiveMessage:
    pair = incarnation, put.message
    count = replay.counts.get(pair, 0)
    reached = put.message <= replay.delivered_up_to.get(incarnation, 0)
    delivered = not delivered_is_known or count > 0 or reached
    return LiveMessage(
        put.message, put.payload, put.flags, put.arrival, count, delivered, replay.remarks.get(pair, b"")
    )


def lost_incarnations(without_document: Mapping[int, int], replay: Replay) -> dict[int, int]:
    """Of the incarnations that no document holds, those whose end was not read either, with how many messages.

    The reason is damage, or that the segment with their end was recycled.
    """
    return {incarnation: count for incarnation, count in without_document.items() if incarnation not in replay.ended}
