"""What recovery needs of a sealed segment, without the bodies of messages, as bytes of a file of its own.

A digest has the segment's records in an order that means the same: puts whose payloads nobody needs at a start are runs
of numbers and lengths, parts of bodies are places, and all other records stand there as they do in the segment. It is
bound to the log by its checksum, and to the segment by the whole header of the seal. Pure.
Source: docs/reference/log-format.md, "Digest"; docs/decisions/085-digests.md.
"""

from array import array
from collections.abc import Iterator, Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from penstock_broker.log.format.blocks import BlockFlag, BlockHeader, crc32
from penstock_broker.log.format.record_codec import Malformed, decode_records, decoded_numbers, encoded_numbers
from penstock_broker.log.format.records import Part, Record
from penstock_broker.log.segments.block_index import BlockIndex

__all__ = [
    "DIGEST_VERSION",
    "Digest",
    "DigestHead",
    "PlacedRecords",
    "PutRun",
    "decode_digest",
    "decode_head",
    "digest_name",
]

DIGEST_VERSION: Final = 3
"""It rises with the layout, and also when another message than before may be left in the log (`Pageable`)."""

MAGIC: Final = b"PENSTDIG"
_HEAD: Final = Struct("<8sHHIQQQQIIQQQQII")
"""Magic, version, reserved, length behind the head; segment, first message, epoch and sequence of the first block;
offset of the seal, reserved, its epoch, sequence, synced, time; checksum, reserved."""
HEAD_BYTES: Final = _HEAD.size

_RECORDS, _RUN, _PART, _DEFINITIONS, _STRETCH = range(1, 6)
_ITEM: Final = Struct("<BBHI")
"""Type, 1 if all lengths of a run are alike, reserved, length behind this."""
_RECORDS_AT: Final = Struct("<I")
_RUN_FIELDS: Final = Struct("<IIQQQ")
_PART_FIELDS: Final = Struct("<QQIII")


def digest_name(number: int) -> str:
    """The file name of the digest of a segment."""
    return f"digest-{number:016x}.log"


class PutRun(NamedTuple):
    """Puts for one route set by ascending number, as stretches of consecutive ones. No payload is kept of them."""

    route_set: int
    firsts: "array[int]"
    lasts: "array[int]"
    lengths: "array[int]"
    """Bytes of each payload."""
    arrival: int
    """None arrived before, in microseconds since 1970."""
    expires: int
    """When the first of those expires that do; 0: none does."""


class PlacedRecords(NamedTuple):
    """Records as they stand in the segment; those of the block whose records begin at byte `start` of the file."""

    start: int
    records: Sequence[Record]


class DigestHead(NamedTuple):
    """Of what the digest speaks."""

    segment: int
    first_message: int
    """The puts with lower numbers are copies that compaction wrote."""
    first_epoch: int
    first_sequence: int
    """Of the segment's first block."""
    seal: BlockHeader


class Digest(NamedTuple):
    """All of it."""

    head: DigestHead
    items: list[PutRun | PlacedRecords]
    blocks: BlockIndex
    definitions: dict[int, int]
    """By route set, where the block begins that defines it."""


# Writing --------------------------------------------------------------------------------------------------------------


def records_item(start: int, records: bytes) -> bytes:
    """Records as they are encoded in the segment; see `PlacedRecords`."""
    return _item(_RECORDS, _RECORDS_AT.pack(start) + records)


def part_item(start: int, part: Part) -> bytes:
    """A part of a body."""
    return _item(_PART, _PART_FIELDS.pack(part.body, part.offset, start, part.at, part.length))


def run_item(run: PutRun) -> bytes:
    """ValueError if the numbers lie too far from each other for one run."""
    base = run.firsts[0]
    if run.lasts[-1] - base >> 32:
        raise ValueError(f"a run from {base} to {run.lasts[-1]} is too long")
    begins = array("I", [first - base for first in run.firsts])
    counts = array("I", [last - first + 1 for first, last in zip(run.firsts, run.lasts, strict=True)])
    are_alike = run.lengths.count(run.lengths[0]) == len(run.lengths)
    lengths = run.lengths[:1] if are_alike else run.lengths
    fields = _RUN_FIELDS.pack(run.route_set, len(begins), base, run.arrival, run.expires)
    return _item(_RUN, b"".join((fields, *map(encoded_numbers, (begins, counts, lengths)))), flag=are_alike)


