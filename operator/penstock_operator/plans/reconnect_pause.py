"""How long the operator waits before it tries to connect to a broker again.

Pauses double. While a broker has been away for less than the grace of an outage it is probably starting, and a pause is
short, because a broker that has lost its volume has nothing until the operator is there. Later nobody waits for it so
closely, and many brokers may be away. Pure. Source: docs/decisions/117-declared-again.md.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from penstock_operator.plans.broker_contact import BrokerContact
from penstock_operator.plans.outage import GRACE

__all__ = ["FIRST_SECONDS", "next_pause", "spread_pause"]

FIRST_SECONDS: Final = 0.5
"""The first pause. No two attempts are closer to each other."""
_LONGEST_AT_FIRST: Final = 2.0
_LONGEST: Final = 10.0


def next_pause(pause: float, contact: BrokerContact, now: datetime) -> float:
    """The pause in seconds after one more attempt in vain, `pause` seconds after the one before."""
    since = contact.unasked_since
    longest = _LONGEST_AT_FIRST if since is None or now - since < GRACE else _LONGEST
    return min(pause * 2, longest)


def spread_pause(pause: float, spread: float) -> float:
    """What of a pause lies beyond the first one. `spread`, from 0 to 1, takes up to half of it off, so that brokers
    that went together are not asked together.
    """
    return (pause - FIRST_SECONDS) * (1 - spread / 2)
