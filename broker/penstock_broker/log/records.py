"""The records inside a block: what happened, one entry after the other. Pure: bytes to values and back.

Every record starts with eight bytes (type, flags, length of the body), so that `docs/log-format.md` can grow by new
types only.
"""

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from penstock_broker.log.blocks import NewerFormat

PREFIX: Final = Struct("<BBHI")  # type, flags, reserved, length of the body
PUT: Final = Struct("<BBHIIIQQ")  # prefix, then route set, reserved, message, arrival; the payload follows
PUT_FIXED: Final = PUT.size - PREFIX.size
_START = Struct("<16sQQ")  # boot id, message ceiling, incarnation ceiling
_DOCUMENT = Struct("<QBBH")  # incarnation, length of kind, reserved, length of key
_DELETED = Struct("<BBH")  # length of kind, reserved, length of key
_ROUTE = Struct("<II")  # route set, reserved; the incarnations follow
_RANGE = Struct("<QQQ")  # incarnation, first message, last message
_PAIR = Struct("<QQ")
_COUNT = Struct("<QQII")  # incarnation, message, delivery count, reserved
_NUMBER = Struct("<Q")


class RecordType(IntEnum):
    """First byte of a record. 0 is never written; 16 to 31 are reserved for transactions, indexes and compaction."""

    START = 1
    DOCUMENT = 2
    DELETED = 3
    ROUTE = 4
    PUT = 5
    ACK = 6
    ACK_RANGE = 7
    MARK = 8
    COUNT = 9
    CHECKPOINT_BEGIN = 10
    CHECKPOINT_END = 11
    CLOSED = 12


class Outcome(IntEnum):
    """Why a message left a queue; the flags byte of an ack record."""

    ACCEPTED = 0
    REJECTED = 1
    EXPIRED = 2
    PURGED = 3
    DEAD_LETTERED = 4
    DROPPED = 5


class Malformed(Exception):
    """Records that do not parse although the checksum of their block holds."""


# Records, as bytes ----------------------------------------------------------------------------------------------------


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
    return _record(RecordType.START, _START.pack(boot_id, message_ceiling, incarnation_ceiling))


def document_record(kind: str, key: str, incarnation: int, payload: bytes) -> bytes:
    """The last state of one piece of topology; incarnation 0 if it holds no messages."""
    kind_bytes, key_bytes = kind.encode(), key.encode()
    head = _DOCUMENT.pack(incarnation, len(kind_bytes), 0, len(key_bytes))
    return _record(RecordType.DOCUMENT, head + kind_bytes + key_bytes + payload)


def deleted_record(kind: str, key: str) -> bytes:
    """The document is gone, and with it every message of its incarnation."""
    kind_bytes, key_bytes = kind.encode(), key.encode()
    return _record(RecordType.DELETED, _DELETED.pack(len(kind_bytes), 0, len(key_bytes)) + kind_bytes + key_bytes)


def route_record(route_set: int, incarnations: Sequence[int]) -> bytes:
    """The queues that a put naming `route_set` reaches; defined anew in each segment that uses it."""
    return _record(RecordType.ROUTE, _ROUTE.pack(route_set, 0) + _numbers(incarnations))


def put_record(route_set: int, message: int, arrival: int, payload: bytes, flags: int = 0) -> bytes:
    """A message in all queues of a route set."""
    body = PUT_FIXED + len(payload)
    return PUT.pack(RecordType.PUT, flags, 0, body, route_set, 0, message, arrival) + payload


def ack_record(incarnation: int, messages: Sequence[int], outcome: Outcome = Outcome.ACCEPTED) -> bytes:
    """These messages have left this queue for good. Sorted `messages`; a run without holes takes the short form."""
    first, last = messages[0], messages[-1]
    if last - first + 1 == len(messages):
        return _record(RecordType.ACK_RANGE, _RANGE.pack(incarnation, first, last), outcome)
    return _record(RecordType.ACK, _NUMBER.pack(incarnation) + _numbers(messages), outcome)


def mark_record(marks: Iterable[tuple[int, int]]) -> bytes:
    """Per (incarnation, message): everything up to this number may have been seen by a consumer."""
    return _record(RecordType.MARK, b"".join([_PAIR.pack(*mark) for mark in marks]))


def count_record(counts: Iterable[tuple[int, int, int]]) -> bytes:
    """Per (incarnation, message, count): unsuccessful deliveries that count."""
    return _record(RecordType.COUNT, b"".join([_COUNT.pack(*count, 0) for count in counts]))


