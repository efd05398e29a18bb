"""What an endpoint settles: deliveries that it received, and, as their receivers do, those that it sent.

Written for speed: `accept` carries every message. Must not know queues or subscriptions. Source: AMQP 1.0 part 2,
2.6.12, and part 3, 3.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock_amqp.endpoint import buffers, terms, transactional_states
from penstock_amqp.endpoint.buffers import (
    ACCEPTED,
    RECEIVED,
    REJECTED,
    RELEASED,
    Ptr,
    delivery_link,
    delivery_remote_state,
    delivery_settle,
    delivery_settled,
    delivery_update,
)
from penstock_amqp.endpoint.events import Accepted, AmqpError, Event, EventKind, Held, Outcome, Settled
from penstock_amqp.endpoint.links import InLink
from penstock_amqp.endpoint.sending import Sender

__all__ = ["Settler"]


class Settler(Sender):
    """The settling part of `endpoint.forwarding.MessageEngine`."""

    __slots__ = ("_second", "_unconfirmed")

    def __init__(self) -> None:
        super().__init__()
        self._second: dict[Ptr, InLink] = {}
        """Links on which we settle after the peer. Few peers ask for it."""
        self._unconfirmed: dict[Ptr, InLink] = {}
        """Deliveries that were answered on those links; the peer has yet to settle them."""

    def _settled(self, received: Ptr, held: Held, out: list[Event]) -> None:
        """An outcome other than accepted, or none: `received` is out of the unsettled dict already."""
        state = delivery_remote_state(received)
        if state in (0, RECEIVED):
            if delivery_settled(received):
                self._settled_without_outcome(received, held, out)
            else:
                self.unsettled[received] = held
            return
        if state == transactional_states.TRANSACTIONAL:
            in_transaction = transactional_states.enlisted(received, held)
            if in_transaction is not None:
                if not out or not transactional_states.joined(out[-1], in_transaction):
                    out.append((EventKind.OTHER, None, in_transaction))
                if in_transaction.is_settled:
                    delivery_settle(received)
                else:
                    self.unsettled[received] = held
                return
        ended = terms.settled(received, state, held)
        if held[0].settles_second and state and not delivery_settled(received):
            out.append((EventKind.OTHER, None, replace(ended, delivery=received)))
            return
        out.append((EventKind.OTHER, None, ended))
        delivery_settle(received)

    def _settled_without_outcome(self, received: Ptr, held: Held, out: list[Event]) -> None:
        """The default outcome of the link's source holds; without one the delivery comes back."""
        link = held[0]
        delivery_settle(received)
        if link.default_outcome is None:
            out.append((EventKind.OTHER, None, Settled(held, Outcome.NONE)))
            return
        end = transactional_states.outcome_of(link.default_outcome, held)
        out.append((EventKind.ACCEPTED, link, [held]) if end is None else (EventKind.OTHER, None, end))

    def conclude(self, delivery_: Ptr, held: Held, end: Settled | None) -> bool:
        """Settle what the peer left unsettled as `end` says (None: accept it); False if it is unsettled no more."""
        if self.unsettled.get(delivery_) is not held:
            return False
        del self.unsettled[delivery_]
        delivery_update(delivery_, ACCEPTED if end is None else terms.outcome_code(delivery_, end))
        delivery_settle(delivery_)
        return True

    def accept(self, deliveries: Iterable[Ptr]) -> None:
        """Accept and settle. Only deliveries of links that are open: see `InLink.is_open`.

        As with `reject` and `release`, what came over a link that settles second is settled once the peer did.
        """
        if self._second:
            self._answer(deliveries, ACCEPTED)
            return
        for received in deliveries:
            delivery_update(received, ACCEPTED)
            delivery_settle(received)

    def _answer(self, deliveries: Iterable[Ptr], state: int) -> None:
        for received in deliveries:
            delivery_update(received, state)
            link = self._second.get(delivery_link(received))
            if link is None or delivery_settled(received):
                delivery_settle(received)
            else:
                self._unconfirmed[received] = link
                link.unconfirmed += 1

    def _confirmed(self, received: Ptr) -> None:
        """An event of a delivery that brings neither a message nor an outcome: the peer may have settled it."""
        link = self._unconfirmed.get(received)
        if link is not None and delivery_settled(received):
            del self._unconfirmed[received]
            delivery_settle(received)
            link.unconfirmed -= 1
            self.credit(link, 0)

    def credit(self, link: InLink, count: int) -> None:
        """Let the peer send `count` messages more; for those that it has not settled yet, once it settles them."""
        if link.settles_second:
            link.withheld += count
            count = max(link.withheld - link.unconfirmed, 0)
            link.withheld -= count
        if count:
            link.credit += count
            buffers.link_flow(link.ptr, count)

    def confirm(self, ended: Accepted | Settled) -> None:
        """Settle, as the peer did, what it settles after us; if its link is gone there is nothing to do."""
        delivery = ended.delivery
        if delivery is not None and ended.held[0].is_open:
            delivery_update(delivery, terms.outcome_code(delivery, ended) if isinstance(ended, Settled) else ACCEPTED)
            delivery_settle(delivery)

    def settle(self, deliveries: Iterable[Ptr]) -> None:
        """Settle what the sender settled already."""
        for received in deliveries:
            delivery_settle(received)

    def reject(self, deliveries: Iterable[Ptr], error: AmqpError) -> None:
        """Reject and settle."""
        for received in deliveries:
            condition = buffers.disposition_condition(buffers.delivery_local(received))
            terms.write_condition(condition, self.fitting(error))
            self._answer((received,), REJECTED)

    def fitting(self, error: AmqpError) -> AmqpError:
        """`error` with as much of its description as fits a frame of the peer's, and its info if that fits."""
        excess = terms.size_of(error) - self._one_frame if self._one_frame else 0
        if excess <= 0:
            return error
        raw = error.description.encode()
        if excess > len(raw):
            return replace(error, description="", info={})
        return replace(error, description=raw[: len(raw) - excess].decode(errors="ignore"))

    def tag_of(self, received: Ptr) -> bytes:
        """The delivery-tag of a delivery that is not settled yet."""
        return buffers.delivery_tag(received)

    def release(self, deliveries: Iterable[Ptr]) -> None:
        """Hand back and settle: the sender may try again."""
        self._answer(deliveries, RELEASED)
