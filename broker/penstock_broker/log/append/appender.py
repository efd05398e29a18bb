"""What a turn of the broker's loop appends to the log: messages, acks, delivered-up-to numbers, counts, topology.

Written for speed: `put` and `ack` are flat, because they run once per message. Measured cost
(docs/reference/performance.md): about 0.4 us per put and 0.15 us per ack. Nothing is written to a file here, except for
payloads too large for a record. Nothing is decided about messages here, and AMQP is not known.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import penstock_native
from penstock_broker.log.append.body_writer import BodyWriter
from penstock_broker.log.disk.files import Buffer
from penstock_broker.log.format.record_codec import (
    PUT,
    PUT_FIXED,
    RecordType,
    ack_range_record,
    ack_record,
    chunks,
    deleted_record,
    document_record,
    most_entries,
    remark_record,
    staged_put_record,
)
from penstock_broker.log.format.records import EndReason
from penstock_broker.log.recovery.bodies import LargePayload, StagedBody
from penstock_broker.log.segments.segment_usage import SegmentUsage
from penstock_broker.log.write.checkpoint import Checkpoint, Numbers
from penstock_broker.log.write.writer import SegmentWriter

_put_records: Any = penstock_native.messages and penstock_native.messages.put_records
_PUT = int(RecordType.PUT)
_VOLATILE_PUT = int(RecordType.VOLATILE_PUT)

LONGEST_REMARK = 64 * 1024
"""Bytes of one remark, which each checkpoint writes again."""
HEAD_BYTES = 64 * 1024
"""Bytes that are kept in memory of a payload too large for one record."""


class RecordTooLarge(Exception):
    """A record would be larger than half a segment: raise the segment size, or refuse what asks for it."""


class PendingRecords:
    """What was appended and is not written yet."""

    __slots__ = (
        "_counted",
        "acked",
        "acks",
        "bodies",
        "is_unit",
        "other_bytes",
        "puts",
        "records",
        "volatile",
    )

    def __init__(self, *, is_unit: bool = False) -> None:
        """`is_unit`: these will become one record, see `commit`."""
        # Made in each turn, so with comments: a docstring behind a statement is a step of the interpreter.
        self.is_unit = is_unit
        self.records: list[Buffer] = []
        # Message numbers by route set.
        self.puts: dict[int, list[int]] = {}
        # Message numbers by incarnation and reason; they become records last.
        self.acks: dict[tuple[int, EndReason], list[int]] = {}
        # Messages (ascending) by incarnation whose acks are among the records: as yet those in commits.
        self.acked: list[tuple[int, Sequence[int]]] = []
        # How many of the records' buffers are of volatile puts.
        self.volatile = 0
        # The puts that name bodies: message, route set, body.
        self.bodies: list[tuple[int, int, StagedBody]] = []
        # Bytes of the records that are no puts. Those that come last in a turn count only if it has puts.
        self.other_bytes = 0
        # How many records `size` has counted, and their bytes.
        self._counted = 0, 0

    @property
    def size(self) -> int:
        """Bytes of the records. However often it is asked for, each record is counted once."""
        counted, size = self._counted
        size += sum(map(len, self.records[counted:]))
        self._counted = len(self.records), size
        return size

    @property
    def holds_plain_puts_only(self) -> bool:
        """Whether the records are puts with their payloads, two buffers each, and nothing else."""
        return not (self.bodies or self.volatile) and len(self.records) == 2 * sum(map(len, self.puts.values()))

    def add_put(self, route_set: int, message: int, body: StagedBody | None) -> None:
        """Note a put whose record was added, and the body that it names."""
        self.puts.setdefault(route_set, []).append(message)
        if body is not None:
            self.bodies.append((message, route_set, body))


class Appender:
    """Gathers the records of a turn."""

    def __init__(
        self,
        numbers: Numbers,
        checkpoint: Checkpoint,
        usage: SegmentUsage,
        writer: SegmentWriter,
        bodies: BodyWriter,
        inline_bytes: int,
    ) -> None:
        """`inline_bytes`: payloads up to this length are plain bytes; only longer ones can be a LargePayload."""
        self._numbers, self._checkpoint, self._usage = numbers, checkpoint, usage
        self._writer, self._bodies = writer, bodies
        self.largest = writer.capacity // 2
        """Bytes of the largest record that is taken."""
        self.longest_volatile = self.largest - PUT.size
        self.longest_plain = min(inline_bytes, self.largest)
        """Bytes of a payload that is certainly put as it is."""
        self._most = most_entries(writer.capacity)
        self.pending = PendingRecords()
        self._delivered_up_to: dict[int, int] = {}
        self._counts: dict[tuple[int, int], int] = {}

    # The forwarding path ----------------------------------------------------------------------------------------------

    def put(self, route_set: int, payload: Buffer, arrival: int, flags: int = 0) -> int:
        """Append one message for all queues of `route_set`. Returns its number.

        `arrival` (64 bits) and `flags` (0 to 255) come back at recovery. Ask `accepts_publishing` before; `payload`
        must not change before `write`.
        """
        length = len(payload)
        if length > self.longest_plain and (isinstance(payload, LargePayload) or length > self.largest):
            return self._put_large(route_set, payload, arrival, flags)
        numbers, pending = self._numbers, self.pending
        number = numbers.message
        numbers.message = number + 1
        records = pending.records
        records.append(PUT.pack(_PUT, flags, 0, PUT_FIXED + length, route_set, 0, number, arrival))
        records.append(payload)
        try:
            pending.puts[route_set].append(number)
        except KeyError:
            pending.puts[route_set] = [number]
        return number

    def put_many(self, route_set: int, payloads: list[bytes], arrival: int) -> int:
        """`put` for several payloads of at most `longest_plain` bytes, without flags. Returns the first number."""
        numbers, pending = self._numbers, self.pending
        first, count = numbers.message, len(payloads)
        if _put_records is None:
            for payload in payloads:
                self.put(route_set, payload, arrival)
            return first
        _put_records(payloads, pending.records, _PUT, route_set, first, arrival)
        numbers.message = first + count
        put = pending.puts.get(route_set)
        if put is None:
            put = pending.puts[route_set] = []
        if count == 1:
            put.append(first)
        else:
            put.extend(range(first, first + count))
        return first

    def put_volatile(self, route_set: int, payload: Buffer, arrival: int, flags: int = 0) -> int:
        """As `put`, for a message that ends with the process. At most `longest_volatile` bytes."""
        number = self._numbers.next_message()
        pending = self.pending
        head = PUT.pack(_VOLATILE_PUT, flags, 0, PUT_FIXED + len(payload), route_set, 0, number, arrival)
        pending.records += (head, payload)
        pending.volatile += 2
        pending.add_put(route_set, number, None)
        return number

    def ack(self, incarnation: int, message: int, reason: EndReason = EndReason.ACCEPTED) -> None:
        """The message has left this queue for good.

        Call it once per queue and message; unknown incarnations are ignored.
        """
        acks = self.pending.acks
        try:
            acks[incarnation, reason].append(message)
        except KeyError:
            acks[incarnation, reason] = [message]

    def ack_many(self, incarnation: int, messages: list[int], reason: EndReason = EndReason.ACCEPTED) -> None:
        """`ack` for several messages of one queue. The list is the log's from now on."""
        acks, key = self.pending.acks, (incarnation, reason)
        known = acks.get(key)
        if known is None:
            acks[key] = messages
        else:
            known += messages

    def delivered_up_to(self, numbers: Mapping[int, int]) -> None:
        """Consumers may see the messages of these queues up to these numbers as soon as this turn's transfers leave."""
        before = self._delivered_up_to
        if before:
            numbers = {
                incarnation: max(message, before.get(incarnation, 0)) for incarnation, message in numbers.items()
            }
        before.update(numbers)

    def delivery_count(self, incarnation: int, message: int, count: int) -> None:
        """`count` unsuccessful deliveries of this message count against its limit."""
        self._counts[incarnation, message] = count

    def remark(self, incarnation: int, message: int, text: bytes) -> bool:
        """Keep a remark about a message in one queue, which recovery returns with it; the last remark counts.

        False if it is too long to be kept: each checkpoint writes it again, so it has to be short. Unknown incarnations
        are ignored.
        """
        record = remark_record(incarnation, message, text)
        if len(record) > min(LONGEST_REMARK, self.largest // 2):
            return False
        if incarnation in self._usage.queues:
            self._checkpoint.remark((incarnation, message), record)
            self.pending.records.append(record)
            self.pending.other_bytes += len(record)
        return True

    def _put_large(self, route_set: int, payload: Buffer, arrival: int, flags: int) -> int:
        """Put a payload that is too large for one record, or whose rest is in the log already."""
        pending = self.pending
        if isinstance(payload, LargePayload):
            body, offset = payload.rest
            head = payload.head
        else:
            inline = 0 if pending.is_unit else min(HEAD_BYTES, self.largest // 2)  # a unit has to fit into one record
            body, offset, head = self._bodies.stage(), 0, bytes(payload[:inline])
            self._bodies.append_unasked(body, payload[inline:])
            self._bodies.write()
        number = self._numbers.next_message()
        staged = (body.number, offset, body.length)
        pending.records.append(staged_put_record(route_set, number, arrival, flags, staged, head))
        pending.add_put(route_set, number, body)
        return number

    # Topology ---------------------------------------------------------------------------------------------------------

    def topology(self, kind: str, key: str, payload: bytes, incarnation: int = 0) -> None:
        """Set the state of one document. Raises RecordTooLarge.

        Another incarnation than before drops the messages of the former one, in one record.
        """
        record = document_record(kind, key, incarnation, payload)
        if len(record) > self.largest:
            raise RecordTooLarge(f"{kind} {key} takes {len(record)} bytes, more than half a log segment")
        self._end_incarnation((kind, key), incarnation)
        self._checkpoint.set_document((kind, key), incarnation, record)
        if incarnation:
            self._usage.begin_queue(incarnation)
        self.pending.records.append(record)
        self.pending.other_bytes += len(record)

    def delete(self, kind: str, key: str) -> None:
        """Remove a document, and with its incarnation all messages of that queue. Unknown ones are ignored."""
        if (kind, key) in self._checkpoint:
            self._end_incarnation((kind, key), 0)
            self._checkpoint.remove_document((kind, key))
            self.pending.records.append(deleted_record(kind, key))

    def end_volatile(self, incarnation: int) -> None:
        """A queue has ended of which no document may have told; other ones are ignored."""
        if incarnation in self._usage.queues:
            self._end_queue(incarnation)

    def _end_incarnation(self, key: tuple[str, str], following: int) -> None:
        before = self._checkpoint.incarnation_of(key)
        if before in (0, following):
            return
        self._end_queue(before)

    def _end_queue(self, incarnation: int) -> None:
        self._usage.end_queue(incarnation, self._writer.sequence + 1)
        self._checkpoint.end_queue(incarnation)

    # For repairs ------------------------------------------------------------------------------------------------------

    def put_this_turn(self) -> dict[int, set[int]]:
        """The messages that were put and are not written yet, by incarnation."""
        found: dict[int, set[int]] = {}
        for route_set, numbers in self.pending.puts.items():
            for incarnation in self._writer.routes.incarnations[route_set]:
                found.setdefault(incarnation, set()).update(numbers)
        return found

    def acked_this_turn(self) -> dict[int, set[int]]:
        """The messages that have left their queues for good in this turn, by incarnation."""
        found: dict[int, set[int]] = {}
        for incarnation, messages in (
            *((key[0], acks) for key, acks in self.pending.acks.items()),
            *self.pending.acked,
        ):
            found.setdefault(incarnation, set()).update(messages)
        return found

    # The end of a turn ------------------------------------------------------------------------------------------------

    def take_turn(self) -> PendingRecords | None:
        """All that was appended, as records, and the messages that are acknowledged; None if that is nothing. What is
        returned is the caller's.
        """
        pending, checkpoint, numbers = self.pending, self._checkpoint, self._numbers
        records = pending.records
        before = len(records)
        if self._counts:  # before the acks, with which counts end
            records += checkpoint.count(self._counts)
            self._counts.clear()
        if pending.acks:
            self._encode_acks(pending)
        if pending.acked and (checkpoint.counts or checkpoint.remarks):
            for incarnation, messages in pending.acked:
                checkpoint.acked(incarnation, messages)
        if self._delivered_up_to:
            records += checkpoint.delivered_up_to(self._delivered_up_to)
            self._delivered_up_to.clear()
        if numbers.message >= numbers.short_from:
            records.append(numbers.reserve())
        if not records:
            pending.acks.clear()  # of queues that have ended
            return None
        if pending.puts:
            pending.other_bytes += sum(map(len, records[before:]))
        self.pending = PendingRecords()
        return pending

    def _encode_acks(self, pending: PendingRecords) -> None:
        """Append the records of acks, for queues that exist."""
        records, queues, most = pending.records, self._usage.queues, self._most
        acked = pending.acked
        before: list[int] = []
        listed: list[int] = []
        first = last = 0
        is_range = False
        for (incarnation, reason), messages in pending.acks.items():
            if not messages or incarnation not in queues:
                continue
            # Many queues of a fan-out exchange lose the same messages together, in an order that is not ascending, but
            # the same for all. They share the list that is.
            if messages != before:
                before, listed = messages, sorted(messages)
                first, last = listed[0], listed[-1]
                is_range = last - first + 1 == len(listed) <= most
            if is_range:
                records.append(ack_range_record(incarnation, first, last, reason))
            else:
                records += [ack_record(incarnation, chunk, reason) for chunk in chunks(listed, most)]
            acked.append((incarnation, listed))

    def clear(self) -> None:
        """Drop what was appended: the log has failed and nothing will be written."""
        self.pending = PendingRecords()
        self._delivered_up_to.clear()
        self._counts.clear()
