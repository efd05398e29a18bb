"""The bytes of the log: segment header, block header and records. Pure: knows no file and no clock.

`docs/log-format.md` is the same in words; tests hold the two together with bytes typed by hand. Every integer is
little-endian. A reader that meets a version or a record type it does not know refuses (`NewerFormat`): it must never
serve half a log.
"""

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from struct import Struct
from typing import Final
from zlib import crc32

VERSION: Final = 1

SEGMENT_MAGIC: Final = b"PENSTOCK"
# magic, version, flags, header length, segment number, size in bytes, log id, time ms, checksum, reserved
SEGMENT_HEADER: Final = Struct("<8sHHIQQ16sQII")
HEADER_COPY: Final = 2048
SEGMENT_START: Final = 4096  # the first block; the header has a page of its own, so that no block shares its sector

BLOCK_MAGIC: Final = b"PSTB"
# magic, version, flags, length, checksum, segment number, offset, reserved, epoch, sequence, synced, time ms
BLOCK_HEADER: Final = Struct("<4sHHIIQIIQQQQ")
BLOCK_ALIGNMENT: Final = 64

PREFIX: Final = Struct("<BBHI")  # type, flags, reserved, length of the body
PUT: Final = Struct("<BBHIIIQQ")  # prefix, then route set, reserved, message, time ms; the payload follows
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


class BlockFlag(IntFlag):
    """`SEAL`: nothing follows in this segment."""

    NONE = 0
    SEAL = 1


class Outcome(IntEnum):
    """Why a message left a queue; the flags byte of an ack record."""

    ACCEPTED = 0
    REJECTED = 1
    EXPIRED = 2
    PURGED = 3
    DEAD_LETTERED = 4
    DROPPED = 5


class NewerFormat(Exception):
    """The log was written by a newer Penstock: start that version, or take the folder away."""


class Malformed(Exception):
    """Records that do not parse although the checksum of their block holds."""


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What the first 64 bytes of a segment say."""

    number: int
    size: int
    log_id: bytes
    time_ms: int


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """What the 64 bytes before a block's records say; `synced`: the highest sequence known synced at that time."""

    segment: int
    offset: int
    length: int
    flags: BlockFlag
    epoch: int
    sequence: int
    synced: int
    time_ms: int

    @property
    def end(self) -> int:
        """Offset behind the block and its padding."""
        return self.offset + padded(BLOCK_HEADER.size + self.length)


def padded(length: int) -> int:
    """`length` rounded up to the alignment of blocks."""
    return -(-length // BLOCK_ALIGNMENT) * BLOCK_ALIGNMENT


def seed_of(log_id: bytes) -> int:
    """Start value of every checksum of one log, so that blocks of another log, or inside a payload, never pass."""
    return crc32(log_id)


def encode_segment_header(header: SegmentHeader) -> bytes:
    """One page: the header, zeros, and at HEADER_COPY the header again, so that one bad sector loses no log id."""

    def pack(checksum: int) -> bytes:
        fields = (SEGMENT_MAGIC, VERSION, 0, SEGMENT_START, header.number, header.size, header.log_id, header.time_ms)
        return SEGMENT_HEADER.pack(*fields, checksum, 0)

    return (pack(crc32(pack(0))).ljust(HEADER_COPY, b"\0") * 2).ljust(SEGMENT_START, b"\0")


def decode_segment_header(data: bytes) -> SegmentHeader | None:
    """The header or its copy; None if neither is sound. Raises NewerFormat for a later version."""
    return _decode_header_at(data, 0) or _decode_header_at(data, HEADER_COPY)


def _decode_header_at(data: bytes, offset: int) -> SegmentHeader | None:
    if len(data) < offset + SEGMENT_HEADER.size:
        return None
    magic, version, flags, start, number, size, log_id, time_ms, checksum, _ = SEGMENT_HEADER.unpack_from(data, offset)
    if magic != SEGMENT_MAGIC:
        return None
    bare = SEGMENT_HEADER.pack(magic, version, flags, start, number, size, log_id, time_ms, 0, 0)
    if crc32(bare) != checksum:
        return None
    if version > VERSION:
        raise NewerFormat(f"segment {number} has format version {version}, this Penstock reads up to {VERSION}")
    return SegmentHeader(number, size, log_id, time_ms)


def seal_block(block: bytearray, seed: int, header: BlockHeader) -> None:
    """Write the header into the first 64 bytes of `block`, whose records follow, and pad its end.

    One checksum for all.
    """
    end = BLOCK_HEADER.size + header.length
    BLOCK_HEADER.pack_into(block, 0, *_block_fields(header, 0))
    with memoryview(block)[:end] as covered:
        checksum = crc32(covered, seed)
    BLOCK_HEADER.pack_into(block, 0, *_block_fields(header, checksum))
    if len(block) % BLOCK_ALIGNMENT:
        block.extend(bytes(padded(end) - end))


def _block_fields(
    header: BlockHeader, checksum: int
) -> tuple[bytes, int, int, int, int, int, int, int, int, int, int, int]:
    place = (header.segment, header.offset, 0)
    order = (header.epoch, header.sequence, header.synced, header.time_ms)
    return (BLOCK_MAGIC, VERSION, int(header.flags), header.length, checksum, *place, *order)


def decode_block(segment: memoryview, offset: int, number: int, seed: int) -> BlockHeader | None:
    """The block at `offset` of segment `number`, or None: other bytes, another place, another log, or a wrong checksum.

    Raises NewerFormat if the block is sound and of a later version.
    """
    if offset + BLOCK_HEADER.size > len(segment):
        return None
    fields = BLOCK_HEADER.unpack_from(segment, offset)
    magic, version, flags, length, checksum, at_segment, at_offset, reserved, epoch, sequence, synced, time_ms = fields
    if magic != BLOCK_MAGIC or at_segment != number or at_offset != offset:
        return None
    start = offset + BLOCK_HEADER.size
    if start + length > len(segment):
        return None
    place = (at_segment, at_offset, reserved)
    bare = BLOCK_HEADER.pack(magic, version, flags, length, 0, *place, epoch, sequence, synced, time_ms)
    if crc32(segment[start : start + length], crc32(bare, seed)) != checksum:
        return None
    if version > VERSION:
        raise NewerFormat(f"block {sequence} has format version {version}, this Penstock reads up to {VERSION}")
    return BlockHeader(number, offset, length, BlockFlag(flags & 1), epoch, sequence, synced, time_ms)


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


def put_record(route_set: int, message: int, time_ms: int, payload: bytes, flags: int = 0) -> bytes:
    """A message in all queues of a route set."""
    body = PUT_FIXED + len(payload)
    return PUT.pack(RecordType.PUT, flags, 0, body, route_set, 0, message, time_ms) + payload


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


@dataclass(frozen=True, slots=True)
class Put:
    route_set: int
    message: int
    time_ms: int
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
        yield _decode(kind, flags, data[offset : offset + length])
        offset += length


def _decode(kind: int, flags: int, body: memoryview) -> Record:
    match kind:
        case RecordType.PUT:
            route_set, _, message, time_ms = _PUT_BODY.unpack_from(body)
            return Put(route_set, message, time_ms, bytes(body[PUT_FIXED:]), flags)
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
