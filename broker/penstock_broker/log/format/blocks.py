"""The outer layers of the log's format: the header page of a segment, and the header of a block. Pure.

The layout is that of docs/reference/log-format.md; tests compare the two with bytes typed by hand. Every integer is
little-endian. A reader that meets a version or a record type that it does not know refuses the log (`NewerFormat`): it
must never serve half a log.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntFlag
from struct import Struct
from typing import Final, NamedTuple, Protocol

from zlib_ng import zlib_ng

VERSION: Final = 1

SEGMENT_MAGIC: Final = b"PENSTOCK"
# magic, version, flags, header length, segment number, size in bytes, log id, time ms, checksum, reserved
SEGMENT_HEADER: Final = Struct("<8sHHIQQ16sQII")
HEADER_COPY: Final = 2048
SEGMENT_START: Final = 4096  # the first block; the header has a page of its own, so that no block shares its sector

BLOCK_MAGIC: Final = b"PSTB"
# magic, version, flags, length, checksum, segment number, offset, reserved, epoch, sequence, synced, time ms
BLOCK_HEADER: Final = Struct("<4sHHIIQIIQQQQ")
BLOCK_LENGTH: Final = Struct("<8xI")
"""The length of a block's records, in its header."""
BLOCK_ALIGNMENT: Final = 64
_PADDING: Final = bytes(BLOCK_ALIGNMENT)
_CLAIM: Final = Struct("<4sHHIIQI4xQ")
"""The fields of a block's header up to the epoch, without what is reserved."""
_CHECKSUM_AT: Final = 12
_CHECKSUM: Final = Struct("<I")
_NO_CHECKSUM: Final = bytes(4)


class Checksum(Protocol):
    """The CRC-32 of RFC 1952 over some bytes, going on from the checksum of what comes before them."""

    def __call__(self, data: bytes | bytearray | memoryview, value: int = 0, /) -> int: ...


crc32: Final[Checksum] = zlib_ng.crc32  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
"""zlib's own, with the processor's instructions."""


class BlockFlag(IntFlag):
    """Flags of a block. `SEAL`: no block follows in this segment."""

    NONE = 0
    SEAL = 1


