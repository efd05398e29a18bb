"""Notes since when subscriptions have been unused, and ends those that clients left behind, where that is wanted.

A sweep a minute. What it notes is written without a sync of its own: a crash loses at most the last minute of it, and
then a subscription counts as used until the restart, or its clock goes on from before; the grace after a start covers
the rest. Source: `penstock_core.idling`; docs/broker.md.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from penstock_broker.links.ending import end_subscription
from penstock_broker.state.broker import Broker
from penstock_core.idling import has_idled

__all__ = ["SWEEP_MS", "sweep"]

logger = logging.getLogger(__name__)

SWEEP_MS: Final = 60_000
MOST_NOTES: Final = 500
"""Documents written in one sweep; the others have their turn in the next."""


def sweep(broker: Broker) -> None:
    """Look at all subscriptions, and see to it that this is done again."""
    limit = broker.settings.delivery.idle_expiry_seconds
    pause_ms = SWEEP_MS if limit is None else min(SWEEP_MS, limit * 250)
    broker.after(pause_ms, partial(sweep, broker))
    if broker.log.failed is not None:
        return
    notes = 0
    for subscription in list(broker.topology.subscriptions.values()):
        unused_since_us = subscription.queue.unused_since_us
        if has_idled(
            now_us=broker.now_us,
            unused_since_us=unused_since_us,
            started_us=broker.started_us,
            limit_seconds=limit,
            is_lasting=subscription.is_logged,
            managed=subscription.managed is not None,
        ):
            logger.info(
                "End the %s with %d messages: unused for %d s, delivery.idleExpirySeconds is %d",
                subscription.identity,
                subscription.queue.depth,
                (broker.now_us - unused_since_us) // 1_000_000,
                limit,
            )
            end_subscription(broker, subscription)
        elif subscription.is_logged and subscription.noted_unused_us != unused_since_us and notes < MOST_NOTES:
            notes += 1
            broker.topology.note(subscription)
