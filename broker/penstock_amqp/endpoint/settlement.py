"""How deliveries end: those that we received, and those that we sent, as their receivers say.

The engine settles plain deliveries in batches. The rest is done here: outcomes other than accepted, outcomes in a
transaction, the default outcome of a source, and links on which the receiver settles second.

This module must not know queues or subscriptions. Source: AMQP 1.0 part 2, 2.6.12; part 3, 3.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock_amqp.endpoint import conditions, transactional_states
from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.engine import Engine
from penstock_amqp.endpoint.events import AcceptedUnsettled, AmqpError, Event, EventKind, Held, Outcome, Settled
from penstock_amqp.endpoint.links import Acquisition, InLink, SecondSettlement
from penstock_amqp.endpoint.proton import deliveries
from penstock_amqp.endpoint.proton.deliveries import ACCEPTED, NO_STATE, RECEIVED, REJECTED

__all__ = ["DeliverySettlement"]


class DeliverySettlement:
    """The settlement of one connection's deliveries."""

    __slots__ = ("_engine", "_second", "_waiting")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._second: dict[Ptr, InLink] = {}
        """Links on which we settle after the peer. Few peers ask for it."""
        self._waiting: frozenset[Ptr] = frozenset()
        """What the peer had not settled when `settle_overdue` was last called."""

    def settle_second(self, link: InLink) -> None:
        """On this link, the peer settles what we answered, and then we do."""
        link.second = SecondSettlement()
        self._second[link.ptr] = link

    def forget(self, link: InLink) -> None:
        """The link ends, and its deliveries with it."""
        self._second.pop(link.ptr, None)

    def clear(self) -> None:
        """All links end."""
        self._second.clear()
        self._waiting = frozenset()

    def ended(self, delivery: Ptr, held: Held, out: list[Event]) -> None:
        """The peer gave a state to `held`, which we sent, or settled it. The engine's `unsettled` does not have it any
        more.
        """
        state = deliveries.remote_state(delivery)
        if state == ACCEPTED:
            out.append((EventKind.OTHER, None, AcceptedUnsettled(held, delivery)))
            return
        if state in (0, RECEIVED):
            if deliveries.is_settled(delivery):
                self._ended_without_outcome(delivery, held, out)
            else:
                self._engine.unsettled[delivery] = held
            return
        if state == transactional_states.TRANSACTIONAL:
            in_transaction = transactional_states.enlisted(delivery, held)
            if in_transaction is not None:
                if not out or not transactional_states.joined(out[-1], in_transaction):
                    out.append((EventKind.OTHER, None, in_transaction))
                if in_transaction.is_settled:
                    deliveries.settle(delivery)
                else:
                    self._engine.unsettled[delivery] = held
                return
        end = deliveries.outcome(delivery, state, held)
        if held[0].settles_second and state and not deliveries.is_settled(delivery):
            out.append((EventKind.OTHER, None, replace(end, delivery=delivery)))
            return
        out.append((EventKind.OTHER, None, end))
        deliveries.settle(delivery)

    def _ended_without_outcome(self, delivery: Ptr, held: Held, out: list[Event]) -> None:
        """The default outcome of the link's source applies; without one the delivery comes back."""
        link = held[0]
        deliveries.settle(delivery)
        if link.default_outcome is None:
            out.append((EventKind.OTHER, None, Settled(held, Outcome.NONE)))
            return
        end = transactional_states.outcome_of(link.default_outcome, held)
        out.append((EventKind.ACCEPTED, link, [held]) if end is None else (EventKind.OTHER, None, end))

    def conclude(self, delivery: Ptr, held: Held, end: Settled | None) -> bool:
        """Settle what the peer left unsettled as `end` says (None: accept it); False if it is no longer unsettled."""
        if not self.take(delivery, held):
            return False
        self._settle_as(delivery, end)
        return True

    def take_back(self, acquisition: Acquisition, delivery: Ptr, held: Held, end: Settled) -> bool:
        """The same for a delivery that was acquired in a transaction. What was not sent of it is not sent. If nothing
        of it was sent yet, it will be, outside of the transaction: the engine would forget the credit that it used.
        """
        if not self.take(delivery, held):
            return False
        unsent = deliveries.unsent_bytes(delivery)
        if unsent and unsent == acquisition.lengths.get(delivery, unsent):
            deliveries.update(delivery, NO_STATE)
            self._engine.unsettled[delivery] = held
            return False
        deliveries.set_outcome(delivery, end)
        deliveries.abort(delivery)  # if all of it was sent, this only settles
        return True

    def take(self, delivery: Ptr, held: Held) -> bool:
        """Take `held` out of the unsettled deliveries without a word to the peer; False if it is no longer there."""
        self._engine.recall(delivery)
        unsettled = self._engine.unsettled
        if unsettled.get(delivery) is not held:
            return False
        del unsettled[delivery]
        return True

    def confirm(self, ended: AcceptedUnsettled | Settled) -> None:
        """Settle, with the peer's outcome, a delivery that the peer has not settled; its link is open."""
        delivery = ended.delivery
        if delivery is not None:
            self._settle_as(delivery, ended if isinstance(ended, Settled) else None)

    def _settle_as(self, delivery: Ptr, end: Settled | None) -> None:
        if end is None:
            deliveries.update(delivery, ACCEPTED)
        else:
            deliveries.set_outcome(delivery, end)
        deliveries.settle(delivery)

    def accept(self, deliveries: Iterable[Ptr]) -> None:
        """Accept and settle deliveries of links that are open.

        On a link on which we settle second, a delivery is settled once the peer has settled it, also after `reject`.
        """
        if self._second:
            self._answer(deliveries, ACCEPTED)
        else:
            self._engine.accept(deliveries)

    def reject(self, received: Iterable[Ptr], error: AmqpError) -> None:
        """Reject and settle."""
        for delivery in received:
            deliveries.set_rejected(delivery, conditions.fitted(error, self._engine.frame_bytes))
            self._answer((delivery,), REJECTED)

    def answer_as(self, received: Iterable[Ptr], code: int, fields: bytes) -> None:
        """Answer with a state that the engine does not know, and settle as after any other answer."""
        for delivery in received:
            deliveries.set_state(delivery, fields)
            self._answer((delivery,), code)

    def _answer(self, received: Iterable[Ptr], state: int) -> None:
        for delivery in received:
            deliveries.update(delivery, state)
            link = self._second.get(deliveries.link_of(delivery))
            if link is None or link.second is None or deliveries.is_settled(delivery):
                deliveries.settle(delivery)
            else:
                self._engine.unconfirmed[delivery] = link
                link.second.unconfirmed += 1

    def confirmed(self, delivery: Ptr) -> None:
        """Something came about a delivery that we answered: the peer may have settled it."""
        link = self._engine.unconfirmed.get(delivery)
        if link is not None and deliveries.is_settled(delivery):
            self._settle_confirmed(delivery, link)

    def settle_overdue(self) -> bool:
        """Settle what we answered before the last call and the peer has not settled since; whether to call again.

        The peer knows the outcome, so nothing is lost. Some clients ask for rcv-settle-mode second and wait for us to
        settle all the same (uamqp): without this they would wait for ever.
        """
        unconfirmed = self._engine.unconfirmed
        for delivery in [each for each in unconfirmed if each in self._waiting]:
            self._settle_confirmed(delivery, unconfirmed[delivery])
        self._waiting = frozenset(unconfirmed)
        return bool(self._second)

    def _settle_confirmed(self, delivery: Ptr, link: InLink) -> None:
        del self._engine.unconfirmed[delivery]
        deliveries.settle(delivery)
        if link.second is not None:
            link.second.unconfirmed -= 1
            self.credit(link, 0)

    def credit(self, link: InLink, count: int) -> None:
        """Let the peer send `count` messages more. Credit for deliveries that the peer has still to settle is given
        once it has.
        """
        second = link.second
        if second is not None:
            second.withheld += count
            count = max(second.withheld - second.unconfirmed, 0)
            second.withheld -= count
        if count:
            link.limit += count
            self._engine.credit(link, count)