class NewerFormat(Exception):
    """The log was written by a newer Penstock: start that version, or give this one another folder."""


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What the first 64 bytes of a segment say."""

    number: int
    size: int
    log_id: bytes
    time_ms: int


class BlockHeader(NamedTuple):
    """What the 64 bytes before a block's records say.

    `synced`: the highest sequence that was known to be synced when the block was written.
    """

    segment: int
    offset: int
    length: int
    flags: BlockFlag
    epoch: int
    sequence: int
    synced: int
    time_ms: int

    @property
    def is_seal(self) -> bool:
        """Nothing follows in this segment."""
        return self.flags is BlockFlag.SEAL

    @property
    def end(self) -> int:
        """Offset behind the block and its padding."""
        return self.offset + padded(BLOCK_HEADER.size + self.length)


def padded(length: int) -> int:
    """`length` rounded up to the alignment of blocks."""
    return -(-length // BLOCK_ALIGNMENT) * BLOCK_ALIGNMENT


def seed_of(log_id: bytes) -> int:
    """The start value of every checksum of one log, so that no block of another log, or in a payload, is accepted."""
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


def seal_block(
    block: bytearray,
    seed: int,
    *,
    segment: int,
    offset: int,
    flags: int,
    epoch: int,
    sequence: int,
    synced: int,
    time_ms: int,
) -> None:
    """Write the header (see `BlockHeader`) into the first 64 bytes of `block`, of which all others are records, and pad
    its end.

    The checksum covers header and records.
    """
    end = len(block)
    length = end - BLOCK_HEADER.size
    BLOCK_HEADER.pack_into(
        block, 0, BLOCK_MAGIC, VERSION, flags, length, 0, segment, offset, 0, epoch, sequence, synced, time_ms
    )
    _CHECKSUM.pack_into(block, _CHECKSUM_AT, crc32(block, seed))
    block += _PADDING[: -end % BLOCK_ALIGNMENT]


def decode_block(segment: memoryview, offset: int, number: int, seed: int, *, view_at: int = 0) -> BlockHeader | None:
    """The block at `offset` of segment `number`, or None: other bytes, another place, another log, or a wrong checksum.

    `segment` may be a piece of the file that begins at offset `view_at`. Raises NewerFormat if the block is sound
    and of a later version.
    """
    at = offset - view_at
    claim = claimed_block(segment, offset, number, at=at)
    if claim is None:
        return None
    start, length = at + BLOCK_HEADER.size, claim.header.length
    if (
        start + length > len(segment)
        or crc32(segment[start : start + length], crc32(claim.bare, seed)) != claim.checksum
    ):
        return None
    claim.check_version()
    return claim.header


def records_of_block(data: bytes, at: int, offset: int, number: int, seed: int) -> tuple[int, int, int, int] | None:
    """Of the block at `offset` of segment `number`, whose header is at `at` in `data`: where its records begin and end
    in `data`, its flags and its epoch. None where `decode_block` gives None, and NewerFormat where it raises that. For
    readers of many blocks: it makes no header.
    """
    begin = at + BLOCK_HEADER.size
    if begin > len(data):
        return None
    magic, version, flags, length, checksum, segment, place, epoch = _CLAIM.unpack_from(data, at)
    end = begin + length
    if magic != BLOCK_MAGIC or segment != number or place != offset or end > len(data):
        return None
    bare = data[at : at + _CHECKSUM_AT] + _NO_CHECKSUM + data[at + _CHECKSUM_AT + len(_NO_CHECKSUM) : begin]
    if crc32(memoryview(data)[begin:end], crc32(bare, seed)) != checksum:
        return None
    if version > VERSION:
        raise _newer(BLOCK_HEADER.unpack_from(data, at)[9], version)
    return begin, end, flags, epoch


def _newer(sequence: int, version: int) -> NewerFormat:
    return NewerFormat(f"block {sequence} has format version {version}, this Penstock reads up to {VERSION}")


class BlockClaim(NamedTuple):
    """What 64 bytes say that look like the header of a block. It holds if the checksum over the records is right.

    The checksum is `crc32(records, crc32(bare, seed))`.
    """

    header: BlockHeader
    checksum: int
    bare: bytes
    version: int

    def check_version(self) -> None:
        """Raises NewerFormat if the block, which is sound, is of a later version."""
        if self.version > VERSION:
            raise _newer(self.header.sequence, self.version)


def block_candidates(data: bytes, offset: int) -> Iterator[int]:
    """The aligned places at or behind `offset` that begin with the magic of a block. `data` begins at one, too."""
    while (offset := data.find(BLOCK_MAGIC, offset)) >= 0:
        if offset % BLOCK_ALIGNMENT == 0:
            yield offset
        offset += 1


def claimed_block(data: bytes | memoryview, offset: int, number: int, *, at: int = 0) -> BlockClaim | None:
    """The header, at `at` in `data`, of a block at `offset` of segment `number`; None if it is none, or of another."""
    if at + BLOCK_HEADER.size > len(data):
        return None
    fields = BLOCK_HEADER.unpack_from(data, at)
    magic, version, flags, length, checksum, at_segment, at_offset, reserved, epoch, sequence, synced, time_ms = fields
    if magic != BLOCK_MAGIC or at_segment != number or at_offset != offset:
        return None
    place = (at_segment, at_offset, reserved)
    bare = BLOCK_HEADER.pack(magic, version, flags, length, 0, *place, epoch, sequence, synced, time_ms)
    flag = BlockFlag.SEAL if flags & 1 else BlockFlag.NONE  # to make one of a number takes long
    header = BlockHeader(number, offset, length, flag, epoch, sequence, synced, time_ms)
    return BlockClaim(header, checksum, bare, version)
