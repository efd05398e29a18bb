"""The answer to a flow with `echo`, which the engine does not write.

The session's state is copied from a flow that the engine wrote; the link's state is what the engine knows, completed
from the flow that asked. The answer is sent after the engine's output of the same turn of the event loop.

Must not know the engine. Source: AMQP 1.0 part 2, 2.5.6 and 2.6.7; part 4, 4.4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from penstock_amqp.frames.frames import encode_frame
from penstock_amqp.frames.performatives import Flow
from penstock_amqp.types.values import Symbol

__all__ = ["MOST_CREDIT", "TXN_ID", "LinkCredit", "echo_frame"]

TXN_ID: Final = Symbol("txn-id")
"""Property of a flow: the transaction in which messages are acquired (part 4, 4.4.3)."""

MOST_CREDIT = 2**31 - 1
"""Larger credit, which a peer may give (2.6.7), is treated as this value."""

_SERIAL = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class LinkCredit:
    """The state of our end of the link that the flow names."""

    handle: int
    """Ours: that of the attach we sent."""
    is_sender: bool
    credit: int
    """Credit left after the engine's output was sent. Below 0: more was sent than the peer still allows."""
    available: int | None = None
    """Messages that wait for credit, if we send."""
    txn_id: bytes | None = None
    """The transaction in which the link will acquire, if we send; None: in none."""


def echo_frame(flow: Flow, channel: int, session: Flow, link: LinkCredit | None) -> bytes:
    """Write the frame that answers `flow`: the state of `session`, and of `link` if it names one. `channel` is ours."""
    told = Flow(
        next_incoming_id=session.next_incoming_id,
        incoming_window=session.incoming_window,
        next_outgoing_id=session.next_outgoing_id,
        outgoing_window=session.outgoing_window,
    )
    if link is not None:
        told = replace(
            told,
            handle=link.handle,
            delivery_count=_delivery_count(flow, link),
            link_credit=max(link.credit, 0),
            available=link.available if link.is_sender else None,
            drain=flow.drain if link.is_sender else None,
            properties={TXN_ID: link.txn_id} if link.txn_id is not None else None,
        )
    return encode_frame(told, channel)


def _delivery_count(flow: Flow, link: LinkCredit) -> int:
    """The receiver sets how far a link may go, the sender counts how far it went."""
    told = flow.delivery_count or 0
    if not link.is_sender:
        return told
    return (told + (flow.link_credit or 0) - link.credit) & _SERIAL
