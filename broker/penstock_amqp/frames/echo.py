"""Answers a flow that asks for an echo, which the engine swallows.

The engine does not show its sequence numbers, but the flow itself tells them: frames are in order, so what the peer had
sent when it asked is what we have received, and what it had received is what we had sent, as far as it counts. The
answer goes out behind the engine's output of the turn.

Must not know the engine. Source: AMQP 1.0 part 2, 2.5.6 and 2.6.7.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock_amqp.frames.frames import encode_frame
from penstock_amqp.frames.performatives import Flow

__all__ = ["LinkState", "answer"]

_SERIAL = 0xFFFF_FFFF
_OUTGOING_WINDOW = 2**31 - 1


@dataclass(frozen=True, slots=True)
class LinkState:
    """Our end of the link that the flow names."""

    handle: int
    """Ours: that of the attach we sent."""
    is_sender: bool
    credit: int
    """What is left of it now that the engine's output is out. Below 0: more was sent than the peer still allows."""
    available: int | None = None
    """Messages that wait for credit, if we send."""


def answer(flow: Flow, channel: int, link: LinkState | None, incoming_window: int) -> bytes:
    """Write the frame that answers `flow`.

    `channel` is ours. `incoming_window` must not be more than what the engine still takes: half of the session's full
    window, because the engine tells the peer anew before less is left.
    """
    session = Flow(
        next_incoming_id=flow.next_outgoing_id,
        incoming_window=incoming_window,
        next_outgoing_id=flow.next_incoming_id or 0,
        outgoing_window=_OUTGOING_WINDOW,
    )
    if link is None:
        return encode_frame(session, channel)
    return encode_frame(
        Flow(
            next_incoming_id=session.next_incoming_id,
            incoming_window=session.incoming_window,
            next_outgoing_id=session.next_outgoing_id,
            outgoing_window=session.outgoing_window,
            handle=link.handle,
            delivery_count=_delivery_count(flow, link),
            link_credit=max(link.credit, 0),
            available=link.available if link.is_sender else None,
            drain=flow.drain if link.is_sender else None,
        ),
        channel,
    )


def _delivery_count(flow: Flow, link: LinkState) -> int:
    """The receiver sets how far a link may go, the sender counts how far it went."""
    told = flow.delivery_count or 0
    if not link.is_sender:
        return told
    return (told + (flow.link_credit or 0) - link.credit) & _SERIAL
