"""What all records of a log together mean: topology, live messages, delivered-up-to numbers and counts.

Pure: records in log order in, state out. Puts, acks and counts are sets keyed by (incarnation, message): a repeated one
changes nothing. A message lives in a queue while its put is there, no ack names it, and a document holds the
incarnation.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, assert_never

from penstock_broker.log.format.records import (
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
    SegmentState,
    StagedPut,
    Start,
    VolatilePut,
)
from penstock_broker.log.format.route_sets import KnownRouteSets, ReachedQueues
from penstock_broker.log.recovery.known_segments import KnownSegments
from penstock_broker.log.recovery.live_puts import KEEP, LivePut, Pageable, PlainPuts, PutGroup
from penstock_broker.log.recovery.paged_puts import PagedPuts
from penstock_broker.log.segments.segment_digest import PutRun

DocumentKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PartPlace:
    """Where a part of a body lies: `length` bytes, `offset` in the body, at byte `at` of the file of `segment`.

    `records`: the byte at which the records of its block begin.
    """

    offset: int
    segment: int
    at: int
    length: int
    records: int


ENTRY_BYTES: Final = 300
"""What a put takes in memory besides its payload."""

_NOWHERE = ReachedQueues(())
"""Where a put goes whose route set was lost by damage."""


@dataclass(slots=True)
class Replay:
    """The state while records are read: call `apply` in log order, `gap` or `damage` where blocks are missing."""

    documents: dict[DocumentKey, Document] = field(default_factory=dict[DocumentKey, Document])
    puts: dict[int, LivePut] = field(default_factory=dict[int, LivePut])
    paged: PagedPuts | None = None  # further puts, without their payloads
    kept_bytes: int = 0  # about what `puts` takes in memory
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
    lacks_delivered: bool = False
    """Blocks are missing behind the last checkpoint, which may have held delivered-up-to numbers."""
    segments: KnownSegments = field(default_factory=KnownSegments)
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
                    place = PartPlace(record.offset, segment, start + record.at, record.length, start)
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
                case SegmentState():
                    self.segments.note(record)
                case CheckpointBegin():
                    self._checkpoint, self._restated = (record.identifier, segment), set()
                    self.segments.begin_checkpoint()
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
        if live is None:
            return self.paged is not None and self.paged.holds(incarnation, message)
        return live.is_in(incarnation)

    def gap(self) -> None:
        """Blocks are missing here: a checkpoint around this place does not prove that what it leaves out is gone."""
        self._checkpoint = self._restated = None

    def damage(self) -> None:
        """Blocks that were there can't be read: as `gap`, and what they said of deliveries is lost."""
        self.gap()
        self.lacks_delivered = True

    def _put(self, put: Put, segment: int, staged: tuple[int, int, int] | None = None) -> None:
        message = put.message
        live = self.puts.get(message)
        if live is not None:
            live.older += (live.segment,)
            live.segment = segment
            self.repeated.add(message)
        else:
            live = self.puts[message] = LivePut(put, segment, self.reached(put.route_set), staged)
            self.kept_bytes += len(put.payload) + ENTRY_BYTES
            if staged is not None:
                self.staged.add(message)
            if self.paged is not None and message <= self.highest_message:
                self._come_back(live, message)
        if message > self.highest_message:
            self.first_messages.setdefault(segment, message)
            self.highest_message = self.last_messages[segment] = message
        else:
            self._note_copy(message, segment)

    def reached(self, route_set: int) -> ReachedQueues:
        """The queues of a route set, as the log defines it here."""
        routes = self._routes
        return routes.made.get(route_set) or routes.queues(route_set) or _NOWHERE

    def put_paged(self, puts: PlainPuts, segment: int) -> None:
        """Take in puts with numbers higher than all before; their payloads stay where they are."""
        assert self.paged is not None
        self.closed = False
        numbers = puts.numbers
        queues = self.reached(puts.route_set)
        self.paged.extend(segment, queues, numbers, puts.lengths, puts.arrival, puts.expires)
        self.first_messages.setdefault(segment, numbers[0])
        self.highest_message = self.last_messages[segment] = numbers[-1]

    def put_run(self, run: PutRun, segment: int) -> None:
        """As `put_paged`, but the numbers of several runs may lie between each other's: the one with the lowest comes
        first.
        """
        assert self.paged is not None
        self.closed = False
        self.paged.extend_run(segment, self.reached(run.route_set), run)
        self.first_messages.setdefault(segment, run.firsts[0])
        self.highest_message = self.last_messages[segment] = max(self.highest_message, run.lasts[-1])

    def page(self, pageable: Pageable) -> None:
        """From now on the payloads of messages of which a queue need not know more are not kept in memory."""
        paged = self.paged = self.paged or PagedPuts()
        told_apart = {message for _, message in (*self.counts, *self.remarks)}
        group = PutGroup(0, _NOWHERE, is_copied=False)
        for number in sorted(self.puts, key=lambda number: (self.puts[number].segment, number)):
            live = self.puts[number]
            put, segment = live.put, live.segment
            if live.staged is not None or live.older or put.flags or number in told_apart:
                continue
            length = len(put.payload)
            expires = pageable.expiry(put.payload, 0, length, put.arrival)
            if expires == KEEP:
                continue
            queues, acked = live.reached
            is_copied = number < self.first_messages.get(segment, number + 1)
            if not group.takes(segment, queues, is_copied=is_copied):
                group.move_to(paged)
                group = PutGroup(segment, queues, is_copied=is_copied)
            group.add(number, length, put.arrival, expires)
            if acked:
                group.move_to(paged)
                for incarnation in acked:
                    paged.ack(incarnation, (number,))
            self._forget(live, number)
        group.move_to(paged)

    def bring_back(self, put: Put) -> None:
        """Keep a paged message in memory after all."""
        live = self.puts[put.message] = LivePut(put, 0, _NOWHERE, None)
        self.kept_bytes += len(put.payload) + ENTRY_BYTES
        self._come_back(live, put.message)
        live.segment, live.older = live.older[0], ()
        self.repeated.discard(put.message)

    def _come_back(self, live: LivePut, message: int) -> None:
        """A put of the message was read before, if it is a paged one: that one does not count any more."""
        before = self.paged.take(message) if self.paged is not None else None
        if before is not None:
            live.older = (before[0],)
            live.reach(before[1])
            self.repeated.add(message)

    def _forget(self, live: LivePut, message: int) -> None:
        del self.puts[message]
        self.kept_bytes -= len(live.put.payload) + ENTRY_BYTES

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
                self._forget(live, message)
        if self.paged is not None and ack.messages:
            older = self.paged.ack(incarnation, ack.messages) - {segment}
            if older:
                self.acks_into.setdefault(segment, set()).update(older)

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
            self.lacks_delivered = False
            self.segments.end_checkpoint(identifier)
        self._checkpoint = self._restated = None
