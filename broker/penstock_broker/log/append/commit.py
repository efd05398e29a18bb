"""Transactions: puts and acks in one record, which counts at recovery as a whole or not at all.

`begin_unit`, any puts and acks, then `end_unit`; or `commit` at once. Not on the path of small messages.
Source: docs/decisions/035-transactions.md.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock_broker.log.append.appender import Appender, PendingRecords, RecordTooLarge
from penstock_broker.log.append.body_writer import BodyWriter
from penstock_broker.log.append.space import NoRoom, Space
from penstock_broker.log.disk.files import Buffer
from penstock_broker.log.format.blocks import BLOCK_HEADER
from penstock_broker.log.format.record_codec import (
    PUT,
    PUT_TYPES,
    RecordType,
    ack_record,
    chunks,
    commit_record,
    definition_bytes,
    most_entries,
    put_record,
    staged_put_record,
)
from penstock_broker.log.format.records import EndReason
from penstock_broker.log.recovery.bodies import LargePayload, StagedBody
from penstock_broker.log.segments.segment_usage import SegmentUsage
from penstock_broker.log.write.writer import SegmentWriter, record_buffers

UNIT_PUT_BYTES = 64
"""What a put in a commit takes besides head and payload; more than the fields of its record."""
UNIT_ACK_BYTES = 40
"""What an ack in a commit takes if each is in a record of its own."""


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
    reason: EndReason = EndReason.ACCEPTED


class Commits:
    """Makes commit records of what is put and acknowledged together."""

    def __init__(
        self, appender: Appender, bodies: BodyWriter, usage: SegmentUsage, writer: SegmentWriter, space: Space
    ) -> None:
        self._appender, self._bodies, self._usage, self._space = appender, bodies, usage, space
        self._writer = writer
        self._largest = appender.largest
        self._most = most_entries(writer.capacity)
        self._outside: PendingRecords | None = None
        """What the turn had appended before a unit began; None if there is no unit."""
        self._told_of: set[int] = set()
        """The route sets of which `check_unit` was told, or `takes_route_set`."""
        self._definition_bytes = 0
        """How many bytes further route sets of the unit may take where they are defined."""

    def check_unit(
        self,
        puts: Iterable[Sequence[Buffer]],
        acks: int,
        route_sets: Iterable[int] = (),
        *,
        growing: Iterable[tuple[Buffer, int]] = (),
    ) -> None:
        """Whether a unit of these puts and this number of acks will be taken, provided that it begins in this turn.

        `puts`: the payloads, in lists of any length. `growing`: further ones, each with the bytes by which it may
        become longer. `route_sets`: those that the puts name, each of which has to be defined in the segment of the
        record. Raises RecordTooLarge, or NoRoom. A unit of acks alone finds room also when the disk is full.
        """
        count = inline = heads = grown = 0
        for payloads in puts:  # may be very many
            large = [each for each in payloads if isinstance(each, LargePayload)] if _has_large(payloads) else []
            count += len(payloads)
            heads += sum(len(each.head) for each in large)
            inline += sum(map(len, payloads)) - sum(map(len, large))
        for payload, growth in growing:
            count += 1
            grown += growth
            if isinstance(payload, LargePayload):
                heads += len(payload.head) + growth
            else:
                inline += len(payload) + growth
        record = count * UNIT_PUT_BYTES + heads + acks * UNIT_ACK_BYTES
        if record > self._largest:
            raise RecordTooLarge(f"it takes {record} bytes of one record, of which there are {self._largest}")
        if not count:
            return
        self._told_of = set(route_sets)
        definitions = sum(map(self._definition, self._told_of))
        is_staged = heads + inline - grown + count * PUT.size > self._largest // 2
        left = self._writer.capacity - BLOCK_HEADER.size - record - definitions - (0 if is_staged else inline)
        self._definition_bytes = left
        if left < 0:
            raise RecordTooLarge(
                f"its messages go to so many different sets of queues that these take {definitions} bytes, and a log "
                f"segment has {self._writer.capacity}"
            )
        # The record may begin a segment, so that the rest of the one before stays empty.
        waiting = self._appender.pending.size + self._bodies.waiting_bytes
        size = waiting + inline + count * UNIT_PUT_BYTES + 2 * (record + definitions)
        if not self._space.accepts_publishing() or not self._space.has_room(size):
            raise NoRoom("the disk is full")

    def takes_route_set(self, number: int) -> bool:
        """Whether the unit that has begun may have a put for this route set, of which `check_unit` was not told: the
        set has to be defined in the segment of the unit's record. True if none has begun.
        """
        if self._outside is None or number in self._told_of:
            return True
        size = self._definition(number)
        if size > self._definition_bytes:
            return False
        self._definition_bytes -= size
        self._told_of.add(number)
        return True

    def _definition(self, number: int) -> int:
        return definition_bytes(len(self._writer.routes.incarnations[number]))

    def begin_unit(self) -> None:
        """What is put and acknowledged from now on happens as a whole. One unit at a time, which ends in its turn.

        Topology, delivered-up-to numbers and delivery counts are not part of the unit.
        """
        assert self._outside is None, "a unit within a unit"
        self._outside = self._appender.pending
        self._appender.pending = PendingRecords(is_unit=True)

    def end_unit(self) -> None:
        """Append the unit as one record. Payloads that are too much for one record are written as bodies before it.

        Acks that make room in queues (`EndReason.DROPPED`) follow behind the record: how many there are does not depend
        on the unit alone, and a crash between the two leaves a queue over its limit, no more. Raises RecordTooLarge if
        nobody asked `check_unit`: then nothing of the unit was appended.
        """
        unit, pending = self._leave_unit()
        records: list[Buffer] = []
        is_plain = unit.holds_plain_puts_only and unit.size <= self._largest // 2
        if is_plain:
            records = unit.records  # each in two pieces: they are put together anyway
        else:
            for record in record_buffers(unit.records):
                if record[0][0] in PUT_TYPES:
                    records.append(b"".join(record))
                else:
                    pending.records += record
        acks: list[CommitAck] = []
        for (incarnation, reason), messages in unit.acks.items():
            if reason is EndReason.DROPPED:
                self._appender.ack_many(incarnation, messages, reason)
            else:
                acks.append(CommitAck(incarnation, messages, reason))
        self._append_commit(records, acks, fits=is_plain)
        for route_set, numbers in unit.puts.items():
            pending.puts.setdefault(route_set, []).extend(numbers)
        pending.bodies += unit.bodies

    def abandon_unit(self) -> None:
        """Nothing of the unit happens, except for changes of topology."""
        unit, pending = self._leave_unit()
        for record in record_buffers(unit.records):
            if record[0][0] not in PUT_TYPES:
                pending.records += record

    def commit(self, puts: Sequence[CommitPut], acks: Sequence[CommitAck]) -> None:
        """Append one record of all these puts and acks: at recovery all of them count, or none.

        Acks of queues that have ended are left out. Ask `accepts_publishing` before. Raises as `end_unit`.
        """
        assert self._outside is None, "a commit within a unit"
        self._bodies.write()
        self._append_commit([_encoded(put) for put in puts], acks)
        for put in puts:
            self._appender.pending.add_put(put.route_set, put.number, _body_of(put.body))

    def _leave_unit(self) -> tuple[PendingRecords, PendingRecords]:
        """Go on where the turn was before the unit. Returns what the unit had appended, and the rest of the turn."""
        outside = self._outside
        assert outside is not None, "no unit has begun"
        self._outside = None
        unit, self._appender.pending = self._appender.pending, outside
        outside.other_bytes += unit.other_bytes
        return unit, outside

    def _append_commit(self, records: list[Buffer], acks: Sequence[CommitAck], *, fits: bool = False) -> None:
        """`fits`: no payload has to be in a body of its own."""
        pending = self._appender.pending
        leaving = [(ack, sorted(ack.messages)) for ack in acks if ack.incarnation in self._usage.queues]
        leaving = [(ack, messages) for ack, messages in leaving if messages]
        staged: list[tuple[int, int, StagedBody]] = []
        if not fits and sum(map(len, records)) > self._largest // 2:
            records = [self._with_staged_payload(record, staged) for record in records]
            self._bodies.write()
        puts = len(records)
        for ack, messages in leaving:
            records += [ack_record(ack.incarnation, chunk, ack.reason) for chunk in chunks(messages, self._most)]
        if not records:
            return
        record = commit_record(records)
        if len(record) > self._largest:
            raise RecordTooLarge(f"a commit of {len(record)} bytes is more than half a log segment ({self._largest})")
        pending.records.append(record)
        pending.other_bytes += sum(map(len, records[puts:]))
        pending.bodies += staged
        pending.acked += [(ack.incarnation, messages) for ack, messages in leaving]

    def _with_staged_payload(self, record: Buffer, staged: list[tuple[int, int, StagedBody]]) -> Buffer:
        """A put with its payload in a body of its own, so that many puts fit into one record."""
        if record[0] != RecordType.PUT:
            return record
        _, flags, _, _, route_set, _, message, arrival = PUT.unpack_from(record)
        body = self._bodies.stage()
        self._bodies.hold_back(body, record[PUT.size :])  # the caller has checked for free space before the unit began
        staged.append((message, route_set, body))
        return staged_put_record(route_set, message, arrival, flags, (body.number, 0, body.length))


def _has_large(payloads: Sequence[Buffer]) -> bool:
    return LargePayload in set(map(type, payloads))


def _encoded(put: CommitPut) -> bytes:
    staged, head = put.body, b""
    if isinstance(staged, LargePayload):
        head = staged.head
        body, offset = staged.rest
    elif isinstance(staged, StagedBody):
        body, offset = staged, 0
    else:
        return put_record(put.route_set, put.number, put.arrival, staged, put.flags)
    number = (body.number, offset, body.length)
    return staged_put_record(put.route_set, put.number, put.arrival, put.flags, number, head)


def _body_of(payload: bytes | StagedBody) -> StagedBody | None:
    if isinstance(payload, StagedBody):
        return payload
    return payload.rest[0] if isinstance(payload, LargePayload) else None
