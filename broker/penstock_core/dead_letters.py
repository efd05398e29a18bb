"""What happens to a message that no consumer accepted: back into its queue, to its destination, or dropped.

A released delivery never counts as a failure. Three things count as one failure: `modified` with delivery-failed, the
oldest unsettled delivery of a link that is lost, and a rollback; the caller counts them. A rejected message is not
tried again. Without a dead-letter destination there is no limit on failures, because the message would have nowhere to
go. Source: AMQP 1.0 part 3, 3.4; docs/decisions/032-delivery-attempts.md, docs/decisions/033-dead-letters.md.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["DeathReason", "Drop", "Forward", "Requeue", "after_expiry", "after_failure", "after_rejection"]


class DeathReason(enum.Enum):
    """Why a message left its queue without being accepted; the value is what `x-opt-death-reason` says."""

    REJECTED = "rejected"
    DELIVERY_LIMIT = "delivery_limit"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Requeue:
    """Put it back into the queue."""


@dataclass(frozen=True, slots=True)
class Forward:
    """Send it to the address. The message leaves its queue only once it is stored there."""

    address: str
    cause: DeathReason


@dataclass(frozen=True, slots=True)
class Drop:
    """Drop it, and count it as dropped."""


def after_rejection(dead_letter: str | None) -> Forward | Drop:
    """A consumer rejected the message."""
    return Drop() if dead_letter is None else Forward(dead_letter, DeathReason.REJECTED)


def after_failure(attempts: int, max_deliveries: int, dead_letter: str | None) -> Forward | Requeue:
    """A delivery failed, which was the message's failure number `attempts`. `max_deliveries` 0: no limit."""
    if dead_letter is None or not 0 < max_deliveries <= attempts:
        return Requeue()
    return Forward(dead_letter, DeathReason.DELIVERY_LIMIT)


def after_expiry(expiry: str | None) -> Forward | Drop:
    """The message's time to live has passed."""
    return Drop() if expiry is None else Forward(expiry, DeathReason.EXPIRED)
