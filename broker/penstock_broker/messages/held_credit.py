"""Gives producers that are held back some credit: as much as the volume, or memory, has room for.

Every tenth of a second those that wait share what may be sent until the next time, in the order in which they came to
wait. While the volume is nearly full, that is little, and each gets little; while memory is short, it is what half of
the room takes. Source: docs/decisions/046-producers-held-back.md and 084-memory.md.
"""

from __future__ import annotations

from typing import Final

from penstock_broker.state.broker import Broker
from penstock_broker.state.links import HELD_WINDOW, Producer
from penstock_core.memory_level import messages_per_tick
from penstock_core.storage_level import credits_per_tick

__all__ = ["TICK_MS", "HeldCredit", "takes_credit"]

TICK_MS: Final = 100
PRODUCERS_PER_TICK: Final = 200
"""That may be looked at: some of those that wait are gone."""

PATIENT_MS: Final = 10_000
"""While memory is full, producers get no credit for so long; then a little, so that they learn why they wait."""


class HeldCredit:
    """Of one broker. Whoever watches the volume, or memory, says when producers are held back."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._gives = False
        """`_give` comes again."""
        self._full_ms: int | None = None
        """Since when memory has been full."""

    def hold(self, *, of_volume: bool | None = None, of_all: bool | None = None) -> None:
        """Hold those producers back from now on, or do not; None: as before."""
        hold = self._broker.credit_hold
        hold.set(
            of_volume=hold.of_volume if of_volume is None else of_volume,
            of_all=hold.of_all if of_all is None else of_all,
        )
        if hold.is_on and not self._gives:
            self._gives = True
            self._broker.clock.after(TICK_MS, self._give)

    def _give(self) -> None:
        """Give some of those that wait some credit; all of it, once they are not held back any more."""
        broker, hold = self._broker, self._broker.credit_hold
        self._gives = hold.is_on or bool(hold.waiting)
        if self._gives:
            broker.clock.after(TICK_MS, self._give)
        left = self._most()
        each = HELD_WINDOW if hold.of_volume else max(HELD_WINDOW, left // max(len(hold.waiting), 1))
        for _ in range(min(PRODUCERS_PER_TICK, len(hold.waiting))):
            if hold.is_on and not left:
                break
            producer = hold.waiting.popleft()
            producer.is_held = False
            if takes_credit(producer):
                left -= self._grant(producer, min(left, each) if hold.is_on else producer.window)

    def _most(self) -> int:
        """Messages that all of them may send until the next time."""
        storage, memory, hold = self._broker.storage, self._broker.memory, self._broker.credit_hold
        of_volume = credits_per_tick(storage.used_share, storage.held_from)
        if not hold.of_all:
            return of_volume
        now_ms = self._broker.clock.now_ms
        self._full_ms = (self._full_ms or now_ms) if memory.is_full else None
        if self._full_ms is not None:
            return 1 if now_ms - self._full_ms >= PATIENT_MS else 0
        of_memory = messages_per_tick(memory.share, memory.budget, memory.mean)
        return min(of_volume, of_memory) if hold.of_volume else of_memory

    def _grant(self, producer: Producer, most: int) -> int:
        """Give one producer up to `most` of what it is owed; how much that was."""
        credit = min(producer.owed_credit, most)
        producer.owed_credit -= credit
        producer.connection.endpoint.credit(producer.link, credit)
        self._broker.work.touch(producer.connection)
        return credit


def takes_credit(producer: Producer) -> bool:
    """False if it, its link or its connection has ended while it waited."""
    return producer.is_active and producer.link.is_open and not producer.connection.endpoint.closed
