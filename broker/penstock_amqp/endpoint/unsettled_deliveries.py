"""The deliveries of one connection that were sent and are not settled: a look at them, and what ends them.

There may be a million of them, so that they can be looked at a few at a time. A long table is looked through where it
is, for as long as nothing is sent or settled on the connection between two steps, as when its client hangs; once
something is, all is copied at once. A table that a pass looks through (`Engine.aside`, see `withdrawals`) keeps its
size, and what leaves it for `Engine.unsettled` is found there. So a delivery may be found twice, and one that is
settled meanwhile may be found or not.

This module must not know queues or subscriptions. Source: AMQP 1.0 part 2, 2.6.12; part 3, 3.4.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.engine import Engine
from penstock_amqp.endpoint.events import AcceptedUnsettled, Held, Settled
from penstock_amqp.endpoint.flow_answers import FlowAnswers
from penstock_amqp.endpoint.freed_parts import NO_PART
from penstock_amqp.endpoint.links import Acquisition, OutLink
from penstock_amqp.endpoint.outgoing_streams import OutgoingStreams
from penstock_amqp.endpoint.proton import links
from penstock_amqp.endpoint.settlement import DeliverySettlement
from penstock_amqp.endpoint.withdrawals import Withdrawals, Withdrawn

__all__ = ["MOST_COPIED", "UnsettledDeliveries", "walk_held"]

MOST_COPIED: Final = 16_384
"""Deliveries that are copied at once in any case: some tenths of a millisecond."""


class UnsettledDeliveries:
    """Those of one connection. The engine ends most of them; here is what ends the others."""

    __slots__ = ("_engine", "_flows", "_outgoing", "_settlement", "_withdrawals")

    def __init__(
        self, engine: Engine, outgoing: OutgoingStreams, settlement: DeliverySettlement, flows: FlowAnswers
    ) -> None:
        self._engine, self._outgoing, self._settlement, self._flows = engine, outgoing, settlement, flows
        self._withdrawals = Withdrawals(engine)

    def clear(self) -> None:
        """The connection is freed: whoever asks from now on, or goes on with `walk`, gets `EndpointFreed`."""
        self._engine = self._outgoing = self._settlement = self._flows = self._withdrawals = NO_PART

    @property
    def count(self) -> int:
        """How many there are at most, over all links; without those that are being sent."""
        return len(self._engine.unsettled) + len(self._engine.aside)

    def all_held(self) -> Iterator[Held]:
        """All that was sent, or is being sent, and is not settled; also what is still to be sent settled, if it was
        acquired in a transaction that is open.
        """
        yield from self._engine.unsettled.values()
        yield from (held for held in self._engine.aside.values() if held is not None)
        yield from self._outgoing.all_held()

    def held_now(self) -> list[Held]:
        """`all_held`, as it is now."""
        aside = [held for held in self._engine.aside.values() if held is not None]
        return [*self._engine.unsettled.values(), *aside, *self._outgoing.all_held()]

    def walk(self, most: int) -> Iterator[Sequence[Held | None]]:
        """`all_held`, `most` at a time, and None for some that are gone. Anything may be done between two parts."""
        yield from walk_held(self._engine, most)
        yield list(self._outgoing.all_held())

    def count_on(self, link: OutLink) -> int:
        """How many deliveries of the link are not settled; 0 if it is gone."""
        return links.has_unsettled(link.ptr) if link.is_open else 0

    def held_by(self, link: OutLink) -> list[Held]:
        """The link's unsettled deliveries."""
        if not links.has_unsettled(link.ptr) and link not in self._outgoing.by_link:
            return []  # other links of the connection may have very many
        return [held for held in self.held_now() if held[0] is link]

    def withdraw(self, link: OutLink) -> list[Held]:
        """The link has ended with very many deliveries: nothing more is sent on it, and `withdrawn` finds what is not
        settled, but for what was not sent as a whole, which is returned.
        """
        unsent = self._outgoing.held_by(link)
        self._outgoing.forget(link)
        self._withdrawals.add(link)
        return unsent

    def withdrawn(self, most: int) -> Withdrawn:
        """Settle deliveries of links that have ended, looking at `most` deliveries of the connection. To be called
        until it has named all these links.
        """
        return self._withdrawals.step(most)

    def is_held(self, delivery: Ptr, held: Held) -> bool:
        """Whether a delivery that was sent is not settled yet."""
        return self._engine.unsettled.get(delivery) is held or self._engine.aside.get(delivery) is held

    def take(self, delivery: Ptr, held: Held) -> bool:
        """Forget an unsettled delivery without a word to the peer; False if it is no longer unsettled."""
        return self._settlement.take(delivery, held)

    def conclude(self, delivery: Ptr, held: Held, end: Settled | None) -> bool:
        """Settle what the peer left unsettled as `end` says (None: accept it); False if it is no longer unsettled."""
        return self._settlement.conclude(delivery, held, end)

    def confirm(self, ended: AcceptedUnsettled | Settled) -> None:
        """Settle, with the peer's outcome, a delivery that the peer has not settled; its link is open."""
        self._settlement.confirm(ended)

    def take_back(self, acquisition: Acquisition, delivery: Ptr, held: Held, end: Settled) -> list[Held]:
        """Settle, as `end` says, what was acquired in a transaction that is rolled back. The rest of what was sent in
        part is not sent. It is returned if it was unsettled, with what its link was to send behind it; but what waits
        to be sent as a whole stays, and is sent outside of the transaction, since the link has credit for it.
        """
        if self._settlement.take_back(acquisition, delivery, held, end):
            return [held]
        back = self._outgoing.take_back(held)
        if back:
            self._regain_credit(held[0])
        return back

    def take_back_settled(
        self, acquisition: Acquisition, closing: Container[OutLink] = ()
    ) -> tuple[list[Held], list[Held]]:
        """A transaction is rolled back: what was acquired in it, and was still to be sent settled, is not sent. Returns
        what is taken back, and what can't be and is sent outside of the transaction. `closing`: links that end now.
        """
        taken_back: list[Held] = []
        sent_outside: list[Held] = []
        for link, back, kept in self._outgoing.take_back_settled(acquisition, closing):
            taken_back += back
            sent_outside += kept
            if back:
                self._regain_credit(link)
        return taken_back, sent_outside

    def take_back_waiting(self, acquisition: Acquisition) -> list[Held]:
        """A transaction is committed: what was acquired in it to be sent settled, and waits behind another message of
        its link, is not sent, and returned.
        """
        taken_back: list[Held] = []
        for link, back in self._outgoing.take_back_waiting(acquisition):
            taken_back += back
            self._regain_credit(link)
        return taken_back

    def _regain_credit(self, link: OutLink) -> None:
        """Something that had used credit of the link is not sent on it."""
        link.credit = links.credit_of(link.ptr) - self._outgoing.unsent(link)
        if link.drain:
            self._flows.drained(link)

    def unsent_by(self, link: OutLink) -> list[Held]:
        """Those of `held_by` that were not sent as a whole, or not at all."""
        return self._outgoing.held_by(link)

    def separate_unsent(self, link: OutLink) -> list[Held]:
        """The same for a link that is about to end: `held_by` has them whatever becomes of a transaction."""
        return self._outgoing.separate(link)


def walk_held(engine: Engine, most: int) -> Iterator[Sequence[Held | None]]:
    """The deliveries that were sent as a whole, `most` at a time, and None for each that is gone."""
    is_long = len(engine.aside) + len(engine.unsettled) > MOST_COPIED
    if is_long and (yield from _in_place(engine, engine.aside, most)):
        return
    copied = iter([*engine.unsettled.values(), *(held for held in engine.aside.values() if held is not None)])
    while part := list(islice(copied, most)):
        yield part


def _in_place(
    engine: Engine, table: Mapping[Ptr, Held | None], most: int
) -> Generator[Sequence[Held | None], None, bool]:
    """Those of this table, and behind it those of `Engine.unsettled`; False if that could not be finished."""
    rest = iter(table.values())
    try:
        while engine.unsettled is table or engine.aside is table:
            found = list(islice(rest, most))
            if found:
                yield found
            elif engine.unsettled is table:
                return True
            else:
                return (yield from _in_place(engine, engine.unsettled, most))
    except RuntimeError:
        pass  # the table has another size than it had in the last step
    return False