def checkpoint_records(identifier: int, records: Sequence[bytes]) -> list[bytes]:
    """`records` restate everything but messages and acks; once both ends are synced, nothing older is needed."""
    body = _NUMBER.pack(identifier)
    return [_record(RecordType.CHECKPOINT_BEGIN, body), *records, _record(RecordType.CHECKPOINT_END, body)]


def closed_record() -> bytes:
    """The broker stopped in order: as the last record of the log, nothing was lost."""
    return _record(RecordType.CLOSED, b"")


# Records, read back ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    boot_id: bytes
    message_ceiling: int
    incarnation_ceiling: int


@dataclass(frozen=True, slots=True)
class Document:
    """One piece of topology. `payload` is opaque to the log; incarnation 0 means that it holds no messages."""

    kind: str
    key: str
    incarnation: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Deleted:
    kind: str
    key: str


@dataclass(frozen=True, slots=True)
class Route:
    route_set: int
    incarnations: tuple[int, ...]


class Put(NamedTuple):  # a tuple, because recovery makes millions of them
    route_set: int
    message: int
    arrival: int
    payload: bytes
    flags: int


@dataclass(frozen=True, slots=True)
class Ack:
    incarnation: int
    messages: Sequence[int]
    outcome: int


@dataclass(frozen=True, slots=True)
class Mark:
    marks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Count:
    counts: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class CheckpointBegin:
    identifier: int


@dataclass(frozen=True, slots=True)
class CheckpointEnd:
    identifier: int


@dataclass(frozen=True, slots=True)
class Closed:
    pass


Record = Start | Document | Deleted | Route | Put | Ack | Mark | Count | CheckpointBegin | CheckpointEnd | Closed


def decode_records(data: memoryview) -> Iterator[Record]:
    """The records of one block. Raises NewerFormat on an unknown type, Malformed if lengths do not add up."""
    offset, end = 0, len(data)
    while offset < end:
        if offset + PREFIX.size > end:
            raise Malformed(f"{end - offset} bytes behind the last record")
        kind, flags, _, length = PREFIX.unpack_from(data, offset)
        offset += PREFIX.size
        if offset + length > end:
            raise Malformed(f"record of type {kind} says {length} bytes, {end - offset} are left")
        try:
            yield _decode(kind, flags, data[offset : offset + length])
        except (StructError, ValueError) as error:
            raise Malformed(f"record of type {kind}: {error}") from error
        offset += length


def _decode(kind: int, flags: int, body: memoryview) -> Record:
    match kind:
        case RecordType.PUT:
            route_set, _, message, arrival = _PUT_BODY.unpack_from(body)
            return Put(route_set, message, arrival, bytes(body[PUT_FIXED:]), flags)
        case RecordType.ACK:
            return Ack(_NUMBER.unpack_from(body)[0], _read_numbers(body[8:]), flags)
        case RecordType.ACK_RANGE:
            incarnation, first, last = _RANGE.unpack(body)
            return Ack(incarnation, range(first, last + 1), flags)
        case RecordType.MARK:
            return Mark(tuple(_PAIR.iter_unpack(body)))
        case RecordType.COUNT:
            return Count(
                tuple((incarnation, message, count) for incarnation, message, count, _ in _COUNT.iter_unpack(body))
            )
        case RecordType.ROUTE:
            return Route(_ROUTE.unpack_from(body)[0], tuple(_read_numbers(body[_ROUTE.size :])))
        case RecordType.DOCUMENT:
            incarnation, kind_length, _, key_length = _DOCUMENT.unpack_from(body)
            name, key, payload = _split(body[_DOCUMENT.size :], kind_length, key_length)
            return Document(name, key, incarnation, payload)
        case RecordType.DELETED:
            kind_length, _, key_length = _DELETED.unpack_from(body)
            name, key, _ = _split(body[_DELETED.size :], kind_length, key_length)
            return Deleted(name, key)
        case RecordType.START:
            return Start(*_START.unpack(body))
        case RecordType.CHECKPOINT_BEGIN:
            return CheckpointBegin(*_NUMBER.unpack(body))
        case RecordType.CHECKPOINT_END:
            return CheckpointEnd(*_NUMBER.unpack(body))
        case RecordType.CLOSED:
            return Closed()
        case _:
            raise NewerFormat(f"record type {kind} is unknown: the log was written by a newer Penstock")


_PUT_BODY = Struct("<IIQQ")


def _read_numbers(data: memoryview) -> Sequence[int]:
    numbers = array("Q")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _split(data: memoryview, kind_length: int, key_length: int) -> tuple[str, str, bytes]:
    text_end = kind_length + key_length
    return str(data[:kind_length], "utf-8"), str(data[kind_length:text_end], "utf-8"), bytes(data[text_end:])
