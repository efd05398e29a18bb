"""Ends subscriptions and queues that nobody uses any more, where the settings ask for it.

Subscriptions: a sweep each minute records since when each has been unused, and ends those that have been unused for
too long. The record is written without a sync of its own: a crash loses at most the last minute of it. Then a
subscription counts as used until the restart, or as unused since an earlier time; the grace period after a start makes
up for both. Source: `penstock_core.idle_expiry`; docs/concepts/messages.md.

Queues that auto-creation made: each is checked a few times within its period, and is deleted once every check of that
period has found it empty and without links. The checks are sliced, so that ten thousand queues don't hold up a turn.
Source: docs/decisions/019-auto-creation.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from penstock_broker.attach import close
from penstock_broker.state.broker import Broker
from penstock_broker.topology.records import PointToPointQueue, Subscription
from penstock_core.idle_expiry import has_idled
from penstock_core.reason import Reason, Refuse
from penstock_core.terms import Lifetime, NodeKind

__all__ = ["SWEEP_MS", "sweep_subscriptions", "watch_queues"]

logger = logging.getLogger(__name__)

SWEEP_MS: Final = 60_000
SWEPT_AT_ONCE: Final = 20
"""Subscriptions that are checked before the time is looked at: some of them may end."""
MAX_NOTES: Final = 500
"""Documents written in one sweep; the others are written in the next."""


def sweep_subscriptions(broker: Broker) -> None:
    """Check all subscriptions, some in each turn, and set the timer for the next sweep."""
    limit = broker.settings.delivery.idle_expiry_seconds
    pause_ms = SWEEP_MS if limit is None else min(SWEEP_MS, limit * 250)
    broker.clock.after(pause_ms, partial(sweep_subscriptions, broker))
    _sweep_some(broker, _Sweep(iter(list(broker.topology.subscriptions.values()))))


@dataclass(slots=True)
class _Sweep:
    """A sweep in progress."""

    left: Iterator[Subscription]
    notes: int = 0
    """Documents that it has written."""


def _sweep_some(broker: Broker, sweep: _Sweep) -> None:
    """Check the next subscriptions, until this turn's time is over."""
    if broker.log.failed is not None:
        return
    is_over = broker.clock.stint()
    for count, subscription in enumerate(sweep.left, 1):
        if broker.topology.is_current(subscription.queue):  # it may have ended since the sweep began
            _sweep_one(broker, sweep, subscription)
        if count % SWEPT_AT_ONCE == 0 and is_over():
            broker.clock.after(0, partial(_sweep_some, broker, sweep))
            return


def _sweep_one(broker: Broker, sweep: _Sweep, subscription: Subscription) -> None:
    limit = broker.settings.delivery.idle_expiry_seconds
    unused_since_us = subscription.queue.links.unused_since_us
    if has_idled(
        now_us=broker.clock.now_us,
        unused_since_us=unused_since_us,
        started_us=broker.instance.started_us,
        limit_seconds=limit,
        is_permanent=subscription.lifetime is Lifetime.PERMANENT,
        managed=subscription.managed is not None,
    ):
        logger.info(
            "End the %s with %d messages: unused for %d s, delivery.idleExpirySeconds is %d",
            subscription.identity,
            subscription.queue.depth,
            (broker.clock.now_us - unused_since_us) // 1_000_000,
            limit,
        )
        close.end_subscription(broker, subscription)
    elif subscription.is_logged and subscription.noted_unused_us != unused_since_us and sweep.notes < MAX_NOTES:
        sweep.notes += 1
        broker.topology.note(subscription)


CHECKS: Final = 4
"""How often a queue is checked within the period after which it is deleted."""
MAX_PAUSE_MS: Final = 60_000
"""Between two checks."""
PER_SLICE: Final = 100
"""Queues checked in one turn."""


def watch_queues(broker: Broker, seconds: int) -> None:
    """Check from now on; a queue is deleted after `seconds` without use, or a little later."""
    _check_slice(broker, seconds * 1000, [])


def _check_slice(broker: Broker, unused_ms: int, names: list[str]) -> None:
    """Check the next slice of `names`, or pause and begin again."""
    for name in names[:PER_SLICE]:
        node = broker.topology.queues.get(name)
        if node is not None and node.made_by_name:
            _check(broker, node, unused_ms)
    rest = names[PER_SLICE:]
    if rest:
        broker.clock.after(0, lambda: _check_slice(broker, unused_ms, rest))
    else:
        pause_ms = min(unused_ms // CHECKS, MAX_PAUSE_MS)
        broker.clock.after(
            pause_ms, lambda: _check_slice(broker, unused_ms, list(broker.topology.made_by_name[NodeKind.QUEUE]))
        )


def _check(broker: Broker, node: PointToPointQueue, unused_ms: int) -> None:
    if broker.log.failed is not None:
        return  # nothing durable can change any more
    if node.producers or node.queue.links.consumers or node.queue.links.browsers or node.queue.depth:
        node.idle_since_ms = None
    elif node.idle_since_ms is None:
        node.idle_since_ms = broker.clock.now_ms
    elif broker.clock.now_ms - node.idle_since_ms >= unused_ms:
        reason = Refuse(Reason.NODE_DELETED, f"The queue {node.name!r} was empty and unused for {unused_ms // 1000} s.")
        close.end_queue(broker, node, reason)
        logger.info("Deleted queue %r, which was made by its name and is not used", node.name)
