"""Frames of AMQP and SASL: splits a stream of bytes into frames, and reads and writes their bodies.

Sans-I/O. Source: AMQP 1.0 part 2, section 2.3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from penstock_amqp.errors import DecodeError
from penstock_amqp.types.composites import C, Composite, from_value, to_value
from penstock_amqp.types.decoder import decode
from penstock_amqp.types.encoder import encode

__all__ = [
    "AMQP_FRAME",
    "AMQP_HEADER",
    "HEAD_BYTES",
    "SASL_FRAME",
    "SASL_HEADER",
    "Frame",
    "FrameReader",
    "encode_frame",
    "frame_of",
    "parse_head",
    "performative_code",
    "read_body",
    "walk",
]

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_FRAME = 0x00
SASL_FRAME = 0x01

HEAD_BYTES = 8
"""Bytes of a frame before its body, without an extended header."""

_HEAD = struct.Struct(">IBBH")
_DESCRIBED_SMALL_ULONG = b"\x00\x53"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: its type (`AMQP_FRAME`, `SASL_FRAME`), its channel, and its body behind any extended header."""

    type: int
    channel: int
    body: bytes

    @property
    def is_empty(self) -> bool:
        """Whether it is a heartbeat."""
        return not self.body


class FrameReader:
    """Splits a stream of bytes, received in any pieces, into frames.

    Raises `DecodeError` for a frame that is shorter than its header or longer than `max_frame_size` bytes; the reader
    is of no use after that.
    """

    __slots__ = ("_buffer", "_max_frame_size")

    def __init__(self, max_frame_size: int) -> None:
        self._max_frame_size = max_frame_size
        self._buffer = bytearray()

    def add(self, data: bytes) -> None:
        """Append received bytes."""
        self._buffer += data

    def next(self) -> Frame | None:
        """Remove and return the next frame; None if it is not complete yet."""
        if len(self._buffer) < 8:
            return None
        size, kind, channel, body = parse_head(self._buffer, 0)
        if size > self._max_frame_size:
            raise DecodeError(f"a frame of {size} bytes where {self._max_frame_size} are allowed", 0)
        if len(self._buffer) < size:
            return None
        frame = Frame(kind, channel, bytes(self._buffer[body:size]))
        del self._buffer[:size]
        return frame

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Append received bytes; yield each frame that is complete now."""
        self.add(data)
        while (frame := self.next()) is not None:
            yield frame

    @property
    def rest(self) -> bytes:
        """The bytes after the last frame that was returned."""
        return bytes(self._buffer)


def parse_head(data: bytes | bytearray, at: int) -> tuple[int, int, int, int]:
    """Return size, type, channel and the distance to the body of the frame at `at`; eight bytes must be there.

    Raises `DecodeError` where they are not those of a frame.
    """
    size, words, kind, channel = _HEAD.unpack_from(data, at)
    if size < 8 or words < 2 or words * 4 > size:
        raise DecodeError(f"a frame of {size} bytes with a header of {words} words", at)
    return size, kind, channel, words * 4


def walk(data: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield (start, end, type, channel, start of body) of each frame in `data`, which holds whole frames.

    A protocol header before a frame is skipped. Raises `DecodeError` where the data do not end with a frame.
    """
    at = 0
    while at < len(data):
        if data.startswith(b"AMQP", at):
            at += 8
            continue
        if len(data) - at < 8:
            raise DecodeError(f"{len(data) - at} bytes that are not a frame", at)
        size, kind, channel, body = parse_head(data, at)
        if size > len(data) - at:
            raise DecodeError(f"a frame of {size} bytes where {len(data) - at} are left", at)
        yield at, at + size, kind, channel, at + body
        at += size


def performative_code(data: bytes, body: int) -> int | None:
    """The numeric descriptor of the frame body at `body` if it is encoded in the usual three bytes; else None."""
    if data.startswith(_DESCRIBED_SMALL_ULONG, body) and body + 2 < len(data):
        return data[body + 2]
    return None


def read_body(body: bytes, expected: type[C] | tuple[type[C], ...]) -> tuple[C, bytes]:
    """Read the performative a frame body begins with, and the payload behind it.

    Raises `DecodeError` if it is not one of `expected`.
    """
    value, end = decode(body)
    return from_value(value, expected), body[end:]


def encode_frame(body: Composite | None, channel: int = 0, payload: bytes = b"", type: int = AMQP_FRAME) -> bytes:
    """Write a frame; without a body it is a heartbeat."""
    return frame_of(b"" if body is None else encode(to_value(body)) + payload, channel, type)


def frame_of(body: bytes, channel: int = 0, type: int = AMQP_FRAME) -> bytes:
    """Write a frame around a body that is encoded already."""
    return _HEAD.pack(HEAD_BYTES + len(body), 2, type, channel) + body
