"""How a link or a session of one connection ends: our detach or End is written, and every pointer to it is dropped.

The engine uses the addresses of what it frees again, so nothing may be left that finds a link by its address. This
module must not know queues. Source: AMQP 1.0 part 2, 2.5 and 2.6.
"""

from __future__ import annotations

from penstock_amqp.endpoint.attach_replies import AttachReplies
from penstock_amqp.endpoint.attachments import Attachments
from penstock_amqp.endpoint.buffers import FREED
from penstock_amqp.endpoint.engine import Engine
from penstock_amqp.endpoint.events import AmqpError
from penstock_amqp.endpoint.incoming_messages import end_input
from penstock_amqp.endpoint.links import InLink, OutLink, Session
from penstock_amqp.endpoint.outgoing_streams import OutgoingStreams
from penstock_amqp.endpoint.output_changes import PendingChanges
from penstock_amqp.endpoint.proton import links
from penstock_amqp.endpoint.session_window import note_lost
from penstock_amqp.endpoint.settlement import DeliverySettlement

__all__ = ["LinkEnds"]


class LinkEnds:
    """Ends links and sessions in all parts of an endpoint that know them."""

    __slots__ = ("_attachments", "_changes", "_engine", "_outgoing", "_replies", "_settlement")

    def __init__(
        self,
        engine: Engine,
        changes: PendingChanges,
        attachments: Attachments,
        *,
        replies: AttachReplies,
        settlement: DeliverySettlement,
        outgoing: OutgoingStreams,
    ) -> None:
        self._engine = engine
        self._changes = changes
        self._attachments = attachments
        self._replies = replies
        self._settlement = settlement
        self._outgoing = outgoing

    def detach(self, link: InLink | OutLink, *, closed: bool, error: AmqpError | None) -> None:
        """See `Endpoint.detach`; the link is open."""
        self._forget(link)
        if link in link.session.links:
            link.session.links.remove(link)
        if isinstance(link, InLink) and links.has_unsettled(link.ptr):
            self._changes.leave_unanswered(link.session)
        self._replies.end(link, closed=closed, error=error)
        link.ptr = FREED

    def end(self, session: Session) -> None:
        """See `Endpoint.end`."""
        for link in session.links:
            self._forget(link)
            links.free_link(link.ptr)
            link.ptr = FREED
        session.links = []
        links.close_session(session.ptr)
        session.ptr = FREED
        if self._attachments.holds_begins:
            self._engine.write()  # its channel is free once our End is written
        self._attachments.ended()

    def _forget(self, link: InLink | OutLink) -> None:
        """Drop every pointer to a link, because the engine is about to reuse its addresses."""
        self._attachments.forget(link)
        if isinstance(link, InLink):
            end_input(link)
            self._settlement.forget(link)
        else:
            self._outgoing.forget(link)
            note_lost(link)
