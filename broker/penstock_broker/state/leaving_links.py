"""Links that have ended while their consumers had very many deliveries: these go back to their queue a slice per turn.

Until all of them are back the queue sends nothing, so that nobody gets a later message before an earlier one, and a
link that drains waits. Source: docs/decisions/087-departures.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock_amqp.endpoint.events import Held
from penstock_amqp.endpoint.links import OutLink
from penstock_broker.access.connection import Connection
from penstock_broker.queue.consumer import ReceivingLink
from penstock_broker.queue.queue import Queue
from penstock_broker.state.links import Consumer

__all__ = ["DeliveryReturn", "LeavingLink", "consumed_queue"]


@dataclass(slots=True, eq=False)
class LeavingLink:
    """The context of a link that has ended, until all its deliveries are back."""

    consumer: ReceivingLink
    link: OutLink
    queue: Queue | None
    """Where they go; None: nowhere, they are copies."""
    counts: bool
    """The link was lost, so that its oldest delivery has failed."""
    is_withdrawn: bool = False
    """The engine has none of them any more."""
    oldest: Held | None = None
    """The one that may have failed: it is looked at last."""
    after: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    """What is to be done once they are back."""


@dataclass(slots=True, eq=False)
class DeliveryReturn:
    """The links of one connection that are leaving."""

    connection: Connection
    leaving: dict[OutLink, LeavingLink] = field(default_factory=dict[OutLink, LeavingLink])
    reserving: deque[LeavingLink] = field(default_factory=deque[LeavingLink])
    """Those for which their queue still reserves messages of groups."""
    after: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    """What is to be done once all have left."""


def consumed_queue(context: object) -> Queue | None:
    """The queue to which the deliveries of a link with this context belong; None if they are not a consumer's."""
    return context.queue if isinstance(context, Consumer | LeavingLink) else None
