"""The id of a log whose headers are all lost, found from its blocks."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.log.format.blocks import decode_block, seal_block, seed_of
from penstock_broker.log.format.lost_log_id import LONGEST, NoAgreement, find_lost_id, id_for_seed, start_value


@given(data=st.binary(max_size=200), value=st.integers(0, 0xFFFF_FFFF))
def test_a_crc_computed_backwards_tells_with_what_it_began(data: bytes, value: int) -> None:
    assert start_value(data, crc32(data, value)) == value


@given(seed=st.integers(0, 0xFFFF_FFFF))
def test_an_id_for_a_seed_has_that_crc(seed: int) -> None:
    assert len(id_for_seed(seed)) == 16
    assert seed_of(id_for_seed(seed)) == seed


def segment(log_id: bytes, *synced: int) -> bytearray:
    """Blocks of one 64-byte record area each, from 4096 on; each says in its header what was synced before it."""
    return segment_of(*((log_id, before) for before in synced))


def segment_of(*blocks: tuple[bytes, int]) -> bytearray:
    """The same, of more than one log."""
    content = bytearray(4096)
    for number, (log_id, before) in enumerate(blocks):
        block = bytearray(64) + bytes([number]) * 64
        seal_block(
            block,
            seed_of(log_id),
            segment=7,
            offset=len(content),
            flags=0,
            epoch=1,
            sequence=number + 1,
            synced=before,
            time_ms=0,
        )
        content += block
    return content


def test_two_blocks_are_enough_and_what_was_found_reads_them() -> None:
    content = segment(b"\x99" * 16, 0, 1)
    found = find_lost_id([(7, bytes(content))])
    assert found is not None and found != b"\x99" * 16
    assert decode_block(memoryview(content), 4096, 7, seed_of(found)) is not None


def test_what_was_never_promised_has_no_id() -> None:
    assert find_lost_id([(7, bytes(segment(b"\x99" * 16, 0, 0)))]) is None
    assert find_lost_id([(8, bytes(segment(b"\x99" * 16, 0, 1)))]) is None, "a former life of a recycled segment"
    assert find_lost_id([(7, bytes(16384))]) is None


def test_blocks_that_do_not_agree_have_no_id() -> None:
    content = segment(b"\x99" * 16, 0, 1)
    content[4096 + 12] ^= 1
    with pytest.raises(NoAgreement):
        find_lost_id([(7, bytes(content))])


def test_one_block_says_that_something_was_promised_for_all() -> None:
    """Else a log whose messages were promised would be taken for a new one."""
    assert find_lost_id([(7, bytes(segment(b"\x99" * 16, 5, 0)))]) is not None


def test_a_log_of_long_blocks_alone_is_not_taken_for_a_new_one() -> None:
    """They tell that something was promised, though it would take too long to find out of which log they are."""
    content = bytearray(4096)
    for synced in (0, 1):
        block = bytearray(64 + LONGEST + 64)
        seal_block(block, seed_of(b"\x99" * 16), segment=7, offset=len(content), flags=0, epoch=1, sequence=synced + 1,
                   synced=synced, time_ms=0)  # fmt: skip
        content += block
        if not synced:
            assert find_lost_id([(7, bytes(content))]) is None
    with pytest.raises(NoAgreement):
        find_lost_id([(7, bytes(content))])
    short = segment(b"\x99" * 16, 0, 0)
    found = find_lost_id([(7, bytes(content)), (7, bytes(short))])
    assert found is not None
    assert seed_of(found) == seed_of(b"\x99" * 16)


@pytest.mark.parametrize(("others", "is_found"), [(62, True), (63, False)])
def test_no_more_than_64_blocks_are_computed_backwards(others: int, is_found: bool) -> None:
    blocks = [(bytes([each]) * 16, 1) for each in range(others)] + [(b"\x99" * 16, 1)] * 2
    segments = [(7, bytes(segment_of(*blocks)))]
    if is_found:
        found = find_lost_id(segments)
        assert found is not None and seed_of(found) == seed_of(b"\x99" * 16)
    else:
        with pytest.raises(NoAgreement):
            find_lost_id(segments)
