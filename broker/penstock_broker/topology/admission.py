"""Which messages a subscription takes: selector and no-local, asked at publish, so that nothing else enters its queue.

`selecting` asks, for all subscriptions of a route together. Source: decision 17 of the design (no-local).
"""

from __future__ import annotations

from typing import assert_never

from penstock_broker.queues.selecting import Admission, IsForeign
from penstock_broker.topology.records import Subscription
from penstock_core.binding import ByConnection, ByContainer
from penstock_core.selector import stored_selector

__all__ = ["admission"]


def admission(subscription: Subscription) -> Admission | None:
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
            return lambda connection: connection is None or connection.container_id != container_id
        case ByConnection():
            queue = subscription.queue
            return lambda connection: all(each.connection is not connection for each in queue.consumers)
        case _:
            assert_never(subscription.no_local)
