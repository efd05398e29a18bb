"""What a turn appends to the log: messages, acks, marks, counts, topology; nothing is written here.

Written for speed: `put` and `ack` are flat. It decides nothing about messages and must not know AMQP.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable

from penstock_broker.log.bodies import LargePayload, RecordTooLarge, StagedBody
from penstock_broker.log.encoding import deleted_record, document_record, remark_record
from penstock_broker.log.files import Buffer
from penstock_broker.log.segment_usage import Living
from penstock_broker.log.records import PUT, PUT_FIXED, Outcome, RecordType
from penstock_broker.log.checkpoint import State, longest_record
from penstock_broker.log.writer import Writer

_PUT = int(RecordType.PUT)

LONGEST_REMARK = 64 * 1024
"""Bytes of one: each checkpoint writes it again."""


class Appender(ABC):
    """The part of `Log` that gathers a turn's records. `failed`: why the log takes nothing more, or None."""

    def __init__(self, writer: Writer, living: Living, state: State, inline_bytes: int) -> None:
        """The numbers are set by `Log`."""
        self._writer, self._living, self._state = writer, living, state
        self.failed: str | None = None
        self._largest = writer.capacity // 2
        self.inline_bytes = inline_bytes
        """Payloads up to this length are plain bytes; only longer ones can be a LargePayload."""
        self._plain = min(inline_bytes, self._largest)
        self._longest = longest_record(writer.capacity)
        self._next_message = self._next_incarnation = self._next_route = 1
        self._route_numbers: dict[tuple[int, ...], int] = {}
        # Appended since the last write.
        self._records: list[Buffer] = []
        self._puts: dict[int, list[int]] = {}  # route set -> messages
        self._acks: dict[tuple[int, Outcome], list[int]] = {}
        self._new_marks: dict[int, int] = {}
        self._new_counts: dict[tuple[int, int], int] = {}
        self._staged: list[tuple[int, int, StagedBody]] = []  # message, route set, body
        self._committed_acks: list[tuple[int, list[int]]] = []
        self._first_message = self._next_message

    @abstractmethod
    def _put_large(self, route_set: int, payload: Buffer, arrival: int, flags: int) -> int:
        """Put what is too large for one record, or is in the log already."""

    # The forwarding path ----------------------------------------------------------------------------------------------

    def next_message(self) -> int:
        """A number for a message that is not logged, from the same row: never given twice, also over restarts."""
        return self.next_messages(1)

    def next_messages(self, count: int) -> int:
        """The first of `count` consecutive numbers for messages that are not logged."""
        number = self._next_message
        self._next_message = number + count
        return number

    def put(self, route_set: int, payload: Buffer, arrival: int, flags: int = 0) -> int:
        """Append one message for all queues of `route_set`; its number.

        `arrival` (64 bits) and `flags` (0 to 255) come back at recovery. Ask `accepts_publishing` before; `payload`
        must not change before `write`.
        """
        length = len(payload)
        if length > self._plain and (isinstance(payload, LargePayload) or length > self._largest):
            return self._put_large(route_set, payload, arrival, flags)
        number = self._next_message
        self._next_message = number + 1
        records = self._records
        records.append(PUT.pack(_PUT, flags, 0, PUT_FIXED + length, route_set, 0, number, arrival))
        records.append(payload)
        try:
            self._puts[route_set].append(number)
        except KeyError:
            self._puts[route_set] = [number]
        return number

    def ack(self, incarnation: int, message: int, outcome: Outcome = Outcome.ACCEPTED) -> None:
        """The message has left this queue for good.

        Exactly once per queue and message; unknown incarnations are ignored.
        """
        try:
            self._acks[incarnation, outcome].append(message)
        except KeyError:
            self._acks[incarnation, outcome] = [message]

    def ack_many(self, incarnation: int, messages: Iterable[int], outcome: Outcome = Outcome.ACCEPTED) -> None:
        """`ack` for several messages of one queue."""
        try:
            self._acks[incarnation, outcome] += messages
        except KeyError:
            self._acks[incarnation, outcome] = list(messages)

    def delivered_up_to(self, incarnation: int, message: int) -> None:
        """Messages up to this number may be seen by a consumer once this turn's transfers leave."""
        if message > self._new_marks.get(incarnation, 0):
            self._new_marks[incarnation] = message

    def delivery_count(self, incarnation: int, message: int, count: int) -> None:
        """`count` unsuccessful deliveries of this message count against its limit."""
        self._new_counts[incarnation, message] = count

    def remark(self, incarnation: int, message: int, text: bytes) -> bool:
        """Say something of a message in one queue, which recovery tells with it; the last remark holds.

        False if it is too long to be kept, as what is written again and again has to be short. Unknown incarnations
        are ignored.
        """
        record = remark_record(incarnation, message, text)
        if len(record) > min(LONGEST_REMARK, self._largest // 2):
            return False
        if incarnation in self._living.queues:
            self._state.remark((incarnation, message), record)
            self._records.append(record)
        return True

    # Topology ---------------------------------------------------------------------------------------------------------

    def next_incarnation(self) -> int:
        """A number for one life of a queue: never given twice, also over restarts."""
        number = self._next_incarnation
        self._next_incarnation = number + 1
        return number

    def route_set(self, incarnations: tuple[int, ...]) -> int:
        """The number that stands for these queues in `put`. Ask again after one of them has ended."""
        number = self._route_numbers.get(incarnations)
        if number is None:
            number = self._route_numbers[incarnations] = self._next_route
            self._writer.routes[number] = incarnations
            self._next_route += 1
        return number

    def topology(self, kind: str, key: str, payload: bytes, incarnation: int = 0) -> None:
        """Set the state of one document.

        Another incarnation than before drops the messages of the former, in one record. Raises RecordTooLarge.
        """
        record = document_record(kind, key, incarnation, payload)
        if len(record) > self._largest:
            raise RecordTooLarge(f"{kind} {key} takes {len(record)} bytes, more than half a log segment")
        self._end_incarnation((kind, key), incarnation)
        self._state.set((kind, key), incarnation, record)
        if incarnation:
            self._living.begin(incarnation)
        self._records.append(record)

    def delete(self, kind: str, key: str) -> None:
        """Remove a document, and with its incarnation all messages of that queue. Unknown ones are ignored."""
        if (kind, key) in self._state:
            self._end_incarnation((kind, key), 0)
            self._state.remove((kind, key))
            self._records.append(deleted_record(kind, key))

    def _end_incarnation(self, key: tuple[str, str], following: int) -> None:
        before = self._state.incarnation_of(key)
        if before in (0, following):
            return
        self._living.end(before, self._writer.sequence + 1)
        self._state.end(before)
        for incarnations in [incarnations for incarnations in self._route_numbers if before in incarnations]:
            del self._route_numbers[incarnations]
