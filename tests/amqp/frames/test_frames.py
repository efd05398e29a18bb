"""Frames: cut out of a stream however it is split, and written; bytes typed from part 2, section 2.3."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_amqp.errors import DecodeError
from penstock_amqp.frames.frames import (
    AMQP_HEADER,
    Frame,
    FrameReader,
    encode_frame,
    performative_code,
    read_body,
    walk,
)
from penstock_amqp.frames.performatives import Close, Detach, End, Performative

HEARTBEAT = bytes.fromhex("00000008 02 00 0000")
# close without an error on channel 0; detach of handle 0 on channel 5; a frame with an extended header of four bytes
CLOSE = bytes.fromhex("0000000c 02 00 0000 005318 45")
DETACH = bytes.fromhex("0000000f 02 00 0005 005316 c0 02 01 43")
EXTENDED = bytes.fromhex("00000010 03 00 0001 deadbeef 005317 45")


def test_frames_are_written_as_the_specification_draws_them() -> None:
    assert encode_frame(None) == HEARTBEAT
    assert encode_frame(Close()) == CLOSE
    assert encode_frame(Detach(handle=0), 5) == DETACH
    assert encode_frame(Close(), payload=b"xy") == bytes.fromhex("0000000e 02 00 0000 005318 45 7879")


def test_frames_are_read_with_type_channel_and_body() -> None:
    frames = list(FrameReader(512).feed(HEARTBEAT + DETACH + EXTENDED))
    assert frames == [Frame(0, 0, b""), Frame(0, 5, DETACH[8:]), Frame(0, 1, bytes.fromhex("005317 45"))]
    assert frames[0].is_empty
    assert read_body(frames[1].body, Performative) == (Detach(handle=0), b"")
    assert read_body(frames[2].body + b"rest", Performative) == (End(), b"rest")


@given(st.lists(st.sampled_from([HEARTBEAT, CLOSE, DETACH, EXTENDED]), max_size=8), st.lists(st.integers(1, 20)))
def test_any_split_gives_the_same_frames(parts: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(parts)
    reader, frames, at = FrameReader(512), list[Frame](), 0
    for size in [*sizes, len(stream)]:
        frames += reader.feed(stream[at : at + size])
        at += size
    assert frames == list(FrameReader(512).feed(stream))
    assert len(frames) == len(parts)
    assert reader.rest == b""


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("00000007 02 00 0000", id="shorter-than-its-header"),
        pytest.param("00000201 02 00 0000", id="longer-than-allowed"),
        pytest.param("0000000c 01 00 0000", id="data-offset-of-one-word"),
        pytest.param("0000000c 04 00 0000", id="data-offset-beyond-the-end"),
    ],
)
def test_a_frame_that_cannot_be_is_an_error_as_soon_as_its_header_is_there(data: str) -> None:
    with pytest.raises(DecodeError):
        list(FrameReader(512).feed(bytes.fromhex(data)))


def test_walking_passes_over_a_protocol_header() -> None:
    places = [(start, end, channel) for start, end, _kind, channel, _body in walk(AMQP_HEADER + DETACH + EXTENDED)]
    assert places == [(8, 23, 5), (23, 39, 1)]


@given(st.binary(max_size=60))
def test_walking_over_any_bytes_ends_or_is_a_decode_error(data: bytes) -> None:
    try:
        ends = [end for _start, end, *_ in walk(data)]
    except DecodeError:
        return
    assert ends == sorted(set(ends))


def test_the_usual_descriptor_is_read_without_decoding() -> None:
    assert performative_code(CLOSE, 8) == 0x18
    assert performative_code(bytes.fromhex("0080 0000000000000018 45"), 0) is None
    assert performative_code(b"\x00\x53", 0) is None
