"""Puts messages into queues on behalf of the broker itself: dead letters, expired, moved and redriven messages.

They take the same way through routing, limits and log as what a producer sends, with one difference: a message that
reaches no queue is refused, because the caller still holds it. Nothing waits for the disk here. A caller that promises
something waits for the sync (`SyncQueue.after_sync`). It publishes first and acknowledges the message in its old queue
second, in the same turn, so that a crash duplicates at worst. Source: docs/decisions/033-dead-letters.md.
"""

from __future__ import annotations

from typing import Final, assert_never

from penstock_amqp.endpoint.events import AmqpError
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages import message_head
from penstock_broker.access.connection import Connection
from penstock_broker.errors import amqp_error
from penstock_broker.messages import publish, queue_limits, store
from penstock_broker.messages.refuse import unreadable
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.routes import ExchangeTarget, QueueTarget
from penstock_core.address import ExchangeAddress, QueueAddress
from penstock_core.destinations import FoundDestination, MakeQueue, MissingDestination, decide_destination
from penstock_core.reason import Reason, Refuse
from penstock_core.terms import Overflow

__all__ = ["MOST_TARGETS", "destination_of", "publish_internally", "put_into"]

MOST_TARGETS: Final = 1024
"""Addresses that are remembered; with one more all are forgotten. A MOVE may name another one each time."""


def publish_internally(
    broker: Broker,
    destination: ExchangeTarget | QueueTarget,
    data: bytes,
    *,
    connection: Connection | None = None,
    keep: bool = False,
) -> AmqpError | None:
    """Put one encoded message into the queues that `destination` reaches; None, or why it is in none of them.

    `connection`: on whose behalf, for no-local. `keep`: log it where messages are logged, though it says not durable.
    """
    try:
        head = message_head.read_head(data)
        publish.prepare(broker, destination, 1)
        route = publish.route_message(broker, destination, data, head)
    except DecodeError as error:
        return unreadable(error)
    if isinstance(route, AmqpError):
        return route
    route = store.admitted_route(broker, route, data, head, connection)
    if not route.queues:
        return amqp_error(Refuse(Reason.ADDRESS_NOT_FOUND, "No queue takes the message; bind one."))
    if not all(broker.log.takes_route_set(each) for each in (route.logged_set, route.kept_set) if each):
        description = (
            "The transaction goes to so many different sets of queues that the log can't take this one with it."
        )
        return amqp_error(Refuse(Reason.LIMIT_EXCEEDED, description))
    if isinstance(destination, ExchangeTarget):
        destination.exchange.received_bytes += len(data)
    store.put(broker, route, (message_head.forwarded(data, head),), keep=keep)
    return None


def put_into(broker: Broker, queue: Queue, data: bytes, *, keep: bool) -> AmqpError | None:
    """Put one encoded message into exactly this queue, past routing and filters; None, or why it does not take it."""
    route = broker.routes.route_of((queue,))
    if route.logged_set and not broker.log.accepts_publishing():
        return broker.storage_refusal()
    if queue.policy.overflow is Overflow.REJECT and queue_limits.refuses(broker, queue, len(data)):
        return amqp_error(Refuse(Reason.LIMIT_EXCEEDED, f"The queue {queue.name!r} is full and rejects."))
    store.put(broker, route, (message_head.forwarded(data, message_head.read_head(data)),), keep=keep)
    return None


def destination_of(broker: Broker, address: str) -> ExchangeTarget | QueueTarget | Refuse:
    """Where a policy's address leads now."""
    found = decide_destination(address, broker.topology)
    match found:
        case FoundDestination():
            targets = broker.routes.targets
            target = _target(broker, found.address, targets.get(address))
            if address not in targets and len(targets) >= MOST_TARGETS:
                targets.clear()
            targets[address] = target
            return target
        case MakeQueue() | MissingDestination():
            return Refuse(Reason.ADDRESS_NOT_FOUND, f"There is no {address!r}; declare it.")
        case Refuse():
            return found
        case _:
            assert_never(found)


def _target(
    broker: Broker, address: ExchangeAddress | QueueAddress, known: ExchangeTarget | QueueTarget | None
) -> ExchangeTarget | QueueTarget:
    """The target of an address, `known` if it still is that one: it knows its routes."""
    if isinstance(address, QueueAddress):
        node = broker.topology.queues[address.queue]
        return known if isinstance(known, QueueTarget) and known.node is node else QueueTarget(node)
    exchange = broker.topology.exchanges[address.exchange]
    if isinstance(known, ExchangeTarget) and known.exchange is exchange:
        return known
    return broker.routes.target_of(exchange, address.key)
