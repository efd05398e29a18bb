"""Bodies that come in parts, and transactions: the part of `Log` that is not on the path of small messages.

A transaction is one record of its puts and acks; at recovery all of it holds or nothing.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock_broker.log.append import Appender
from penstock_broker.log.bodies import Bodies, CommitAck, CommitPut, LargePayload, NoRoom, RecordTooLarge, StagedBody
from penstock_broker.log.encoding import ack_record, commit_record, put_record, staged_put_record
from penstock_broker.log.files import Buffer
from penstock_broker.log.segment_usage import Living
from penstock_broker.log.records import PUT, Outcome, RecordType
from penstock_broker.log.splitting import units
from penstock_broker.log.checkpoint import State, parts
from penstock_broker.log.writer import Writer

UNIT_PUT_BYTES = 64  # of a put in a commit, what it takes beside head and payload; more than the record's fields
UNIT_ACK_BYTES = 40  # of an ack in a commit, if each were in a record of its own
HEAD_BYTES = 64 * 1024  # of a payload too large for one record, what is kept in memory
GATHERED_BYTES = 256 * 1024  # of parts of bodies, what is written together


@dataclass(frozen=True, slots=True)
class _Aside:
    """What the turn had appended before a unit began."""

    records: list[Buffer]
    puts: dict[int, list[int]]
    acks: dict[tuple[int, Outcome], list[int]]
    staged: list[tuple[int, int, StagedBody]]


class Transactor(Appender):
    """`begin_unit`, any puts and acks, `end_unit`; or `commit` at once. `stage`, `append`, then a put or a commit."""

    def __init__(self, writer: Writer, living: Living, bodies: Bodies, state: State, inline_bytes: int) -> None:
        super().__init__(writer, living, state, inline_bytes)
        self._bodies = bodies
        # Less than the room that is left where publishing is still accepted, so that the reserve stays.
        self._gathered = min(GATHERED_BYTES, writer.capacity // 16)
        self._head_bytes = min(HEAD_BYTES, self._largest // 2)
        self._aside: _Aside | None = None
        self._counted = (0, 0)  # of this turn's records, how many were counted, and their bytes

    @property
    def longest_head(self) -> int:
        """Bytes that may be in memory of a payload whose rest is in the log: they are part of its record."""
        return self._largest // 2

    @abstractmethod
    def accepts_publishing(self) -> bool:
        """False when the disk is full but for the reserve, which is kept for draining, and after a failure."""

    @abstractmethod
    def _has_room(self, size: int) -> bool:
        """Whether so much more fits without the reserve."""

    @abstractmethod
    def _write_parts(self) -> None:
        """Write what waits of bodies; if that fails, so has the log."""

    # Bodies -----------------------------------------------------------------------------------------------------------

    def stage(self) -> StagedBody:
        """A body whose bytes come in parts. It is released with its last reference, and gone after a restart, unless a
        put names it.
        """
        return self._bodies.stage(self.next_message())

    def append(self, body: StagedBody, data: Buffer) -> None:
        """The body's next bytes; they may be written now, and must not change. Raises NoRoom."""
        for start in range(0, len(data), self._gathered):
            if not self.accepts_publishing():
                raise NoRoom("the log takes no bodies: the disk is full, or the log has failed")
            self._append(body, data[start : start + self._gathered])

    def _append(self, body: StagedBody, data: Buffer) -> None:
        self._bodies.append(body, data)
        if self._bodies.waiting_bytes >= self._gathered:
            self._write_parts()

    def discard(self, body: StagedBody) -> None:
        """The body is not wanted any more, whoever holds it."""
        self._bodies.discard(body)

    def payload_of(self, body: StagedBody, head: bytes, offset: int) -> bytes:
        """What a message is that begins with `head` and goes on with `body` from `offset` on.

        Up to `inline_bytes` it is plain bytes, else a LargePayload that holds the body. Raises NoRoom.
        """
        self._write_parts()
        if self.failed is not None:
            raise NoRoom(self.failed)
        if len(head) + body.length - offset > self.inline_bytes:
            return LargePayload.of(head, body, offset)
        return head + body.read(offset, body.length - offset)

    def _put_large(self, route_set: int, payload: Buffer, arrival: int, flags: int) -> int:
        if isinstance(payload, LargePayload):
            body, offset = payload.rest
            head = payload.head
        else:
            inline = 0 if self._aside is not None else self._head_bytes  # a unit is to fit into one record
            body, offset, head = self.stage(), 0, bytes(payload[:inline])
            self._append(body, payload[inline:])  # whoever puts has asked; the reserve helps it out
            self._write_parts()
        number = self.next_message()
        staged = (body.number, offset, body.length)
        self._records.append(staged_put_record(route_set, number, arrival, flags, staged, head))
        self._note_put(route_set, number, body)
        return number

    # Transactions -----------------------------------------------------------------------------------------------------

    def check_unit(self, puts: Iterable[tuple[Buffer, int]], acks: int) -> None:
        """Whether a unit of these puts, and so many acks, will be taken: whoever was let pass begins it in this turn.

        A put is a payload, and by how many bytes it may become longer. Raises RecordTooLarge, or NoRoom. Acks alone
        find room on a full disk too.
        """
        count = inline = heads = 0
        for payload, growth in puts:
            count += 1
            if isinstance(payload, LargePayload):
                heads += len(payload.head) + growth
            else:
                inline += len(payload) + growth
        record = count * UNIT_PUT_BYTES + heads + acks * UNIT_ACK_BYTES
        if record > self._largest:
            raise RecordTooLarge(f"it takes {record} bytes of one record, of which there are {self._largest}")
        if not count:
            return
        # The record may begin a segment, so that the rest of the one before stays empty.
        size = self._pending_bytes() + self._bodies.waiting_bytes + inline + count * UNIT_PUT_BYTES + 2 * record
        if not self.accepts_publishing() or not self._has_room(size):
            raise NoRoom("the disk is full")

    def _pending_bytes(self) -> int:
        """What the turn has appended, counted once however often it is asked for."""
        counted, size = self._counted
        size += sum(map(len, self._records[counted:]))
        self._counted = len(self._records), size
        return size

    def begin_unit(self) -> None:
        """What is put and acknowledged up to `end_unit` happens as a whole. One unit at a time, within one turn.

        Topology, marks and delivery counts are not part of it.
        """
        assert self._aside is None, "a unit within a unit"
        self._aside = _Aside(self._records, self._puts, self._acks, self._staged)
        self._records, self._puts, self._acks, self._staged = [], {}, {}, []

    def end_unit(self) -> None:
        """Append the unit as one record; what is too much for one is written as bodies before it.

        What makes room in queues (`DROPPED`) follows behind it: it is not bounded by what the unit brings, and a crash
        between the two leaves a queue over its limit, no more. Raises RecordTooLarge if nobody asked `check_unit`:
        nothing of it was appended then.
        """
        pieces, acks, puts, staged = self._records, self._acks, self._puts, self._staged
        others = self._end_unit()
        records: list[Buffer] = []
        for unit in units(pieces):
            if unit[0][0] in _PUTS:
                records.append(b"".join(unit))
            else:
                others += unit
        leaving: list[CommitAck] = []
        for (incarnation, outcome), messages in acks.items():
            if outcome is Outcome.DROPPED:
                self.ack_many(incarnation, messages, outcome)
            else:
                leaving.append(CommitAck(incarnation, messages, outcome))
        self._append_commit(records, leaving)
        for route_set, numbers in puts.items():
            self._puts.setdefault(route_set, []).extend(numbers)
        self._staged += staged

    def abandon_unit(self) -> None:
        """Nothing of the unit happens, but for what is said of topology."""
        pieces = self._records
        others = self._end_unit()
        others += [piece for unit in units(pieces) if unit[0][0] not in _PUTS for piece in unit]

    def _end_unit(self) -> list[Buffer]:
        """Go on where the turn was before the unit; its records."""
        aside = self._aside
        assert aside is not None, "no unit has begun"
        self._aside = None
        self._records, self._puts, self._acks, self._staged = aside.records, aside.puts, aside.acks, aside.staged
        return self._records

    def _note_put(self, route_set: int, number: int, body: StagedBody | None) -> None:
        self._puts.setdefault(route_set, []).append(number)
        if body is not None:
            self._staged.append((number, route_set, body))

    def commit(self, puts: Sequence[CommitPut], acks: Sequence[CommitAck]) -> None:
        """One record of all these puts and acks: at recovery all of them or none.

        Acks of queues that have ended are left out. Ask `accepts_publishing` before. Raises as `end_unit`.
        """
        self._write_parts()
        self._append_commit([self._commit_put(put) for put in puts], acks)
        for put in puts:
            self._note_put(put.route_set, put.number, _body_of(put.body))

    def _append_commit(self, records: list[Buffer], acks: Sequence[CommitAck]) -> None:
        leaving = [(ack, sorted(ack.messages)) for ack in acks if ack.incarnation in self._living.queues]
        leaving = [(ack, messages) for ack, messages in leaving if messages]
        staged: list[tuple[int, int, StagedBody]] = []
        if sum(map(len, records)) > self._largest // 2:
            records = [self._put_aside(record, staged) for record in records]
            self._write_parts()
        for ack, messages in leaving:
            records += [ack_record(ack.incarnation, part, ack.outcome) for part in parts(messages, self._longest)]
        if not records:
            return
        record = commit_record(records)
        if len(record) > self._largest:
            raise RecordTooLarge(f"a commit of {len(record)} bytes is more than half a log segment ({self._largest})")
        self._records.append(record)
        self._staged += staged
        self._committed_acks += [(ack.incarnation, messages) for ack, messages in leaving]

    def _put_aside(self, record: Buffer, staged: list[tuple[int, int, StagedBody]]) -> Buffer:
        """A put with the payload in a body of its own, so that many of them fit into one record."""
        if record[0] != RecordType.PUT:
            return record
        _, flags, _, _, route_set, _, message, arrival = PUT.unpack_from(record)
        body = self.stage()
        self._bodies.append(body, record[PUT.size :])  # asked before the unit began; the reserve helps it out
        staged.append((message, route_set, body))
        return staged_put_record(route_set, message, arrival, flags, (body.number, 0, body.length))

    def _commit_put(self, put: CommitPut) -> bytes:
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


_PUTS = frozenset({RecordType.PUT, RecordType.STAGED_PUT})


def _body_of(payload: bytes | StagedBody) -> StagedBody | None:
    if isinstance(payload, StagedBody):
        return payload
    return payload.rest[0] if isinstance(payload, LargePayload) else None
