"""Records as bytes: what `records.decode_records` reads back. Pure. The layout is that of docs/log-format.md."""

import sys
from array import array
from collections.abc import Iterable, Sequence

from penstock_broker.log.files import Buffer
from penstock_broker.log.records import (
    COUNT_BODY,
    DELETED_BODY,
    DOCUMENT_BODY,
    NUMBER,
    PAIR,
    PART,
    PART_FIXED,
    PREFIX,
    PUT,
    PUT_FIXED,
    RANGE_BODY,
    ROUTE_BODY,
    STAGED_BODY,
    START_BODY,
    Outcome,
    RecordType,
)


def _record(kind: RecordType, body: bytes, flags: int = 0) -> bytes:
    return PREFIX.pack(kind, flags, 0, len(body)) + body


def _numbers(numbers: Iterable[int]) -> bytes:
    """Unsigned 64-bit integers, little-endian, by the fastest way the standard library has."""
    packed = array("Q", numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def start_record(boot_id: bytes, message_ceiling: int, incarnation_ceiling: int) -> bytes:
    """Which life of the machine this is, and the ceilings below which no later run may give a number away."""
    return _record(RecordType.START, START_BODY.pack(boot_id, message_ceiling, incarnation_ceiling))


def document_record(kind: str, key: str, incarnation: int, payload: bytes) -> bytes:
    """The last state of one piece of topology; incarnation 0 if it holds no messages."""
    kind_bytes, key_bytes = kind.encode(), key.encode()
    head = DOCUMENT_BODY.pack(incarnation, len(kind_bytes), 0, len(key_bytes))
    return _record(RecordType.DOCUMENT, head + kind_bytes + key_bytes + payload)


def deleted_record(kind: str, key: str) -> bytes:
    """The document is gone, and with it every message of its incarnation."""
    kind_bytes, key_bytes = kind.encode(), key.encode()
    return _record(RecordType.DELETED, DELETED_BODY.pack(len(kind_bytes), 0, len(key_bytes)) + kind_bytes + key_bytes)


def route_record(route_set: int, incarnations: Sequence[int]) -> bytes:
    """The queues that a put naming `route_set` reaches; defined anew in each segment that uses it."""
    return _record(RecordType.ROUTE, ROUTE_BODY.pack(route_set, 0) + _numbers(incarnations))


def put_record(route_set: int, message: int, arrival: int, payload: bytes, flags: int = 0) -> bytes:
    """A message in all queues of a route set."""
    body = PUT_FIXED + len(payload)
    return PUT.pack(RecordType.PUT, flags, 0, body, route_set, 0, message, arrival) + payload


def part_prefix(body: int, offset: int, length: int) -> bytes:
    """What stands before `length` bytes of a body, which are `offset` bytes from its beginning."""
    return PART.pack(RecordType.PART, 0, 0, PART_FIXED + length, body, offset)


def staged_put_record(
    route_set: int, message: int, arrival: int, flags: int, staged: tuple[int, int, int], head: Buffer = b""
) -> bytes:
    """A message in all queues of a route set: `head`, and behind it a staged body from an offset on.

    `staged`: number of the body, offset, length of the body.
    """
    body = STAGED_BODY.pack(route_set, 0, message, arrival, *staged)
    return _record(RecordType.STAGED_PUT, body + head, flags)


def commit_record(records: Iterable[Buffer]) -> bytes:
    """These records of puts and acks, all or none."""
    return _record(RecordType.COMMIT, b"".join(records))


def ack_record(incarnation: int, messages: Sequence[int], outcome: Outcome = Outcome.ACCEPTED) -> bytes:
    """These messages have left this queue for good. Sorted `messages`; a run without holes takes the short form."""
    first, last = messages[0], messages[-1]
    if last - first + 1 == len(messages):
        return _record(RecordType.ACK_RANGE, RANGE_BODY.pack(incarnation, first, last), outcome)
    return _record(RecordType.ACK, NUMBER.pack(incarnation) + _numbers(messages), outcome)


def mark_record(marks: Iterable[tuple[int, int]]) -> bytes:
    """Per (incarnation, message): everything up to this number may have been seen by a consumer."""
    return _record(RecordType.MARK, b"".join([PAIR.pack(*mark) for mark in marks]))


def count_record(counts: Iterable[tuple[int, int, int]]) -> bytes:
    """Per (incarnation, message, count): unsuccessful deliveries that count."""
    return _record(RecordType.COUNT, b"".join([COUNT_BODY.pack(*count, 0) for count in counts]))


def remark_record(incarnation: int, message: int, text: bytes) -> bytes:
    """What the broker has to say of a message in one queue; the last one holds."""
    return _record(RecordType.REMARK, PAIR.pack(incarnation, message) + text)


def checkpoint_records(identifier: int, records: Sequence[bytes]) -> list[bytes]:
    """`records` restate everything but messages and acks; once both ends are synced, nothing older is needed."""
    body = NUMBER.pack(identifier)
    return [_record(RecordType.CHECKPOINT_BEGIN, body), *records, _record(RecordType.CHECKPOINT_END, body)]


def closed_record() -> bytes:
    """The broker stopped in order: as the last record of the log, nothing was lost."""
    return _record(RecordType.CLOSED, b"")
