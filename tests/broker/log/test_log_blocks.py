"""Header page and block header against bytes typed by hand from docs/reference/log-format.md."""

from zlib import crc32

import pytest

from penstock_broker.log.format.blocks import (
    BlockFlag,
    BlockHeader,
    NewerFormat,
    SegmentHeader,
    decode_block,
    decode_segment_header,
    encode_segment_header,
    padded,
    records_of_block,
    seal_block,
    seed_of,
)

LOG_ID = bytes.fromhex("000102030405060708090a0b0c0d0e0f")

SEGMENT = SegmentHeader(number=0x1122, size=64 * 1024 * 1024, log_id=LOG_ID, time_ms=0x18B_CFE5_6800)
SEGMENT_BYTES = bytes.fromhex(
    "50454e53544f434b"  # PENSTOCK
    "0100 0000 00100000"  # version, flags, 4096
    "2211000000000000"  # number
    "0000000400000000"  # 64 MiB
    "000102030405060708090a0b0c0d0e0f"
    "0068e5cf8b010000"  # time
    "00000000 00000000"  # checksum as zeros, reserved
)

BLOCK = BlockHeader(
    segment=7, offset=4096, length=5, flags=BlockFlag.SEAL, epoch=3, sequence=0x102, synced=0x101, time_ms=9
)
BLOCK_BYTES = bytes.fromhex(
    "50535442"  # PSTB
    "0100 0100 05000000"  # version, seal, length
    "00000000"  # checksum as zeros
    "0700000000000000 00100000 00000000"  # segment, offset, reserved
    "0300000000000000 0201000000000000 0101000000000000 0900000000000000"
)


def with_checksum(data: bytes, place: int, checksum: int) -> bytes:
    return data[:place] + checksum.to_bytes(4, "little") + data[place + 4 :]


def a_block(records: bytes = b"hello") -> bytearray:
    block = bytearray(64) + records
    seal_block(
        block,
        seed_of(LOG_ID),
        segment=7,
        offset=4096,
        flags=BlockFlag.SEAL,
        epoch=3,
        sequence=0x102,
        synced=0x101,
        time_ms=9,
    )
    return block


def placed(block: bytes | bytearray) -> memoryview:
    return memoryview(bytes(4096) + bytes(block))


def read(segment: memoryview, offset: int, number: int, seed: int) -> BlockHeader | None:
    """The block, and that both readers say the same of it."""
    try:
        found = decode_block(segment, offset, number, seed)
    except NewerFormat as error:
        with pytest.raises(NewerFormat, match=f"^{error}$"):
            records_of_block(bytes(segment), offset, offset, number, seed)
        raise
    records = records_of_block(bytes(segment), offset, offset, number, seed)
    begin = offset + 64
    assert records == (None if found is None else (begin, begin + found.length, found.flags, found.epoch))
    return found


def test_a_header_page_is_the_header_twice_and_zeros() -> None:
    header = with_checksum(SEGMENT_BYTES, 56, crc32(SEGMENT_BYTES))
    page = encode_segment_header(SEGMENT)
    assert page == header + bytes(2048 - 64) + header + bytes(2048 - 64)


@pytest.mark.parametrize("spoiled", [0, 9, 20, 40, 57, 2048, 2100])
def test_either_copy_of_the_header_will_do(spoiled: int) -> None:
    page = bytearray(encode_segment_header(SEGMENT))
    page[spoiled] ^= 0xFF
    assert decode_segment_header(bytes(page)) == SEGMENT


def test_without_a_sound_copy_there_is_no_header() -> None:
    page = bytearray(encode_segment_header(SEGMENT))
    page[20] ^= 1
    page[2048 + 20] ^= 1
    assert decode_segment_header(bytes(page)) is None
    assert decode_segment_header(b"") is None


def test_a_segment_of_a_later_version_is_refused() -> None:
    later = SEGMENT_BYTES[:8] + b"\x02\x00" + SEGMENT_BYTES[10:]
    with pytest.raises(NewerFormat, match="version 2, this Penstock reads up to 1"):
        decode_segment_header(with_checksum(later, 56, crc32(later)))


def test_a_block_is_header_records_and_zeros() -> None:
    checksum = crc32(BLOCK_BYTES + b"hello", crc32(LOG_ID))
    assert a_block() == with_checksum(BLOCK_BYTES, 12, checksum) + b"hello" + bytes(59)


def test_a_block_without_records_needs_no_padding() -> None:
    block = bytearray(64)
    seal_block(block, 0, segment=1, offset=4096, flags=0, epoch=1, sequence=1, synced=0, time_ms=0)
    assert len(block) == 64


def test_a_block_reads_back_at_its_place() -> None:
    assert read(placed(a_block()), 4096, 7, seed_of(LOG_ID)) == BLOCK
    assert BLOCK.end == 4096 + 128


@pytest.mark.parametrize("spoiled", range(69))
def test_no_byte_of_a_block_can_change_unnoticed(spoiled: int) -> None:
    block = a_block()
    block[spoiled] ^= 0x10
    assert read(placed(block), 4096, 7, seed_of(LOG_ID)) is None


def test_a_block_counts_in_its_own_log_segment_and_place_only() -> None:
    block = a_block()
    assert read(placed(block), 4096, 8, seed_of(LOG_ID)) is None
    assert read(placed(block), 4096, 7, seed_of(bytes(16))) is None
    assert read(memoryview(bytes(4096 + 64) + block), 4096 + 64, 7, seed_of(LOG_ID)) is None


def test_a_block_that_the_file_cuts_off_does_not_count() -> None:
    for length in range(4096, 4096 + 69):
        assert read(placed(a_block())[:length], 4096, 7, seed_of(LOG_ID)) is None


def test_a_sound_block_of_a_later_version_is_refused() -> None:
    later = BLOCK_BYTES[:4] + b"\x02\x00" + BLOCK_BYTES[6:] + b"hello"
    block = with_checksum(later, 12, crc32(later, crc32(LOG_ID)))
    with pytest.raises(NewerFormat, match="block 258 has format version 2"):
        read(placed(block), 4096, 7, seed_of(LOG_ID))


def test_padding_reaches_the_next_multiple_of_64() -> None:
    assert [padded(length) for length in (0, 1, 63, 64, 65)] == [0, 64, 64, 64, 128]
