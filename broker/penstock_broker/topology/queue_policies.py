"""What was declared of a subscription or a queue, put into the policy of its queue, with the defaults of the broker.

Pure: it writes nothing down, and binds nothing. Source: docs/decisions/045-queue-limits.md,
docs/decisions/017-no-local.md and docs/decisions/076-nothing-lost-by-default.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from penstock_api.management import DeliveryPolicy
from penstock_broker.queue.admission import Admission, IsForeign
from penstock_broker.queue.queue import UNLIMITED_BYTES
from penstock_broker.topology.records import Exchange, PointToPointQueue, Subscription
from penstock_core.binding import ByConnection, ByContainer
from penstock_core.persistence import effective_persistence
from penstock_core.selector import stored_selector
from penstock_core.terms import Overflow, Persistence

__all__ = ["QueueDefaults"]


@dataclass(frozen=True, slots=True)
class QueueDefaults:
    """For queues without limits, and without a delivery policy, of their own."""

    max_bytes: int = UNLIMITED_BYTES
    delivery: DeliveryPolicy = field(default_factory=DeliveryPolicy)
    overflow: Overflow = Overflow.REJECT

    def apply_to_subscription(self, subscription: Subscription, exchange: Exchange | None) -> None:
        """Set what the queue of a subscription keeps, takes and bounds. `exchange`: its exchange, if that is there."""
        policy = effective_persistence(
            exchange.persistence if exchange else None,
            subscription.persistence,
            managed=subscription.managed is not None,
        )
        subscription.queue.policy.keeps_all = policy is Persistence.ALWAYS
        subscription.queue.admits = _admission(subscription)
        self._apply_limits(subscription)

    def apply_to_queue(self, node: PointToPointQueue) -> None:
        """Set what a queue of its own keeps and bounds."""
        policy = effective_persistence(None, node.persistence, managed=node.owner is not None)
        node.queue.policy.keeps_all = policy is Persistence.ALWAYS
        self._apply_limits(node)

    def _apply_limits(self, record: Subscription | PointToPointQueue) -> None:
        queue, limits = record.queue, record.limits
        queue.policy.max_bytes = limits.max_bytes or self.max_bytes
        queue.policy.max_messages = limits.max_messages or 0
        # What was declared without a limit says nothing of its overflow: the word is there only as the default.
        is_declared = limits.max_bytes is not None or limits.max_messages is not None
        queue.policy.overflow = Overflow(limits.overflow) if is_declared else self.overflow
        delivery = record.delivery or self.delivery
        queue.policy.max_deliveries = delivery.max_deliveries or 0
        # The defaults are for all queues, also for the one that they name: no queue is its own destination.
        queue.policy.dead_letter = delivery.dead_letter if delivery.dead_letter != queue.name else None
        queue.policy.expiry_address = delivery.expiry if delivery.expiry != queue.name else None
        max_ttl_us = (delivery.max_ttl_ms or 0) * 1000
        queue.expiry.is_retimed |= max_ttl_us != queue.policy.max_ttl_us and queue.depth > 0
        queue.policy.max_ttl_us = max_ttl_us
        queue.policy.exclusive_consumer = delivery.exclusive_consumer
        queue.rank()


def _admission(subscription: Subscription) -> Admission | None:
    """What a message has to pass to get into a subscription; None if every message is taken."""
    text = subscription.binding.filter.selector
    selector = stored_selector(text) if text is not None else None
    is_foreign = _no_local(subscription)
    return None if selector is None and is_foreign is None else Admission(selector, is_foreign)


def _no_local(subscription: Subscription) -> IsForeign | None:
    match subscription.no_local:
        case None:
            return None
        case ByContainer(container_id):
            return lambda connection: connection is None or connection.client.container_id != container_id
        case ByConnection():
            queue = subscription.queue
            return lambda connection: all(each.connection is not connection for each in queue.links.consumers)
        case _:
            assert_never(subscription.no_local)
