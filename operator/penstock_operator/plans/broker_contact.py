"""Since when a broker is away, as far as one operator knows: what its sessions, its status and its spec say of that.

Two rules read it. The grace of a deletion counts from when this operator found that the broker can't be asked
(`deletion`); an outage counts from when the broker went silent, which may have been before the operator started
(`outage`). Pure. Source: docs/decisions/115-since-when-a-broker-is-away.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Self

__all__ = ["LONGEST_AWAITED", "BrokerContact"]

LONGEST_AWAITED: Final = timedelta(minutes=2)
"""After so long nobody waits for the first attempt to connect any more: something else prevents it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerContact:
    """What is known since the operator first looked at the Broker."""

    unasked_since: datetime | None
    """Since when this operator can't ask it: it is silent, or says what the operator does not understand."""
    silent_since: datetime | None
    """Since when it does not answer. Its status may tell of a time before the operator started."""
    is_first_hand: bool = False
    """Whether this operator has seen it answer, or scaled to zero; what its status says of the time before is over."""

    is_looked_at: bool = False
    """Whether this operator has reconciled the Broker: it has a session then if there is an address to connect to."""

    def is_awaited(self, now: datetime, *, has_session: bool) -> bool:
        """Whether this operator, which has not asked it yet, is about to.

        `has_session`: whether there is a session, whose first attempt to connect then has not ended. Without one, the
        Broker is looked at soon, or was looked at and is not ready to be asked, and its status says why.
        """
        if self.unasked_since is None or now - self.unasked_since >= LONGEST_AWAITED:
            return False
        return has_session or not self.is_looked_at

    @classmethod
    def unknown(cls, now: datetime) -> Self:
        """Nobody has tried to connect yet."""
        return cls(unasked_since=now, silent_since=now)

    def not_after(self, now: datetime) -> Self:
        """What was later than `now` was so by a clock that was set back since: its time counts from now on, and not
        from when the clock has caught up.
        """
        asked, silent = self.unasked_since, self.silent_since
        if (asked is None or asked <= now) and (silent is None or silent <= now):
            return self
        return replace(self, unasked_since=asked and min(asked, now), silent_since=silent and min(silent, now))

    def looked_at(self) -> Self:
        """The Broker was reconciled."""
        return replace(self, is_looked_at=True)

    def answered(self) -> Self:
        """The broker answers."""
        return replace(self, unasked_since=None, silent_since=None, is_first_hand=True)

    def not_understood(self, now: datetime) -> Self:
        """It answers what this operator does not understand."""
        return replace(self, unasked_since=self.unasked_since or now, silent_since=None, is_first_hand=True)

    def lost(self, now: datetime) -> Self:
        """It does not answer, or there is no session in which it could."""
        return replace(self, unasked_since=self.unasked_since or now, silent_since=self.silent_since or now)

    def stopped(self) -> Self:
        """It is scaled to zero: nobody expects an answer."""
        return replace(self, unasked_since=None, silent_since=None, is_first_hand=True)

    def reported(self, since: datetime) -> Self:
        """Its status says that it is away since then."""
        if self.is_first_hand or self.silent_since is None:
            return self
        return replace(self, silent_since=min(self.silent_since, since))
