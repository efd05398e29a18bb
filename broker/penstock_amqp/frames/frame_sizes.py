"""Shortens performatives to a peer's max-frame-size: leaves out optional fields, the least important ones first.

A peer closes the connection for a frame beyond its max-frame-size, which may be 512 bytes. Must not know the engine.
Source: AMQP 1.0 part 2, 2.3, 2.7.1 and 2.8.15 (frame-size-too-small).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from penstock_amqp.frames.frames import encode_frame
from penstock_amqp.frames.performatives import Attach, Close, Detach, End, Error, Open, Performative, Source, Target

__all__ = ["ATTACH_BYTES", "encode_fitted", "fitted"]

ATTACH_BYTES: Final = 240
"""Most bytes of the shortest reply to an attach, without its link name and the address of our terminus."""


def fitted(performative: Performative, channel: int, max_frame_size: int) -> Performative | None:
    """`performative` shortened to fit a frame of `max_frame_size` bytes; None if even its shortest form does not
    fit."""
    excess = _excess(performative, channel, max_frame_size)
    if excess <= 0:
        return performative
    for shorter in _shorter(performative, excess):
        if _excess(shorter, channel, max_frame_size) <= 0:
            return shorter
    return None


def encode_fitted(performative: Performative, channel: int, max_frame_size: int) -> bytes:
    """The encoded frame of what `fitted` returns; of the complete performative if `fitted` returns None."""
    return encode_frame(fitted(performative, channel, max_frame_size) or performative, channel)


def _excess(performative: Performative, channel: int, max_frame_size: int) -> int:
    return len(encode_frame(performative, channel)) - max_frame_size


def _shorter(performative: Performative, excess: int) -> Iterator[Performative]:
    """Yield forms of decreasing length."""
    match performative:
        case Attach():
            yield from _shorter_attaches(performative)
        case Open():
            opened = replace(performative, properties=None)
            yield opened
            yield replace(opened, offered_capabilities=None, hostname=None)
        case Detach(error=Error() as error) | End(error=Error() as error) | Close(error=Error() as error):
            for shorter in _shorter_errors(error, excess):
                yield replace(performative, error=shorter)
        case _:
            pass


def _shorter_errors(error: Error, excess: int) -> Iterator[Error]:
    told = (error.description or "").encode()
    if len(told) > excess:
        yield replace(error, description=told[: len(told) - excess].decode(errors="ignore"))
    yield replace(error, description=None)
    yield replace(error, info=None, description=None)


def _shorter_attaches(attach: Attach) -> Iterator[Attach]:
    """Leave out first what no peer needs, then what only repeats the peer's attach, then what informs the peer."""
    attach = replace(attach, properties=None, desired_capabilities=None)
    yield attach
    if attach.role:
        attach = replace(attach, source=None if attach.source is None else Source())
    elif isinstance(attach.target, Target):
        attach = replace(attach, target=Target())
    yield attach
    if attach.role and isinstance(attach.target, Target):
        target = replace(attach.target, capabilities=None, dynamic_node_properties=None)
        yield replace(attach, offered_capabilities=None, target=target)
    source = attach.source
    if attach.role or source is None:
        return
    source = replace(source, outcomes=None)
    yield replace(attach, source=source)
    source = replace(source, default_outcome=None, dynamic_node_properties=None)
    yield replace(attach, source=source)
    source = replace(source, capabilities=None)
    yield replace(attach, source=source, offered_capabilities=None)
    yield replace(attach, source=replace(source, filter=None), offered_capabilities=None)
