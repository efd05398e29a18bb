"""Reads the blocks of a segment again while the broker runs: in pieces, so that no turn waits for a large block."""

from collections.abc import Iterator
from typing import NamedTuple

from penstock_broker.log.disk.files import FileLayer
from penstock_broker.log.format.blocks import (
    BLOCK_ALIGNMENT,
    BLOCK_HEADER,
    SEGMENT_START,
    BlockHeader,
    block_candidates,
    claimed_block,
    crc32,
    decode_block,
)
from penstock_broker.log.format.puts import puts_in
from penstock_broker.log.format.record_codec import Malformed
from penstock_broker.log.format.records import Put
from penstock_broker.log.segments.segment import Segment

PIECE = 256 * 1024
"""Bytes that are read at a time."""


class Block(NamedTuple):
    """A block that was found sound, and its records."""

    header: BlockHeader
    records: memoryview


def sound_blocks(files: FileLayer, segment: Segment, seed: int) -> Iterator[Block | None]:
    """All blocks of the segment, up to its end as it is then; None wherever the caller may pause.

    `seed`: see `blocks.seed_of`. Raises Malformed if a block can't be read or is not sound.
    """
    at = SEGMENT_START
    while at < segment.end:
        for block in sound_block(files, segment, at, seed):
            yield block
            if block is None:
                continue
            if block.header.is_seal:
                return
            at = block.header.end


def sound_block(files: FileLayer, segment: Segment, at: int, seed: int) -> Iterator[Block | None]:
    """None wherever the caller may pause; at the end the block at offset `at`. Raises Malformed."""
    yield None
    claim = claimed_block(_read(files, segment, BLOCK_HEADER.size, at), at, segment.number)
    if claim is None or claim.header.end > segment.size:
        raise Malformed(f"no sound block at {at}")
    length = claim.header.length
    at += BLOCK_HEADER.size
    records = memoryview(b"")
    checksum = crc32(claim.bare, seed)
    done = 0
    while done < length:
        piece = _read(files, segment, min(PIECE, length - done), at + done)
        checksum = crc32(piece, checksum)
        if len(piece) == length:
            records = memoryview(piece)
        else:  # put together piece by piece: to join them at the end would take long in one go
            if not done:
                records = memoryview(bytearray(length))
            records[done : done + len(piece)] = piece
        done += len(piece)
        if done < length:
            yield None
    if checksum != claim.checksum:
        raise Malformed(f"no sound block at {claim.header.offset}")
    claim.check_version()
    yield Block(claim.header, records)


def _read(files: FileLayer, segment: Segment, length: int, at: int) -> bytes:
    """Bytes of the file, fewer than `length` if the system gives fewer. Raises Malformed if there are none."""
    try:
        piece = files.pread(segment.handle, length, at)
    except OSError as error:
        raise Malformed(f"{segment.path} can't be read at {at}: {error}") from error
    if not piece:
        raise Malformed(f"{segment.path} ends at {at}")
    return piece


def behind_damage(files: FileLayer, segment: Segment, at: int, seed: int) -> int:
    """Where to go on behind a block that can't be read: at the next sound one; 0 if there is none."""
    noted = segment.blocks.next_after(at)
    try:
        data = files.pread(segment.handle, (noted or segment.end) - at, at)
    except OSError:  # nobody can say where the blocks between begin
        return noted
    view = memoryview(data)
    for behind in block_candidates(data, BLOCK_ALIGNMENT):
        if decode_block(view, at + behind, segment.number, seed, view_at=at):
            return at + behind
    return noted


def find_put(files: FileLayer, segment: Segment, message: int, seed: int) -> Put | None:
    """The put of a message with its payload in the same record; None if the segment has none.

    Damaged blocks before it are passed over. Raises Malformed if it was not found and a block that may hold it can't be
    read: nobody can say then whether it is there.
    """
    unread = ""
    for start in segment.blocks.starts(message, message):
        at, end = start.offset, start.end or segment.end
        while 0 < at < end:
            try:
                found = [block for block in sound_block(files, segment, at, seed) if block is not None]
                puts = puts_in(bytes(found[0].records), 0, found[0].header.length, with_volatile=False)
            except Malformed as error:
                unread = unread or str(error)
                at = behind_damage(files, segment, at, seed)
                continue
            for put in puts:
                if put.message == message:
                    return put
            at = found[0].header.end
            if found[0].header.is_seal:
                break
    if unread:
        raise Malformed(unread)
    return None
