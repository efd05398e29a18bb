"""What becomes of a message that nobody could take: back into its queue, to its destination, or gone.

Released never counts. What counts one failed delivery is `modified` with delivery-failed, the oldest unsettled delivery
of a link that is lost, and a rollback; who counts is the caller. A rejected message is not tried again. Without a
dead-letter destination there is no limit, because there would be nowhere to go. Source: AMQP 1.0 part 3, 3.4; section 4
of the design ("Limits").
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
    """Back into the queue."""


@dataclass(frozen=True, slots=True)
class Forward:
    """To the address; only once it is there does it leave the queue."""

    address: str
    cause: DeathReason


@dataclass(frozen=True, slots=True)
class Drop:
    """Gone, and counted."""


def after_rejection(dead_letter: str | None) -> Forward | Drop:
    """A consumer rejected the message."""
    return Drop() if dead_letter is None else Forward(dead_letter, DeathReason.REJECTED)


def after_failure(attempts: int, max_deliveries: int, dead_letter: str | None) -> Forward | Requeue:
    """A delivery failed; it was the message's `attempts`-th failure. `max_deliveries` 0: any number may."""
    if dead_letter is None or not 0 < max_deliveries <= attempts:
        return Requeue()
    return Forward(dead_letter, DeathReason.DELIVERY_LIMIT)


def after_expiry(expiry: str | None) -> Forward | Drop:
    """The message's time to live has passed."""
    return Drop() if expiry is None else Forward(expiry, DeathReason.EXPIRED)
