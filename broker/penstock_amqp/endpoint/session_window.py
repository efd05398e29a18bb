"""What a peer's session window keeps back: the bytes of messages that the engine holds for a session.

The engine counts the messages of a link that the peer has detached for as long as the session lives, although it never
sends them. They are left out here: without that, a session would count as congested for good, and no drain would be
answered on it. Must not know queues. Source: AMQP 1.0 part 2, 2.5.6.
"""

from __future__ import annotations

from collections.abc import Container

from penstock_amqp.endpoint.links import OutLink, Session
from penstock_amqp.endpoint.proton import links

__all__ = ["kept_back", "note_lost"]


def kept_back(session: Session, streams: Container[OutLink]) -> int:
    """How many bytes of messages wait for the session's window. `streams`: links that send a message in pieces."""
    held = links.outgoing_bytes(session.ptr)
    if session.has_lost and not any(_sends(each, streams) for each in session.links if isinstance(each, OutLink)):
        session.has_lost, session.lost_bytes = False, held
    session.lost_bytes = min(session.lost_bytes, held)
    return held - session.lost_bytes


def note_lost(link: OutLink) -> None:
    """The link is about to be freed. If the peer has detached it, what waits on it is never sent."""
    if not link.keeps_handle and links.queued(link.ptr):
        link.session.has_lost = True


def _sends(link: OutLink, streams: Container[OutLink]) -> bool:
    return link in streams or links.queued(link.ptr) > 0