def index_items(blocks: BlockIndex, definitions: dict[int, int]) -> Iterator[bytes]:
    """Where messages and route sets are found."""
    for firsts, offsets, last in blocks.stretches():
        yield _item(_STRETCH, encoded_numbers(firsts) + encoded_numbers(offsets) + encoded_numbers(array("Q", (last,))))
    if definitions:
        yield _item(_DEFINITIONS, encoded_numbers(array("Q", [each for pair in definitions.items() for each in pair])))


def encode_head(head: DigestHead, length: int, checksum: int) -> bytes:
    """`checksum`: of the items, continued from the log's seed (`blocks.seed_of`); `length`: their bytes."""
    seal = head.seal

    def pack(checksum: int) -> bytes:
        own = (head.segment, head.first_message, head.first_epoch, head.first_sequence)
        of_seal = (seal.offset, 0, seal.epoch, seal.sequence, seal.synced, seal.time_ms)
        return _HEAD.pack(MAGIC, DIGEST_VERSION, 0, length, *own, *of_seal, checksum, 0)

    return pack(crc32(pack(0), checksum))


def _item(kind: int, body: bytes, *, flag: bool = False) -> bytes:
    return _ITEM.pack(kind, flag, 0, len(body)) + body


# Reading --------------------------------------------------------------------------------------------------------------


def decode_head(data: bytes, seed: int) -> DigestHead | None:
    """Of what a digest speaks; None if the bytes are no whole digest of this version and of the log with this seed
    (`blocks.seed_of`).
    """
    if len(data) < HEAD_BYTES:
        return None
    fields = _HEAD.unpack_from(data)
    magic, version, _, length, segment, first_message, epoch, sequence = fields[:8]
    offset, _, seal_epoch, seal_sequence, synced, time_ms, *_ = fields[8:]
    if magic != MAGIC or version != DIGEST_VERSION or length != len(data) - HEAD_BYTES:
        return None
    seal = BlockHeader(segment, offset, 0, BlockFlag.SEAL, seal_epoch, seal_sequence, synced, time_ms)
    head = DigestHead(segment, first_message, epoch, sequence, seal)
    with memoryview(data)[HEAD_BYTES:] as items:
        is_it = encode_head(head, length, crc32(items, seed)) == data[:HEAD_BYTES]
    return head if is_it else None


def decode_digest(data: bytes, seed: int) -> Digest | None:
    """As `decode_head`, with all items. Raises Malformed if they contradict their checksum, and NewerFormat."""
    head = decode_head(data, seed)
    if head is None:
        return None
    digest = Digest(head, [], BlockIndex(), {})
    at, end = HEAD_BYTES, len(data)
    view = memoryview(data)
    try:
        while at < end:
            kind, flag, _, length = _ITEM.unpack_from(data, at)
            at += _ITEM.size
            _take(digest, kind, view[at : at + length], are_alike=bool(flag))
            at += length
    except (StructError, ValueError) as error:
        raise Malformed(f"a digest of segment {head.segment}: {error}") from error
    return digest


def _take(digest: Digest, kind: int, body: memoryview, *, are_alike: bool) -> None:
    if kind == _RUN:
        digest.items.append(_run(body, are_alike=are_alike))
    elif kind == _RECORDS:
        (start,) = _RECORDS_AT.unpack_from(body)
        digest.items.append(PlacedRecords(start, list(decode_records(body[_RECORDS_AT.size :]))))
    elif kind == _PART:
        number, offset, start, at, length = _PART_FIELDS.unpack(body)
        digest.items.append(PlacedRecords(start, [Part(number, offset, at, length)]))
    elif kind == _STRETCH:
        numbers = decoded_numbers(body)
        if len(numbers) % 2 == 0:
            raise ValueError(f"{len(numbers)} numbers in an index")
        last, middle = numbers.pop(), len(numbers) // 2
        digest.blocks.restore(numbers[:middle], numbers[middle:], last)
    elif kind == _DEFINITIONS:
        numbers = decoded_numbers(body)
        digest.definitions.update(zip(numbers[::2], numbers[1::2], strict=True))
    else:
        raise ValueError(f"type {kind}")


def _run(body: memoryview, *, are_alike: bool) -> PutRun:
    route_set, stretches, base, arrival, expires = _RUN_FIELDS.unpack_from(body)
    numbers = decoded_numbers(body[_RUN_FIELDS.size :], "I")
    begins, counts, lengths = numbers[:stretches], numbers[stretches : 2 * stretches], numbers[2 * stretches :]
    firsts = array("Q", [base + each for each in begins])
    lasts = array("Q", [first + count - 1 for first, count in zip(firsts, counts, strict=True)])
    return PutRun(route_set, firsts, lasts, lengths * sum(counts) if are_alike else lengths, arrival, expires)
