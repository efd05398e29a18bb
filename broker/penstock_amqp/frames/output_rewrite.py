"""Rewrites frames in a connection's output, to add what the engine can't write, such as offered capabilities.

The output of a turn that opens sessions or links, or in which the engine failed, is moved from the engine to a
buffer, changed here, and sent from the buffer. It must consist of whole frames (or a protocol header): if a blocked
socket left output in the engine, take it before opening a link.

Must not know the engine, or what is changed and why. Source: AMQP 1.0 part 2, 2.7.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from penstock_amqp.frames.frame_sizes import encode_fitted
from penstock_amqp.frames.frames import AMQP_FRAME, performative_code, read_body, walk
from penstock_amqp.frames.performatives import Performative

__all__ = ["Change", "rewrite_frames"]

Change: TypeAlias = Callable[[int, Performative], Sequence[tuple[int, Performative]] | None]
"""Given a frame's channel and performative, the frames to write in its place; None leaves it as it is."""


def rewrite_frames(data: bytes, codes: Collection[int], change: Change, max_frame_size: int) -> bytes:
    """Return `data` with what `change` says in place of each performative whose descriptor is one of `codes`.

    A frame beyond `max_frame_size`, the peer's limit in bytes, is shortened, see `frame_sizes`.
    Raises `DecodeError` if `data` are not whole frames.
    """
    parts: list[bytes] = []
    copied = 0
    for start, end, kind, channel, body in walk(data):
        if kind != AMQP_FRAME or performative_code(data, body) not in codes:
            continue
        performative, _ = read_body(data[body:end], Performative)
        instead = change(channel, performative)
        if instead is None:
            if end - start <= max_frame_size:
                continue
            instead = ((channel, performative),)
        parts += (data[copied:start], *(encode_fitted(each, at, max_frame_size) for at, each in instead))
        copied = end
    parts.append(data[copied:])
    return b"".join(parts)
