"""Writes messages to the log that are not to outlive the process, while memory is short and their queues are deep.

They are records of a kind of their own, which a later start passes over, and nobody waits until they are synced. From
then on they are paged as others are. Messages of a batch that are in the log anyway keep the others of their batch in
memory, so that a queue stays in the order of its numbers. Source: docs/decisions/084-memory.md.
"""

from __future__ import annotations

from penstock_amqp.endpoint.events import AVAILABLE, DATA, EXPIRES, FLAGS, Entry
from penstock_broker.log import LargePayload
from penstock_broker.queue.flags import LOGGED, SPILLED
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.routes import Route

__all__ = ["spilled"]


def spilled(broker: Broker, route: Route, entries: list[Entry]) -> list[Entry]:
    """The entries as all queues of `route` get them: in the log if they were not, and one of the queues is deep."""
    log = broker.log
    if not log.accepts_publishing() or any(entry[FLAGS] & LOGGED for entry in entries):
        return entries
    if not any(_is_deep(broker, queue) for queue in route.queues):
        return entries
    for queue in route.queues:
        if not log.holds(queue.incarnation):
            log.hold_volatile(queue.incarnation)
    return [_spilled(broker, route, entry) for entry in entries]


def _is_deep(broker: Broker, queue: Queue) -> bool:
    return queue.depth_bytes > broker.paging.window_bytes or queue.arrivals is not queue.ready


def _spilled(broker: Broker, route: Route, entry: Entry) -> Entry:
    """Numbered anew, so that numbers rise within the log."""
    log, data = broker.log, entry[DATA]
    if isinstance(data, LargePayload) or len(data) > log.longest_volatile:
        return log.next_message(), data, entry[AVAILABLE], entry[EXPIRES], entry[FLAGS]
    number = log.put_volatile(route.volatile_set, data, entry[AVAILABLE])
    return number, data, entry[AVAILABLE], entry[EXPIRES], entry[FLAGS] | LOGGED | SPILLED
