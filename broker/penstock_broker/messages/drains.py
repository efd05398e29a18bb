"""Gives back the credit of consumers that drain, once nothing is left for them.

Source: AMQP 1.0 part 2, 2.6.7; docs/decisions/023-bounded-turns.md.
"""

from __future__ import annotations

from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Consumer

__all__ = ["finish_drains"]


def finish_drains(broker: Broker) -> None:
    """Give back the credit of consumers that drain, now that nothing is left for them."""
    waiting = broker.work.draining.copy()
    broker.work.draining.clear()
    for consumer in waiting:
        try:
            _finish_drain(broker, consumer)
        except Exception:
            broker.fail_connection(consumer.connection)


def _finish_drain(broker: Broker, consumer: Consumer) -> None:
    link, connection, queue = consumer.link, consumer.connection, consumer.queue
    if not link.is_open or not link.drain or connection.is_blocked:
        return  # `resume` comes back to a blocked one
    if queue.links.returning:
        broker.work.draining.append(consumer)  # some of it is on its way back
        return
    if link.credit > 0 and queue.has_work and queue.waiting and _may_get_more(queue, consumer):
        broker.work.draining.append(consumer)
        return
    if not connection.endpoint.drained(link):
        connection.is_congested = True  # `link_unblocked` comes back once what is kept back has left
        return
    queue.note_change()
    broker.work.touch(connection)


def _may_get_more(queue: Queue, consumer: Consumer) -> bool:
    """True if a waiting message may be for this consumer, while the queue has work for some consumer."""
    for tier in queue.links.tiers or ():
        if consumer in tier:
            break
        if any(other.link.credit > 0 and other.is_active for other in tier):
            return False  # they come first
    else:
        if queue.links.tiers:
            return False  # another one has the queue for itself
    return queue.backlog.is_plain or queue.backlog.has_for(consumer)
