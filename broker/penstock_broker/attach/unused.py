"""Notes since when subscriptions have been unused, and ends those that clients left behind, where that is wanted.

A sweep a minute. What it notes is written without a sync of its own: a crash loses at most the last minute of it, and
then a subscription counts as used until the restart, or its clock goes on from before; the grace after a start covers
the rest. Source: `penstock_core.idle_expiry`; docs/broker.md.

Deletes queues that auto-creation made and that nobody uses any more, where the settings ask for it.

A queue is looked at a few times within its time: it goes once it was found empty and without links in each look for so
long. Looks are sliced, so that ten thousand queues don't hold up a turn. Source: issue "all of JMS", auto-creation
policy.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from penstock_broker.attach import close
from penstock_broker.attach.close import end_subscription
from penstock_broker.state.broker import Broker
from penstock_broker.topology.records import PointToPointQueue
from penstock_core.idle_expiry import has_idled
from penstock_core.reason import Reason, Refuse
from penstock_core.terms import NodeKind

__all__ = ["SWEEP_MS", "sweep", "watch"]

logger = logging.getLogger(__name__)

SWEEP_MS: Final = 60_000
MOST_NOTES: Final = 500
"""Documents written in one sweep; the others have their turn in the next."""


def sweep(broker: Broker) -> None:
    """Look at all subscriptions, and see to it that this is done again."""
    limit = broker.settings.delivery.idle_expiry_seconds
    pause_ms = SWEEP_MS if limit is None else min(SWEEP_MS, limit * 250)
    broker.clock.after(pause_ms, partial(sweep, broker))
    if broker.log.failed is not None:
        return
    notes = 0
    for subscription in list(broker.topology.subscriptions.values()):
        unused_since_us = subscription.queue.links.unused_since_us
        if has_idled(
            now_us=broker.clock.now_us,
            unused_since_us=unused_since_us,
            started_us=broker.instance.started_us,
            limit_seconds=limit,
            is_lasting=subscription.is_logged,
            managed=subscription.managed is not None,
        ):
            logger.info(
                "End the %s with %d messages: unused for %d s, delivery.idleExpirySeconds is %d",
                subscription.identity,
                subscription.queue.depth,
                (broker.clock.now_us - unused_since_us) // 1_000_000,
                limit,
            )
            end_subscription(broker, subscription)
        elif subscription.is_logged and subscription.noted_unused_us != unused_since_us and notes < MOST_NOTES:
            notes += 1
            broker.topology.note(subscription)


LOOKS: Final = 4
"""How often a queue is looked at within the time after which it goes."""
LONGEST_MS: Final = 60_000
"""Between two looks."""
PER_SLICE: Final = 100


def watch(broker: Broker, seconds: int) -> None:
    """Look from now on; a queue goes after `seconds` without use, or a little later."""
    _look(broker, seconds * 1000, [])


def _look(broker: Broker, unused_ms: int, names: list[str]) -> None:
    """Look at the next slice of `names`, or pause and begin again."""
    for name in names[:PER_SLICE]:
        node = broker.topology.queues.get(name)
        if node is not None and node.made_by_name:
            _look_at(broker, node, unused_ms)
    rest = names[PER_SLICE:]
    if rest:
        broker.clock.after(0, lambda: _look(broker, unused_ms, rest))
    else:
        pause_ms = min(unused_ms // LOOKS, LONGEST_MS)
        broker.clock.after(
            pause_ms, lambda: _look(broker, unused_ms, list(broker.topology.made_by_name[NodeKind.QUEUE]))
        )


def _look_at(broker: Broker, node: PointToPointQueue, unused_ms: int) -> None:
    if broker.log.failed is not None:
        return  # nothing lasting changes any more
    if node.producers or node.queue.links.consumers or node.queue.links.browsers or node.queue.depth:
        node.idle_since_ms = None
    elif node.idle_since_ms is None:
        node.idle_since_ms = broker.clock.now_ms
    elif broker.clock.now_ms - node.idle_since_ms >= unused_ms:
        told = Refuse(Reason.NODE_DELETED, f"The queue {node.name!r} was empty and unused for {unused_ms // 1000} s.")
        close.end_queue(broker, node, told)
        logger.info("Deleted queue %r, which was made by its name and is not used", node.name)
