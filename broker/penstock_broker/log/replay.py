"""What all records of a log together mean: topology, live messages, delivered-up-to numbers and counts.

Pure: records in log order in, state out. Puts, acks and counts are sets keyed by (incarnation, message): a repeated one
changes nothing. A message lives in a queue while its put is there, no ack names it, and a document holds the
incarnation.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, assert_never

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
    RouteDifference,
    RouteSet,
    StagedPut,
    Start,
    VolatilePut,
)
from penstock_broker.log.route_sets import KnownRouteSets, ReachedQueues

DocumentKey = tuple[str, str]


class LivePut:
    """A put that at least one of its queues has not acknowledged."""

    __slots__ = ("_acked", "_queues", "older", "put", "segment", "staged")

    def __init__(self, put: Put, segment: int, queues: ReachedQueues, staged: tuple[int, int, int] | None) -> None:
        self.put = put
        self.segment = segment
        """Where its newest record lies."""
        self.staged = staged
        """The body that follows the put's own payload: its number, the offset in it, its length."""
        self.older: tuple[int, ...] = ()
        """Segments with earlier puts of the message, from which compaction has copied it."""
        self._queues = queues
        self._acked: set[int] | None = None

    def ack(self, incarnation: int) -> bool:
        """It has left this queue; true if it is in none any more. Costs the same, however many queues it reached."""
        known = self._queues.known
        if len(known) < 2:
            return incarnation in known
        if self._acked is None:
            self._acked = set()
        self._acked.add(incarnation)
        return len(self._acked) >= len(known) and self._acked.issuperset(known)

    def is_in(self, incarnation: int) -> bool:
        """Whether the queue got it and has not acknowledged it."""
        return incarnation in self._queues.known and (self._acked is None or incarnation not in self._acked)

    @property
    def waits_in(self) -> Sequence[int]:
        """The queues that have not acknowledged it, in the order of the route set."""
        if self._acked is None:
            return self._queues.incarnations
        return [incarnation for incarnation in self._queues.incarnations if incarnation not in self._acked]


@dataclass(frozen=True, slots=True)
class PartPlace:
    """Where a part of a body lies: `length` bytes, `offset` in the body, at byte `at` of the file of `segment`."""

    offset: int
    segment: int
    at: int
    length: int


_NOWHERE = ReachedQueues(())
"""Where a put goes whose route set was lost by damage."""


@dataclass(slots=True)
class Replay:
    """The state while records are read: call `apply` in log order and `gap` where blocks are missing, then read it."""

    documents: dict[DocumentKey, Document] = field(default_factory=dict[DocumentKey, Document])
    puts: dict[int, LivePut] = field(default_factory=dict[int, LivePut])
    delivered_up_to: dict[int, int] = field(default_factory=dict[int, int])  # by incarnation
    counts: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    remarks: dict[tuple[int, int], bytes] = field(default_factory=dict[tuple[int, int], bytes])
    staged: set[int] = field(default_factory=set[int])  # live puts, and some that have died, with a staged body
    parts: dict[int, list[PartPlace]] = field(default_factory=dict[int, list[PartPlace]])  # by body
    ended: set[int] = field(default_factory=set[int])  # incarnations whose end was read
    acks_into: dict[int, set[int]] = field(default_factory=dict[int, set[int]])  # segment -> segments its acks name
    first_messages: dict[int, int] = field(default_factory=dict[int, int])  # segment -> its first put
    last_messages: dict[int, int] = field(default_factory=dict[int, int])  # segment -> its highest put
    repeated: set[int] = field(default_factory=set[int])  # messages of which more than one put was read
    copied: dict[int, list[tuple[int, int]]] = field(default_factory=dict[int, list[tuple[int, int]]])
    """By segment, the spans of numbers of puts out of order; one span for each block at least."""
    boot_id: bytes = b""
    message_ceiling: int = 1
    incarnation_ceiling: int = 1
    highest_message: int = 0
    checkpoint: int = 0
    closed: bool = False
    _routes: KnownRouteSets = field(default_factory=KnownRouteSets)
    _restated: set[DocumentKey] | None = None
    _checkpoint: tuple[int, int] | None = None
    _span_at: tuple[int, int] = (0, 0)
    _at: int = 0

    @property
    def highest_route(self) -> int:
        """The highest number of a route set."""
        return self._routes.highest

    def apply(self, records: Iterable[Record], segment: int, start: int = 0) -> None:
        """Take in records that lie in `segment`; the first of them at byte `start` of its file."""
        self._at = start
        for record in records:
            self.closed = False
            match record:
                case Put():
                    self._put(record, segment)
                case StagedPut():
                    self._put(record.put, segment, (record.body, record.offset, record.length))
                case VolatilePut():
                    pass  # its epoch is over
                case Part():
                    place = PartPlace(record.offset, segment, start + record.at, record.length)
                    self.parts.setdefault(record.body, []).append(place)
                case Commit():
                    self.apply(record.records, segment, start)
                case Ack():
                    self._ack(record, segment)
                case RouteSet() | RouteDifference():
                    self._routes.define(record, segment)
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

    def parts_of(self, body: int) -> list[PartPlace]:
        """The parts of a body, in their order; of one that compaction has copied, the last copy."""
        by_offset = {place.offset: place for place in self.parts.get(body, ())}
        return [by_offset[offset] for offset in sorted(by_offset)]

    def is_live(self, incarnation: int, message: int) -> bool:
        """Whether the message is in that queue, provided that the queue exists."""
        live = self.puts.get(message)
        return live is not None and live.is_in(incarnation)

    def gap(self) -> None:
        """Blocks are missing here: a checkpoint around this place does not prove that what it leaves out is gone."""
        self._checkpoint = self._restated = None

    def _put(self, put: Put, segment: int, staged: tuple[int, int, int] | None = None) -> None:
        message = put.message
        live = self.puts.get(message)
        if live is not None:
            live.older += (live.segment,)
            live.segment = segment
            self.repeated.add(message)
        else:
            routes = self._routes
            queues = routes.made.get(put.route_set) or routes.queues(put.route_set) or _NOWHERE
            self.puts[message] = LivePut(put, segment, queues, staged)
            if staged is not None:
                self.staged.add(message)
        if message > self.highest_message:
            self.first_messages.setdefault(segment, message)
            self.highest_message = self.last_messages[segment] = message
        else:
            self._note_copy(message, segment)

    def _note_copy(self, message: int, segment: int) -> None:
        spans = self.copied.setdefault(segment, [])
        if self._span_at == (segment, self._at):
            first, last = spans[-1]
            spans[-1] = min(first, message), max(last, message)
        else:
            self._span_at = segment, self._at
            spans.append((message, message))

    def _ack(self, ack: Ack, segment: int) -> None:
        incarnation, puts = ack.incarnation, self.puts
        named = -1  # consecutive messages mostly lie in one segment
        for message in ack.messages:
            live = puts.get(message)
            if live is None:
                continue
            if live.segment not in (segment, named):
                named = live.segment
                self.acks_into.setdefault(segment, set()).add(named)
            if live.older:
                self.acks_into.setdefault(segment, set()).update(live.older)
            if live.ack(incarnation):
                del puts[message]

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


