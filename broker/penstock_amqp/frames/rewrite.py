"""Rewrites attaches in a connection's output: what the engine cannot say on a link, such as its offered capabilities.

The output of a turn that opens links is taken from the engine into a buffer, changed here, and sent from the buffer. It
must begin and end with a frame (or protocol header): take what a blocked socket left over before opening a link.

Must not know the engine, or what is offered and why. Source: AMQP 1.0 part 2, 2.7.3.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock_amqp.frames.frames import AMQP_FRAME, encode_frame, performative_code, read_body, walk
from penstock_amqp.frames.performatives import Attach

__all__ = ["rewrite_attaches"]


def rewrite_attaches(data: bytes, change: Callable[[int, Attach], Attach], max_frame_size: int) -> bytes:
    """Return `data` with `change(channel, attach)` in place of each attach; all other frames stay as they are.

    An attach that would grow beyond `max_frame_size`, the peer's limit in bytes, stays as it was: an offer that is not
    heard is better than a connection that fails. Raises `DecodeError` if `data` are not whole frames.
    """
    parts: list[bytes] = []
    copied = 0
    for start, end, kind, channel, body in walk(data):
        if kind != AMQP_FRAME or performative_code(data, body) != Attach.CODE:
            continue
        attach, _ = read_body(data[body:end], Attach)
        changed = change(channel, attach)
        if changed is attach:
            continue
        frame = encode_frame(changed, channel)
        if len(frame) <= max_frame_size:
            parts += (data[copied:start], frame)
            copied = end
    parts.append(data[copied:])
    return b"".join(parts)
