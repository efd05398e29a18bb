"""Which messages a subscription takes: selector and no-local, asked at publish, so that nothing else enters its queue.

Source: decision 17 of the design (no-local), facts on selectors (JMS 2.0, 3.8.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, assert_never

from penstock_broker.topology.records import Subscription
from penstock_core.binding import ByConnection, ByContainer

if TYPE_CHECKING:
    from penstock_broker.connection import Connection

__all__ = ["Admission", "admission"]

Admission: TypeAlias = "Callable[[bytes, Connection], bool]"
"""Whether a message published on a connection is taken."""


def admission(subscription: Subscription) -> Admission | None:
    """The question to ask about each message; None if every message is taken."""
    return _no_local(subscription)


def _no_local(subscription: Subscription) -> Admission | None:
    match subscription.no_local:
        case None:
            return None
        case ByContainer(container_id):
            return lambda _, connection: connection.container_id != container_id
        case ByConnection():
            queue = subscription.queue
            return lambda _, connection: all(each.connection is not connection for each in queue.consumers)
        case _:
            assert_never(subscription.no_local)
