"""The one place in which the operator keeps since when each Broker is away: its sessions write it, and whoever sees the
Broker's spec and status.

Source: docs/decisions/115-since-when-a-broker-is-away.md.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from penstock_operator.plans.broker_contact import BrokerContact

__all__ = ["BrokerContacts"]


class BrokerContacts:
    """The contact with each Broker (`namespace/name`), from the first look at it until it is forgotten."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._known: dict[str, BrokerContact] = {}

    def of(self, broker: str) -> BrokerContact:
        """The contact now."""
        now = self._clock()
        known = self._known.get(broker)
        found = BrokerContact.unknown(now) if known is None else known.not_after(now)
        self._known[broker] = found
        return found

    def now(self) -> datetime:
        """The time by which they are kept."""
        return self._clock()

    def looked_at(self, broker: str) -> None:
        """The Broker was reconciled."""
        self._known[broker] = self.of(broker).looked_at()

    def answered(self, broker: str) -> None:
        """It answers."""
        self._known[broker] = self.of(broker).answered()

    def not_understood(self, broker: str) -> None:
        """It answers what this operator does not understand."""
        self._known[broker] = self.of(broker).not_understood(self._clock())

    def lost(self, broker: str) -> None:
        """It does not answer, or there is no session in which it could."""
        self._known[broker] = self.of(broker).lost(self._clock())

    def stopped(self, broker: str) -> None:
        """It is scaled to zero."""
        self._known[broker] = self.of(broker).stopped()

    def reported(self, broker: str, since: datetime) -> None:
        """Its status says that it is away since then."""
        self._known[broker] = self.of(broker).reported(since)

    def forget(self, broker: str) -> None:
        """It does not exist any more."""
        self._known.pop(broker, None)
