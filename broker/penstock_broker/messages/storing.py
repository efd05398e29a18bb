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
    taking = route.selection.taking(data, head, connection)
    return route if len(taking) == len(route.picky) else broker.route_of((*route.open_queues, *taking))


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
        expecting.postpone(broker, queue, (entry,))
    else:
        queue.put((entry,))
        if entry[EXPIRES]:
            expecting.expect(broker, queue, entry[EXPIRES])
        if queue.consumers:
            broker.schedule(queue)
    if queue.depth_bytes > queue.max_bytes or queue.max_messages:
        limits.enforce(broker, queue)


def put_together(
    broker: Broker,
    route: Route,
    entries: list[Entry],
    delayed: list[Entry],
    size: int,
    first_expiry: int,
    *,
    ordered: bool,
) -> None:
    """Put messages that are numbered, and in the log where they are to be, into every queue of `route`.

    Those of `entries` wait at once, `delayed` ones are for later; `size`: bytes of them all. `first_expiry`: when the
    first of `entries` expires, 0: none does. `ordered`: some have a priority or a group.
    """
    count = len(entries) + len(delayed)
    for queue in route.queues:
        until = first_expiry
        ours = entries
        if queue.max_ttl_us:
            ours = [_bounded(broker, queue, entry) for entry in entries]
            until = min((entry[EXPIRES] for entry in ours), default=0)
        if until:
            expecting.expect(broker, queue, until)
        if ordered:
            queue.put(ours)
        else:
            queue.ready.extend(ours)
        queue.enqueued += count
        queue.enqueued_bytes += size
        queue.depth_bytes += size
        if delayed:
            expecting.postpone(broker, queue, [_bounded(broker, queue, entry) for entry in delayed])
        if not queue.is_scheduled and queue.consumers:
            queue.is_scheduled = True
            broker.ready.append(queue)
        if queue.depth_bytes > queue.max_bytes or queue.max_messages:
            limits.enforce(broker, queue)


def _bounded(broker: Broker, queue: Queue, entry: Entry) -> Entry:
    """A message that came now, as it is in a queue that keeps nothing longer than so."""
    if not queue.max_ttl_us:
        return entry
    number, data, available, expires, flags = entry
    return number, data, available, bounded(expires, broker.now_us, queue.max_ttl_us), flags
