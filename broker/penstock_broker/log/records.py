"""The records inside a block: what happened, one entry after the other. Pure: bytes to values; see `encoding`.

Every record starts with eight bytes (type, flags, length of the body), so that `docs/log-format.md` can grow by new
types only.
"""

import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from penstock_broker.log.blocks import NewerFormat

PREFIX: Final = Struct("<BBHI")  # type, flags, reserved, length of the body
PUT: Final = Struct("<BBHIIIQQ")  # prefix, then route set, reserved, message, arrival; the payload follows
PUT_FIXED: Final = PUT.size - PREFIX.size
START_BODY = Struct("<16sQQ")  # boot id, message ceiling, incarnation ceiling
DOCUMENT_BODY = Struct("<QBBH")  # incarnation, length of kind, reserved, length of key
DELETED_BODY = Struct("<BBH")  # length of kind, reserved, length of key
ROUTE_BODY = Struct("<II")  # route set, reserved; the incarnations follow
RANGE_BODY = Struct("<QQQ")  # incarnation, first message, last message
PAIR = Struct("<QQ")
COUNT_BODY = Struct("<QQII")  # incarnation, message, delivery count, reserved
NUMBER = Struct("<Q")
PART: Final = Struct("<BBHIQQ")  # prefix, then body, offset; the data follow
PART_FIXED: Final = PART.size - PREFIX.size
STAGED_BODY = Struct("<IIQQQQQ")  # route set, reserved, message, arrival, body, offset, length; the head follows


class RecordType(IntEnum):
    """First byte of a record. 0 is never written; 19 to 31 are reserved for segment indexes and compaction."""

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
    REMARK = 13
    PART = 16
    STAGED_PUT = 17
    COMMIT = 18


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
class Part:
    """`length` bytes of a body, `offset` from its beginning; they lie `at` bytes behind the first record's start."""

    body: int
    offset: int
    at: int
    length: int


@dataclass(frozen=True, slots=True)
class StagedPut:
    """A put whose payload is `put.payload` and behind it what its body holds from `offset` to `length`."""

    put: Put
    body: int
    offset: int
    length: int


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
class Remark:
    """What the broker has to say of a message in one queue beside its payload; opaque to the log."""

    incarnation: int
    message: int
    text: bytes


@dataclass(frozen=True, slots=True)
class CheckpointBegin:
    identifier: int


@dataclass(frozen=True, slots=True)
class CheckpointEnd:
    identifier: int


@dataclass(frozen=True, slots=True)
class Closed:
    pass


Transacted = Put | StagedPut | Ack


@dataclass(frozen=True, slots=True)
class Commit:
    """All of these or none."""

    records: tuple[Transacted, ...]


Record = (
    Start
    | Document
    | Deleted
    | Route
    | Put
    | Part
    | StagedPut
    | Ack
    | Mark
    | Count
    | Remark
    | CheckpointBegin
    | CheckpointEnd
    | Closed
    | Commit
)


def decode_records(data: memoryview) -> Iterator[Record]:
    """The records of one block. Raises NewerFormat on an unknown type, Malformed if lengths do not add up."""
    for kind, flags, body, at in split(data):
        try:
            yield _decode(kind, flags, body, at)
        except (StructError, ValueError) as error:
            raise Malformed(f"record of type {kind}: {error}") from error


def split(data: memoryview) -> Iterator[tuple[int, int, memoryview, int]]:
    """Each record's type, flags and body, and where the body begins. Raises Malformed if lengths do not add up."""
    offset, end = 0, len(data)
    while offset < end:
        if offset + PREFIX.size > end:
            raise Malformed(f"{end - offset} bytes behind the last record")
        kind, flags, _, length = PREFIX.unpack_from(data, offset)
        offset += PREFIX.size
        if offset + length > end:
            raise Malformed(f"record of type {kind} says {length} bytes, {end - offset} are left")
        yield kind, flags, data[offset : offset + length], offset
        offset += length