class LiveMessage(NamedTuple):  # a tuple, because recovery makes millions of them
    """A recovered message of one queue, or of several that know the same of it."""

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
    is_shared: bool = False
    """More than one queue holds it."""


def live_messages(replay: Replay, *, delivered_is_known: bool) -> tuple[dict[int, list[LiveMessage]], dict[int, int]]:
    """Per incarnation that a document holds, its messages in number order; and for other incarnations, how many.

    `delivered_is_known`: every delivered-up-to number that was written has been read. Otherwise each message may have
    been delivered. Queues that know the same of a message share its `LiveMessage`.
    """
    queues: dict[int, list[LiveMessage]] = {
        document.incarnation: [] for document in replay.documents.values() if document.incarnation
    }
    delivered_up_to = {
        incarnation: replay.delivered_up_to.get(incarnation, 0) if delivered_is_known else replay.highest_message
        for incarnation in queues
    }
    told_apart = {message for _, message in (*replay.counts, *replay.remarks)}
    without_document: dict[int, int] = {}
    for number in sorted(replay.puts):
        live = replay.puts[number]
        put, waits_in = live.put, live.waits_in
        is_shared = len(waits_in) > 1
        is_told_apart = number in told_apart
        alike: dict[bool, LiveMessage] = {}
        for incarnation in waits_in:
            queue = queues.get(incarnation)
            if queue is None:
                without_document[incarnation] = without_document.get(incarnation, 0) + 1
                continue
            delivered = number <= delivered_up_to[incarnation]
            if is_told_apart:
                count = replay.counts.get((incarnation, number), 0)
                remark = replay.remarks.get((incarnation, number), b"")
                if count or remark:
                    own = (count, delivered or count > 0, remark, is_shared)
                    queue.append(LiveMessage(number, put.payload, put.flags, put.arrival, *own))
                    continue
            message = alike.get(delivered)
            if message is None:
                told = (number, put.payload, put.flags, put.arrival)
                message = alike[delivered] = LiveMessage(*told, 0, delivered, b"", is_shared)
            queue.append(message)
    return queues, without_document


def lost_incarnations(without_document: Mapping[int, int], replay: Replay) -> dict[int, int]:
    """Of the incarnations that no document holds, those whose end was not read either, with how many messages.

    The reason is damage, or that the segment with their end was recycled.
    """
    return {incarnation: count for incarnation, count in without_document.items() if incarnation not in replay.ended}
