"""Checks for frames that AMQP does not allow but the engine accepts. The frames were decoded by the input tap.

Each function raises `ProtocolError`, which names the condition for the close. Must not know the engine. Source: AMQP
1.0 part 2, 2.4.1, 2.4.5, 2.7.1, 2.7.2, 2.7.3, 2.7.5, 2.8.2 and 2.8.3.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from penstock_amqp.errors import ProtocolError
from penstock_amqp.frames.frame_sizes import ATTACH_BYTES
from penstock_amqp.frames.performatives import Attach, Source, Target, Transfer

__all__ = [
    "LEAST_FRAME_SIZE",
    "LEAST_IDLE_MS",
    "LONGEST_TAG",
    "check_attach",
    "check_begin",
    "check_channel_left",
    "check_frame_size",
    "check_handle_left",
    "check_idle_time_out",
    "check_open",
    "check_reply_fits",
    "check_transfer",
]

LEAST_FRAME_SIZE: Final = 512
"""Bytes that a frame may have at any peer (2.8.19, MIN-MAX-FRAME-SIZE)."""

LEAST_IDLE_MS: Final = 250
"""Milliseconds. The broker sends something after half of a peer's idle time-out; the first time up to 250 ms later."""

LONGEST_TAG: Final = 32
"""Bytes of a delivery-tag (2.8.7)."""

_SECOND: Final = 1
_SENDER_MODES: Final = (None, 0, 1, 2)
_RECEIVER_MODES: Final = (None, 0, 1)
"""What AMQP knows (2.8.2, 2.8.3)."""
_INVALID: Final = "amqp:invalid-field"


def check_open(channel: int) -> None:
    """Open comes on channel 0: before it, no other channel is negotiated."""
    if channel != 0:
        raise ProtocolError("amqp:connection:framing-error", f"Open came on channel {channel}; send it on channel 0.")


def check_frame_size(max_frame_size: int | None) -> None:
    """Every peer takes frames of 512 bytes; None: the Open says nothing, and the peer takes any."""
    if max_frame_size is not None and max_frame_size < LEAST_FRAME_SIZE:
        told = f"Your max-frame-size is {max_frame_size}; allow at least {LEAST_FRAME_SIZE} bytes, or leave it out."
        raise ProtocolError(_INVALID, told)


def check_idle_time_out(idle_time_out: int | None) -> None:
    """The peer can be sent something in time, or the connection is closed with an error (2.4.5). None, 0: for ever."""
    if idle_time_out is not None and 0 < idle_time_out < LEAST_IDLE_MS:
        told = f"Your idle-time-out is {idle_time_out} ms; allow at least {LEAST_IDLE_MS} ms, or leave it out."
        raise ProtocolError("amqp:not-allowed", told)


def check_begin(channel: int, in_use: Collection[int], *, is_open: bool) -> None:
    """A session begins after the Open, on a channel without a session."""
    if not is_open:
        raise ProtocolError("amqp:illegal-state", "Begin came before Open; open the connection first.")
    if channel in in_use:
        raise ProtocolError("amqp:not-allowed", f"Channel {channel} carries a session already; end it first.")


def check_channel_left(in_use: int, channels: int) -> None:
    """Of the channels that the peer and we take, one is free; without one the engine would send no answer at all."""
    if in_use >= channels:
        told = f"There are {in_use} sessions, and no channel to answer another begin with; end one first."
        raise ProtocolError("amqp:resource-limit-exceeded", told)


def check_attach(channel: int, attach: Attach, *, handle_in_use: bool) -> None:
    """A link is attached to a handle that is free, with settle modes that exist."""
    if handle_in_use:
        told = f"Handle {attach.handle} is that of another link of the session; detach it first."
        raise ProtocolError("amqp:session:handle-in-use", told, channel)
    if attach.snd_settle_mode not in _SENDER_MODES:
        told = f"There is no snd-settle-mode {attach.snd_settle_mode}; use 0 (unsettled), 1 (settled) or 2 (mixed)."
        raise ProtocolError(_INVALID, told, channel)
    if attach.rcv_settle_mode not in _RECEIVER_MODES:
        told = f"There is no rcv-settle-mode {attach.rcv_settle_mode}; use 0 (first) or 1 (second)."
        raise ProtocolError(_INVALID, told, channel)


def check_handle_left(channel: int, links: int, handle_max: int | None) -> None:
    """The peer's handle-max allows one link more than `links`; beyond it the engine would send no answer at all."""
    if handle_max is not None and links > handle_max:
        told = f"Your handle-max of {handle_max} leaves no handle to answer another attach with; detach a link first."
        raise ProtocolError("amqp:resource-limit-exceeded", told, channel)


def check_reply_fits(channel: int, attach: Attach, max_frame_size: int) -> None:
    """The shortest reply to an attach, with the link name and the address of our terminus, fits the peer's frames."""
    terminus = attach.source if attach.role else attach.target
    address = terminus.address if isinstance(terminus, Source | Target) else None
    needed = len(attach.name.encode()) + len((address or "").encode()) + ATTACH_BYTES
    if needed > max_frame_size:
        told = f"The answer to the attach takes {needed} bytes, your frames {max_frame_size}; use shorter names."
        raise ProtocolError("amqp:frame-size-too-small", told, channel)


def check_transfer(first: Transfer | None, transfer: Transfer, *, settles_second: bool = False) -> Transfer | None:
    """Check one transfer of a link; `settles_second`: its rcv-settle-mode is second.

    `first` is the transfer that the delivery began with, None if this one is it. Returns `first` for
    the next call.
    """
    if first is not None:
        _check_continuation(first, transfer)
    elif transfer.delivery_id is None or transfer.delivery_tag is None:
        raise ProtocolError(_INVALID, "The first transfer of a delivery lacks its delivery-id or delivery-tag.")
    elif len(transfer.delivery_tag) > LONGEST_TAG:
        raise ProtocolError(_INVALID, f"The delivery-tag has {len(transfer.delivery_tag)} bytes; use {LONGEST_TAG}.")
    if transfer.rcv_settle_mode == _SECOND and not settles_second:
        raise ProtocolError(_INVALID, "rcv-settle-mode is second, where the link has negotiated first.")
    return (first or transfer) if transfer.more and not transfer.aborted else None


def _check_continuation(first: Transfer, transfer: Transfer) -> None:
    if transfer.message_format is not None and transfer.message_format != (first.message_format or 0):
        raise ProtocolError(_INVALID, "The message-format is not that of the first transfer of the delivery.")
    if transfer.delivery_tag is not None and transfer.delivery_tag != first.delivery_tag:
        raise ProtocolError(_INVALID, "The delivery-tag is not that of the first transfer of the delivery.")
