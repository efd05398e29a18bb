"""Puts one message into the queues of its route: into the log if it is to last, and in its place in each queue.

For messages that are looked at one by one, whoever brings them: producers on routes that aren't plain, commits, and the
broker itself. `publishing` does the same in batches where nothing has to be asked. Must not know who brought a message,
but for no-local. Source: section 4 of the design ("What is durable").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_amqp import message
from penstock_amqp.endpoint_events import Entry
from penstock_broker import limits
from penstock_broker.marks import message_marks
from penstock_broker.queue import LOGGED
from penstock_broker.routes import Route

if TYPE_CHECKING:
    from penstock_broker.broker import Broker
    from penstock_broker.connection import Connection

__all__ = ["admitted", "put"]


def admitted(broker: Broker, route: Route, data: bytes, head: message.Head, connection: Connection | None) -> Route:
    """The route of the queues that take this message; `connection` brought it, None: the broker."""
    if not route.picky:
        return route
    queues = tuple(queue for queue in route.queues if queue.admits is None or queue.admits(data, head, connection))
    return route if len(queues) == len(route.queues) else broker.route_of(queues)


def put(broker: Broker, route: Route, data: bytes, head: message.Head, *, keep: bool = False) -> bool:
    """Put the message into every queue of `route`; True if it is in the log. `keep`: as if it said it is durable."""
    if not route.queues:
        return False
    durable = head.durable or keep
    now = broker.now_us
    expires = now + head.ttl * 1000 if head.ttl else 0
    route_set = route.logged_set if durable else route.kept_set
    number = broker.log.put(route_set, data, now) if route_set else broker.log.next_message()
    marks = message_marks(data, head)
    entry: Entry = (number, data, now, expires, LOGGED | marks)
    unlogged: Entry = (number, data, now, expires, marks)
    for queue in route.queues:
        is_kept = queue.is_logged and (durable or queue.keeps_all)
        queue.put((entry if is_kept else unlogged,))
        queue.enqueued += 1
        queue.enqueued_bytes += len(data)
        queue.depth_bytes += len(data)
        if expires:
            queue.has_expiry = True
        if not queue.is_scheduled and queue.consumers:
            queue.is_scheduled = True
            broker.ready.append(queue)
        if queue.depth_bytes > queue.max_bytes or queue.max_messages:
            limits.enforce(broker, queue)
    return route_set != 0
