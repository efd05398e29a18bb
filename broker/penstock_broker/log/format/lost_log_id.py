"""Finds a log's id again when no segment has a sound header left. Pure.

The checksum of a block is a CRC-32 that begins with crc32(log id). A CRC can be computed backwards, so each block tells
the value with which it began; two blocks that tell the same value are of one log. The id itself is not needed, only its
CRC: any other 16 bytes with the same CRC serve as well, and `id_for_seed` makes such bytes.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from penstock_broker.log.format.blocks import BLOCK_HEADER, SEGMENT_START, block_candidates, claimed_block, crc32

LONGEST: Final = 256 * 1024
"""Of longer blocks, in bytes, only the header is read: computing a CRC backwards takes about 0.1 us for each byte."""
MOST_CANDIDATES: Final = 64

_POLYNOMIAL: Final = 0xEDB88320
_ALL_ONES: Final = 0xFFFF_FFFF


def _entry(index: int) -> int:
    for _ in range(8):
        index = (index >> 1) ^ (_POLYNOMIAL if index & 1 else 0)
    return index


_TABLE: Final = tuple(map(_entry, range(256)))
_BY_TOP_BYTE: Final = {entry >> 24: index for index, entry in enumerate(_TABLE)}


class NoAgreement(Exception):
    """There are blocks that were synced, and no two of them are of one log."""


def start_value(data: bytes, checksum: int) -> int:
    """The value with which `crc32(data, value)` gives `checksum`."""
    state = checksum ^ _ALL_ONES
    for byte in reversed(data):
        index = _BY_TOP_BYTE[state >> 24]
        state = ((state ^ _TABLE[index]) << 8 | index ^ byte) & _ALL_ONES
    return state ^ _ALL_ONES


def id_for_seed(seed: int) -> bytes:
    """16 bytes whose CRC-32 is `seed`: always the same ones."""
    known = b"id was lost "
    return known + (crc32(known) ^ start_value(bytes(4), seed)).to_bytes(4, "little")


def find_lost_id(segments: Iterable[tuple[int, bytes]]) -> bytes | None:
    """An id for the log in these segments (number, bytes), or None if nothing in them was ever promised to anybody.

    Raises NoAgreement.
    """
    votes: dict[int, int] = {}
    promised = False
    candidates = 0
    for number, data in segments:
        for seed, synced in _candidates(number, data):
            promised = promised or synced > 0
            if seed is None:
                continue
            candidates += 1
            votes[seed] = votes.get(seed, 0) + 1
            if votes[seed] >= 2 and promised:
                return id_for_seed(seed)
            if candidates == MOST_CANDIDATES:
                raise NoAgreement
    if promised:
        raise NoAgreement
    return None


def _candidates(number: int, data: bytes) -> Iterator[tuple[int | None, int]]:
    """What looks like a block of this segment at its place: the start value of its checksum, None if it is too long to
    be computed, and its "synced".
    """
    for offset in block_candidates(data, SEGMENT_START):
        claim = claimed_block(data, offset, number, at=offset)
        if claim is None:
            continue
        start = offset + BLOCK_HEADER.size
        end = start + claim.header.length
        if end > len(data):
            continue
        is_short = claim.header.length <= LONGEST
        yield start_value(claim.bare + data[start:end], claim.checksum) if is_short else None, claim.header.synced