def _decode(kind: int, flags: int, body: memoryview, at: int) -> Record:
    match kind:
        case RecordType.PUT | RecordType.ACK | RecordType.ACK_RANGE | RecordType.STAGED_PUT:
            return _decode_transacted(kind, flags, body)
        case RecordType.PART:
            number, offset = PAIR.unpack_from(body)
            return Part(number, offset, at + PART_FIXED, len(body) - PART_FIXED)
        case RecordType.COMMIT:
            return Commit(tuple(_decode_commit(body)))
        case RecordType.MARK:
            return Mark(tuple(PAIR.iter_unpack(body)))
        case RecordType.COUNT:
            return Count(
                tuple((incarnation, message, count) for incarnation, message, count, _ in COUNT_BODY.iter_unpack(body))
            )
        case RecordType.REMARK:
            incarnation, message = PAIR.unpack_from(body)
            return Remark(incarnation, message, bytes(body[PAIR.size :]))
        case RecordType.ROUTE:
            return Route(ROUTE_BODY.unpack_from(body)[0], tuple(_read_numbers(body[ROUTE_BODY.size :])))
        case RecordType.DOCUMENT:
            incarnation, kind_length, _, key_length = DOCUMENT_BODY.unpack_from(body)
            name, key, payload = _texts(body[DOCUMENT_BODY.size :], kind_length, key_length)
            return Document(name, key, incarnation, payload)
        case RecordType.DELETED:
            kind_length, _, key_length = DELETED_BODY.unpack_from(body)
            name, key, _ = _texts(body[DELETED_BODY.size :], kind_length, key_length)
            return Deleted(name, key)
        case RecordType.START:
            return Start(*START_BODY.unpack(body))
        case RecordType.CHECKPOINT_BEGIN:
            return CheckpointBegin(*NUMBER.unpack(body))
        case RecordType.CHECKPOINT_END:
            return CheckpointEnd(*NUMBER.unpack(body))
        case RecordType.CLOSED:
            return Closed()
        case _:
            raise NewerFormat(f"record type {kind} is unknown: the log was written by a newer Penstock")


def _decode_transacted(kind: int, flags: int, body: memoryview) -> Transacted:
    match kind:
        case RecordType.PUT:
            route_set, _, message, arrival = _PUT_BODY.unpack_from(body)
            return Put(route_set, message, arrival, bytes(body[PUT_FIXED:]), flags)
        case RecordType.STAGED_PUT:
            route_set, _, message, arrival, number, offset, length = STAGED_BODY.unpack_from(body)
            put = Put(route_set, message, arrival, bytes(body[STAGED_BODY.size :]), flags)
            return StagedPut(put, number, offset, length)
        case RecordType.ACK:
            return Ack(NUMBER.unpack_from(body)[0], _read_numbers(body[8:]), flags)
        case RecordType.ACK_RANGE:
            incarnation, first, last = RANGE_BODY.unpack(body)
            return Ack(incarnation, range(first, last + 1), flags)
        case _:
            raise NewerFormat(f"a record of type {kind} in a commit: the log was written by a newer Penstock")


def acks_in(kind: int, flags: int, body: memoryview) -> Iterator[Ack]:
    """The acks that a record is, or, as a commit, holds."""
    match kind:
        case RecordType.ACK | RecordType.ACK_RANGE:
            ack = _decode_transacted(kind, flags, body)
            assert isinstance(ack, Ack)
            yield ack
        case RecordType.COMMIT:
            for inner, inner_flags, content, _ in split(body):
                if inner in (RecordType.ACK, RecordType.ACK_RANGE):
                    yield from acks_in(inner, inner_flags, content)
        case _:
            pass


def _decode_commit(body: memoryview) -> Iterator[Transacted]:
    for kind, flags, content, _ in split(body):
        yield _decode_transacted(kind, flags, content)


_PUT_BODY = Struct("<IIQQ")


def _read_numbers(data: memoryview) -> Sequence[int]:
    numbers = array("Q")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _texts(data: memoryview, kind_length: int, key_length: int) -> tuple[str, str, bytes]:
    text_end = kind_length + key_length
    return str(data[:kind_length], "utf-8"), str(data[kind_length:text_end], "utf-8"), bytes(data[text_end:])
