"""Records as bytes, both ways: `decode_records` reads what the functions `..._record` make.

Pure. The layout is that of docs/reference/log-format.md; tests compare the two with bytes typed by hand. Every record
starts with eight bytes (type, flags, length of the body), so that the format can grow by new types only.
"""

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import starmap
from struct import Struct
from struct import error as StructError
from typing import Final, Literal, TypeVar

from penstock_broker.log.disk.files import Buffer
from penstock_broker.log.format.blocks import NewerFormat
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
    EndReason,
    Part,
    Put,
    Record,
    Remark,
    RouteDifference,
    RouteSet,
    StagedPut,
    Start,
    Transacted,
    VolatilePut,
)
from penstock_broker.log.format.segment_states import SEGMENT_STATE, decode_segment_state

PREFIX: Final = Struct("<BBHI")  # type, flags, reserved, length of the body
PUT: Final = Struct("<BBHIIIQQ")  # prefix, then route set, reserved, message, arrival; the payload follows
PUT_FIXED: Final = PUT.size - PREFIX.size
PART: Final = Struct("<BBHIQQ")  # prefix, then body, offset; the data follow
_PART_FIXED: Final = PART.size - PREFIX.size
_START = Struct("<16sQQ")  # boot id, message ceiling, incarnation ceiling
_DOCUMENT = Struct("<QBBH")  # incarnation, length of kind, reserved, length of key
_DELETED = Struct("<BBH")  # length of kind, reserved, length of key
_ROUTE = Struct("<II")  # route set, reserved; the incarnations follow
_ROUTE_DIFFERENCE = Struct("<IIII")  # route set, base, number of removed, reserved; removed and added follow
_PUT_BODY = Struct("<IIQQ")  # route set, reserved, message, arrival; the payload follows
_STAGED = Struct("<IIQQQQQ")  # route set, reserved, message, arrival, body, offset, length; the head follows
_RANGE = Struct("<QQQ")  # incarnation, first message, last message
_ACK_RANGE = Struct("<BBHIQQQ")  # prefix, then the same
_PAIR = Struct("<QQ")
_COUNT = Struct("<QQII")  # incarnation, message, delivery count, reserved
_NUMBER = Struct("<Q")
_NUMBER_32 = Struct("<I")

T = TypeVar("T")


class RecordType(IntEnum):
    """First byte of a record. 0 is never written; 19, 22, 23, 25 to 27 and 29 to 31 are reserved."""

    START = 1
    DOCUMENT = 2
    DELETED = 3
    ROUTE = 4
    PUT = 5
    ACK = 6
    ACK_RANGE = 7
    DELIVERED_UP_TO = 8
    COUNT = 9
    CHECKPOINT_BEGIN = 10
    CHECKPOINT_END = 11
    CLOSED = 12
    REMARK = 13
    PART = 16
    STAGED_PUT = 17
    COMMIT = 18
    ROUTE_DIFFERENCE = 20
    MOVED_PART = 21
    VOLATILE_PUT = 24
    SEGMENT_STATE = SEGMENT_STATE


_ACK_RANGE_TYPE: Final = RecordType.ACK_RANGE
_DELIVERED_UP_TO_TYPE: Final = RecordType.DELIVERED_UP_TO
"""An attribute of an enum's class takes long to find."""
PUT_TYPES: Final = frozenset({RecordType.PUT, RecordType.STAGED_PUT})


class Malformed(Exception):
    """Records that do not parse although the checksum of their block is right."""


# Writing --------------------------------------------------------------------------------------------------------------


