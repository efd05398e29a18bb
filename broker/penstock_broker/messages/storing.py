"""Puts one message into the queues of its route: into the log if it is to last, and in its place in each queue.

For messages that are looked at one by one, whoever brings them: producers on routes that aren't plain, commits, and the
broker itself. `publishing` does the same in batches where nothing has to be asked. Must not know who brought a message,
but for no-local. Source: section 4 of the design ("What is durable").
"""

from __future__ import annotations

from penstock_amqp.endpoint.events import Entry
from penstock_amqp.messages import message
from penstock_broker.connections.connection import Connection
from penstock_broker.messages import expecting, limits
from penstock_broker.messages.deadlines import wishes_of
from penstock_broker.queues.marks import message_marks
from penstock_broker.queues.queue import DATA, EXPIRES, FLAGS, LOGGED, SCHEDULED, Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.routes import Route
from penstock_core.lifespan import available_at, bounded, expires_at

__all__ = ["admitted", "put"]


def admitted(broker: Broker, route: Route, data: bytes, head: message.Head, connection: Connection | None) -> Route:
    """The route of the queues that take this message; `connection` brought it, None: the broker."""
    if not route.picky:
        return route
    queues = (*route.open_queues, *route.selection.taking(data, head, connection))
    return route if len(queues) == len(route.queues) else broker.route_of(queues)


def put(broker: Broker, route: Route, data: bytes, head: message.Head, *, keep: bool = False) -> bool:
    """Put the message into every queue of `route`; True if it is in the log. `keep`: as if it said it is durable."""
    if not route.queues:
        return False
    durable = head.durable or keep
    now = broker.now_us
    wished = wishes_of(data, head)
    available = available_at(now, wished)
    expires = expires_at(now, head.ttl, wished.absolute_expiry_ms)
    marks = message_marks(data, head) | (SCHEDULED if available > now else 0)
    route_set = route.logged_set if durable else route.kept_set
    number = broker.log.put(route_set, data, now, marks & SCHEDULED) if route_set else broker.log.next_message()
    for queue in route.queues:
        is_kept = queue.is_logged and (durable or queue.keeps_all)
        until = bounded(expires, now, queue.max_ttl_us)
        _place(broker, queue, (number, data, available, until, marks | LOGGED if is_kept else marks))
    return route_set != 0


def _place(broker: Broker, queue: Queue, entry: Entry) -> None:
    size = len(entry[DATA])
    queue.enqueued += 1
    queue.enqueued_bytes += size
    queue.depth_bytes += size
    if entry[FLAGS] & SCHEDULED:
        expecting.postpone(broker, queue, entry)
    else:
        queue.put((entry,))
        if entry[EXPIRES]:
            expecting.expect(broker, queue, entry[EXPIRES])
        if queue.consumers:
            broker.schedule(queue)
    if queue.depth_bytes > queue.max_bytes or queue.max_messages:
        limits.enforce(broker, queue)
