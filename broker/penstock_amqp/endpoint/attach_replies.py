"""The answers to attaches: a link is accepted, with the source and target that really exist, or it is refused or ended.

This module must not know what a link is for. Source: AMQP 1.0 part 2, 2.6.3 and 2.7.3.
"""

from __future__ import annotations

from penstock_amqp.endpoint.attachments import take_up_to
from penstock_amqp.endpoint.conditions import AmqpError, fitted
from penstock_amqp.endpoint.engine import Engine
from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_amqp.endpoint.output_changes import AttachAdditions, PendingChanges
from penstock_amqp.endpoint.proton import links
from penstock_amqp.endpoint.settlement import DeliverySettlement
from penstock_amqp.frames.performatives import Coordinator, Source, Target

__all__ = ["AttachReplies"]

_SETTLED = 1
"""Settle mode of a sender that sends all deliveries settled (2.8.2)."""
_UNSETTLED = 0
_FIRST = 0
"""Settle mode of a receiver that settles at once (2.8.3)."""
_SECOND = 1


class AttachReplies:
    """Answers the attaches of one connection."""

    __slots__ = ("_changes", "_engine", "_settlement")

    def __init__(self, engine: Engine, changes: PendingChanges, settlement: DeliverySettlement) -> None:
        self._engine = engine
        self._changes = changes
        self._settlement = settlement

    def accept_producer(
        self,
        link: InLink,
        source: Source | None,
        target: Target | Coordinator | None,
        *,
        max_message_bytes: int,
        peer_settles: int | None,
        settles_second: bool,
    ) -> None:
        """Prepare the reply to an attach of a sender; see `Endpoint.attach_reply`. `open` sends it."""
        links.write_termini(link.ptr, source, target)
        take_up_to(link, max_message_bytes)
        links.set_max_message_size(link.ptr, link.max_bytes)
        links.set_settle_modes(link.ptr, sender=peer_settles, receiver=_SECOND if settles_second else None)
        if settles_second:
            self._settlement.settle_second(link)

    def accept_consumer(
        self,
        link: OutLink,
        source: Source | None,
        target: Target | Coordinator | None,
        *,
        sends_settled: bool,
        settles_second: bool,
    ) -> None:
        """Prepare the reply to an attach of a receiver; see `Endpoint.attach_reply`. `open` sends it."""
        links.write_termini(link.ptr, source, target)
        link.presettled = sends_settled
        link.default_outcome = source.default_outcome if source is not None else None
        link.settles_second = settles_second and not sends_settled
        links.set_settle_modes(
            link.ptr,
            sender=_SETTLED if sends_settled else _UNSETTLED,
            receiver=_SECOND if link.settles_second else _FIRST,
        )

    def open(self, link: InLink | OutLink, offered: tuple[str, ...] = (), *, answers_unsettled: bool = False) -> None:
        """Send the reply to an attach; see `Endpoint.attach_reply`."""
        link.is_answered = True
        if link.session.handle_max is not None:
            self._engine.write()  # handles of ended links are free once their detaches are written
        default_outcome = link.default_outcome if isinstance(link, OutLink) else None
        self._changes.add(AttachAdditions(link, offered, answers_unsettled, default_outcome))
        links.open_link(link.ptr)

    def end(self, link: InLink | OutLink, *, closed: bool, error: AmqpError | None) -> None:
        """Detach or close a link that `Attachments` has forgotten. If its attach has no answer yet, this refuses the
        attach.
        """
        if not link.is_answered:
            links.refuse_link(link.ptr)
            self.open(link)
        told = None if error is None else fitted(error, self._engine.frame_bytes)
        links.end_link(link.ptr, closed=closed, error=told)
