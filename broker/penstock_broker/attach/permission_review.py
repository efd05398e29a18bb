"""Closes links whose user may no longer do what they do, when other permissions hold than those they attached under.

Source: docs/security.md.
"""

from __future__ import annotations

from penstock_broker.access.connection import Connection
from penstock_broker.attach import close
from penstock_broker.errors import amqp_error
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Browser, Consumer, Producer
from penstock_broker.state.routes import ExchangeTarget, QueueTarget
from penstock_broker.topology.records import PointToPointQueue, Subscription
from penstock_core import permissions
from penstock_core.permissions import Action, TargetKind, needs_to_subscribe
from penstock_core.reason import Refuse

__all__ = ["check_links", "watch"]

WATCH_MS = 1000
"""How often the file of permissions is looked at."""


def watch(broker: Broker) -> None:
    """Look at the file of permissions from now on; do what a change of it asks for."""
    broker.clock.after(WATCH_MS, lambda: watch(broker))
    if broker.permissions.reload():
        check_links(broker)


def check_links(broker: Broker) -> None:
    """Close what is not allowed any more. Sessions and connections stay: they ask for nothing by themselves."""
    for connection in list(broker.clients.connections.values()):
        for link in connection.endpoint.all_links():
            context = link.context
            if isinstance(context, Consumer):
                refused = _check_source(broker, connection, context.queue, Action.CONSUME)
                if refused is not None:
                    close.close_consumer(broker, context, amqp_error(refused))
            elif isinstance(context, Browser):
                refused = _check_source(broker, connection, context.queue, Action.MANAGE)
                if refused is not None:
                    close.leave(broker, context.link, [])
                    connection.endpoint.detach(context.link, closed=True, error=amqp_error(refused))
                    broker.work.touch(connection)
            elif isinstance(context, Producer):
                refused = _check_target(broker, context)
                if refused is not None:
                    close.close_producer(broker, context, amqp_error(refused))


def _check_source(broker: Broker, connection: Connection, queue: Queue, of_subscription: Action) -> Refuse | None:
    permitting = broker.permissions
    there = broker.topology.by_incarnation.get(queue.incarnation)
    match there:
        case Subscription() if of_subscription is Action.MANAGE:
            return permitting.check(connection, Action.MANAGE, TargetKind.SUBSCRIPTION, there.identity.name)
        case Subscription():
            existing = there.existing()
            others = permitting.may_use_others(connection, there.identity)
            refused = permissions.check_owner(existing, connection.user, others)
            if refused is not None:
                return refused
            exchange = broker.topology.exchanges.get(there.binding.exchange)
            if exchange is not None and exchange.temporary is not None:
                return None
            needs = needs_to_subscribe(there.identity, existing, there.binding.exchange)
            return permitting.check_all(connection, needs)
        case PointToPointQueue():
            return permitting.check_node(connection, Action.CONSUME, there)
        case _:
            return None


def _check_target(broker: Broker, producer: Producer) -> Refuse | None:
    match producer.destination:
        case ExchangeTarget(exchange=node) | QueueTarget(node=node):
            return broker.permissions.check_node(producer.connection, Action.PUBLISH, node)
        case _:
            return None  # a relay is asked for each message, `$management` for each request