def most_entries(capacity: int) -> int:
    """How many acks, delivered-up-to numbers or counts one record may hold, if a block holds `capacity` bytes."""
    return min(1 << 16, capacity // 64)


def chunks(entries: Sequence[T], most: int) -> Sequence[Sequence[T]]:
    """The entries in pieces that one record may hold (`most_entries`); no piece if there is no entry."""
    if 0 < len(entries) <= most:
        return (entries,)
    return [entries[start : start + most] for start in range(0, len(entries), most)]


def start_record(boot_id: bytes, message_ceiling: int, incarnation_ceiling: int) -> bytes:
    """See `Start`."""
    return _record(RecordType.START, _START.pack(boot_id, message_ceiling, incarnation_ceiling))


def document_record(kind: str, key: str, incarnation: int, payload: bytes) -> bytes:
    """See `Document`."""
    kind_bytes, key_bytes = kind.encode(), key.encode()
    head = _DOCUMENT.pack(incarnation, len(kind_bytes), 0, len(key_bytes))
    return _record(RecordType.DOCUMENT, head + kind_bytes + key_bytes + payload)


def document_bytes(kind: str, key: str, payload: bytes) -> int:
    """Bytes that the record of a document takes."""
    return len(document_record(kind, key, 0, payload))


def deleted_record(kind: str, key: str) -> bytes:
    """See `Deleted`."""
    kind_bytes, key_bytes = kind.encode(), key.encode()
    return _record(RecordType.DELETED, _DELETED.pack(len(kind_bytes), 0, len(key_bytes)) + kind_bytes + key_bytes)


def route_record(route_set: int, incarnations: Sequence[int]) -> bytes:
    """See `Route`. It stands in each segment that uses the route set, before the first put that does."""
    return _record(RecordType.ROUTE, _ROUTE.pack(route_set, 0) + _numbers(incarnations))


def definition_bytes(queues: int) -> int:
    """What the definition of a route set of so many queues takes at most."""
    return PREFIX.size + _ROUTE.size + _NUMBER.size * queues


def route_difference_record(route_set: int, base: int, removed: Sequence[int], added: Sequence[int]) -> bytes:
    """See `RouteDifference`. `base` is defined before it in the same segment."""
    head = _ROUTE_DIFFERENCE.pack(route_set, base, len(removed), 0)
    return _record(RecordType.ROUTE_DIFFERENCE, head + _numbers(removed) + _numbers(added))


def put_record(route_set: int, message: int, arrival: int, payload: bytes, flags: int = 0) -> bytes:
    """See `Put`."""
    body = PUT_FIXED + len(payload)
    return PUT.pack(RecordType.PUT, flags, 0, body, route_set, 0, message, arrival) + payload


def redirected(put: bytes, route_set: int) -> bytes:
    """The same put or staged put for the queues of another route set."""
    changed = bytearray(put)
    _NUMBER_32.pack_into(changed, PREFIX.size, route_set)
    return bytes(changed)


def moved_part(part: Buffer) -> bytes:
    """The copy of a part, or of a copy, that compaction writes."""
    return bytes((RecordType.MOVED_PART,)) + part[1:]


def part_prefix(body: int, offset: int, length: int) -> bytes:
    """What stands before `length` bytes of a body, the first of them at `offset` of the body."""
    return PART.pack(RecordType.PART, 0, 0, _PART_FIXED + length, body, offset)


def staged_put_record(
    route_set: int, message: int, arrival: int, flags: int, staged: tuple[int, int, int], head: Buffer = b""
) -> bytes:
    """See `StagedPut`. `staged`: number of the body, offset, length of the body."""
    body = _STAGED.pack(route_set, 0, message, arrival, *staged)
    return _record(RecordType.STAGED_PUT, body + head, flags)


def commit_record(records: Sequence[Buffer]) -> bytes:
    """See `Commit`. `records` are encoded puts, staged puts and acks, each in any number of pieces."""
    return b"".join([PREFIX.pack(RecordType.COMMIT, 0, 0, sum(map(len, records))), *records])


def ack_record(incarnation: int, messages: Sequence[int], reason: EndReason = EndReason.ACCEPTED) -> bytes:
    """See `Ack`. `messages` are sorted; numbers without a gap take the short form."""
    first, last = messages[0], messages[-1]
    if last - first + 1 == len(messages):
        return ack_range_record(incarnation, first, last, reason)
    return _record(RecordType.ACK, _NUMBER.pack(incarnation) + _numbers(messages), reason)


def ack_range_record(incarnation: int, first: int, last: int, reason: EndReason) -> bytes:
    """See `Ack`, of all messages from the first to the last."""
    return _ACK_RANGE.pack(_ACK_RANGE_TYPE, reason, 0, _RANGE.size, incarnation, first, last)


def delivered_up_to_record(numbers: Iterable[tuple[int, int]]) -> bytes:
    """See `DeliveredUpTo`."""
    body = b"".join(starmap(_PAIR.pack, numbers))
    return PREFIX.pack(_DELIVERED_UP_TO_TYPE, 0, 0, len(body)) + body


def count_record(counts: Iterable[tuple[int, int, int]]) -> bytes:
    """See `Count`."""
    return _record(RecordType.COUNT, b"".join([_COUNT.pack(*count, 0) for count in counts]))


def remark_record(incarnation: int, message: int, text: bytes) -> bytes:
    """See `Remark`."""
    return _record(RecordType.REMARK, _PAIR.pack(incarnation, message) + text)


def checkpoint_records(identifier: int, records: Sequence[bytes]) -> list[bytes]:
    """`records`, which say everything but messages and acks once more, between the two ends of a checkpoint."""
    body = _NUMBER.pack(identifier)
    return [_record(RecordType.CHECKPOINT_BEGIN, body), *records, _record(RecordType.CHECKPOINT_END, body)]


def closed_record() -> bytes:
    """See `Closed`."""
    return _record(RecordType.CLOSED, b"")


def _record(kind: RecordType, body: bytes, flags: int = 0) -> bytes:
    return PREFIX.pack(kind, flags, 0, len(body)) + body


def _numbers(numbers: Iterable[int]) -> bytes:
    return encoded_numbers(array("Q", numbers))


def encoded_numbers(numbers: "array[int]") -> bytes:
    """The integers, little-endian, by the fastest way the standard library has."""
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


# Reading --------------------------------------------------------------------------------------------------------------


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


def route_in(kind: int, body: memoryview) -> RouteSet | RouteDifference | None:
    """The definition of a route set that a record is; None for other records."""
    match kind:
        case RecordType.ROUTE:
            return _decode_route(body)
        case RecordType.ROUTE_DIFFERENCE:
            return _decode_difference(body)
        case _:
            return None


def acks_in(kind: int, flags: int, body: memoryview) -> Iterator[Ack]:
    """The ack that a record is, or the acks that it holds if it is a commit; nothing for other records."""
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


def _decode(kind: int, flags: int, body: memoryview, at: int) -> Record:
    match kind:
        case RecordType.PUT | RecordType.ACK | RecordType.ACK_RANGE | RecordType.STAGED_PUT:
            return _decode_transacted(kind, flags, body)
        case RecordType.VOLATILE_PUT:
            return VolatilePut(_decode_put(flags, body))
        case RecordType.PART | RecordType.MOVED_PART:
            number, offset = _PAIR.unpack_from(body)
            return Part(number, offset, at + _PART_FIXED, len(body) - _PART_FIXED)
        case RecordType.COMMIT:
            return Commit(tuple(_decode_commit(body)))
        case RecordType.DELIVERED_UP_TO:
            return DeliveredUpTo(tuple(_PAIR.iter_unpack(body)))
        case RecordType.COUNT:
            return Count(
                tuple((incarnation, message, count) for incarnation, message, count, _ in _COUNT.iter_unpack(body))
            )
        case RecordType.REMARK:
            incarnation, message = _PAIR.unpack_from(body)
            return Remark(incarnation, message, bytes(body[_PAIR.size :]))
        case RecordType.ROUTE:
            return _decode_route(body)
        case RecordType.ROUTE_DIFFERENCE:
            return _decode_difference(body)
        case RecordType.DOCUMENT:
            incarnation, kind_length, _, key_length = _DOCUMENT.unpack_from(body)
            name, key, payload = _texts(body[_DOCUMENT.size :], kind_length, key_length)
            return Document(name, key, incarnation, payload)
        case RecordType.DELETED:
            kind_length, _, key_length = _DELETED.unpack_from(body)
            name, key, _ = _texts(body[_DELETED.size :], kind_length, key_length)
            return Deleted(name, key)
        case RecordType.START:
            return Start(*_START.unpack(body))
        case RecordType.SEGMENT_STATE:
            return decode_segment_state(flags, body)
        case RecordType.CHECKPOINT_BEGIN:
            return CheckpointBegin(*_NUMBER.unpack(body))
        case RecordType.CHECKPOINT_END:
            return CheckpointEnd(*_NUMBER.unpack(body))
        case RecordType.CLOSED:
            return Closed()
        case _:
            raise NewerFormat(f"record type {kind} is unknown: the log was written by a newer Penstock")


def _decode_route(body: memoryview) -> RouteSet:
    return RouteSet(_ROUTE.unpack_from(body)[0], tuple(decoded_numbers(body[_ROUTE.size :])))


def _decode_difference(body: memoryview) -> RouteDifference:
    number, base, removed, _ = _ROUTE_DIFFERENCE.unpack_from(body)
    queues = tuple(decoded_numbers(body[_ROUTE_DIFFERENCE.size :]))
    return RouteDifference(number, base, queues[:removed], queues[removed:])


def _decode_transacted(kind: int, flags: int, body: memoryview) -> Transacted:
    match kind:
        case RecordType.PUT:
            return _decode_put(flags, body)
        case RecordType.STAGED_PUT:
            route_set, _, message, arrival, number, offset, length = _STAGED.unpack_from(body)
            put = Put(route_set, message, arrival, bytes(body[_STAGED.size :]), flags)
            return StagedPut(put, number, offset, length)
        case RecordType.ACK:
            return Ack(_NUMBER.unpack_from(body)[0], decoded_numbers(body[8:]), flags)
        case RecordType.ACK_RANGE:
            incarnation, first, last = _RANGE.unpack(body)
            return Ack(incarnation, range(first, last + 1), flags)
        case _:
            raise NewerFormat(f"a record of type {kind} in a commit: the log was written by a newer Penstock")


def _decode_put(flags: int, body: memoryview) -> Put:
    route_set, _, message, arrival = _PUT_BODY.unpack_from(body)
    return Put(route_set, message, arrival, bytes(body[PUT_FIXED:]), flags)


def _decode_commit(body: memoryview) -> Iterator[Transacted]:
    for kind, flags, content, _ in split(body):
        yield _decode_transacted(kind, flags, content)


def decoded_numbers(data: memoryview, code: Literal["I", "Q"] = "Q") -> "array[int]":
    """What `encoded_numbers` made of 32-bit ("I") or 64-bit integers. Raises ValueError if a part of one is left."""
    numbers: array[int] = array(code)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _texts(data: memoryview, kind_length: int, key_length: int) -> tuple[str, str, bytes]:
    text_end = kind_length + key_length
    return str(data[:kind_length], "utf-8"), str(data[kind_length:text_end], "utf-8"), bytes(data[text_end:])
