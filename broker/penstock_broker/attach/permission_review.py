"""Closes links whose user is no longer allowed what the link does, after the permissions have changed.

Those of the broker change with its file, those that a declaration gives when it is declared anew. Source:
docs/reference/security.md, docs/decisions/110-rights-given-by-resources.md.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from penstock_broker.access.connection import Connection, Phase
from penstock_broker.access.permissions import PermissionCheck
from penstock_broker.attach import close
from penstock_broker.errors import amqp_error
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Browser, Consumer, Producer
from penstock_broker.state.routes import ExchangeTarget, QueueTarget
from penstock_broker.topology.records import PointToPointQueue, Subscription
from penstock_core.permissions import Action, TargetKind, check_owner, needs_to_subscribe
from penstock_core.reason import Refuse

__all__ = ["check_links", "check_links_soon", "watch"]

WATCH_MS = 1000
"""How often the file of permissions is checked for a change."""


def watch(broker: Broker) -> None:
    """Check the file of permissions from now on, and close links when it has changed."""
    broker.clock.after(WATCH_MS, lambda: watch(broker))
    if broker.permissions.reload():
        check_links(broker)


def check_links(broker: Broker) -> None:
    """Close the links that are not allowed any more. Sessions and connections stay: they need no permission.

    Of very many connections the first are looked at now, and the others in the next turns.
    """
    _check_some(broker, deque(broker.clients.connections.values()))


def check_links_soon(broker: Broker) -> None:
    """The same after this turn, once for all declarations of the turn that took a right away."""
    if broker.permissions.is_review_due:
        return
    broker.permissions.is_review_due = True
    broker.clock.after(0, lambda: _review(broker))


def _review(broker: Broker) -> None:
    broker.permissions.is_review_due = False
    check_links(broker)


def _check_some(broker: Broker, left: deque[Connection]) -> None:
    is_over = broker.clock.stint()
    while left:
        _check_links_of(broker, left.popleft())
        if is_over():
            break
    if left:
        broker.clock.after(0, partial(_check_some, broker, left))


def _check_links_of(broker: Broker, connection: Connection) -> None:
    if connection.phase is Phase.GONE:
        return
    for link in connection.endpoint.all_links():
        context = link.context
        refused: Refuse | None = None
        if isinstance(context, Consumer):
            refused = _check_source(broker, connection, context.queue, Action.CONSUME)
        elif isinstance(context, Browser):
            refused = _check_source(broker, connection, context.queue, Action.MANAGE)
        elif isinstance(context, Producer):
            refused = _check_target(broker.permissions, context)
        if refused is not None:
            close.close_link(broker, connection, link, amqp_error(refused))


def _check_source(broker: Broker, connection: Connection, queue: Queue, of_subscription: Action) -> Refuse | None:
    """None if the link may go on with its queue. `of_subscription`: what it needs if that is a subscription's."""
    permissions = broker.permissions
    record = broker.topology.by_incarnation.get(queue.incarnation)
    match record:
        case Subscription() if of_subscription is Action.MANAGE:
            return permissions.check(connection, Action.MANAGE, TargetKind.SUBSCRIPTION, record.identity.name)
        case Subscription():
            existing = record.existing()
            others = permissions.may_use_others(connection, record.identity)
            refused = check_owner(existing, connection.login.user, others)
            if refused is not None:
                return refused
            exchange = broker.topology.exchanges.get(record.binding.exchange)
            if exchange is not None and exchange.temporary is not None:
                return None
            needs = needs_to_subscribe(record.identity, existing, record.binding.exchange)
            return permissions.check_all(connection, needs)
        case PointToPointQueue():
            return permissions.check_node(connection, Action.CONSUME, record)
        case _:
            return None


def _check_target(permissions: PermissionCheck, producer: Producer) -> Refuse | None:
    match producer.destination:
        case ExchangeTarget(exchange=node) | QueueTarget(node=node):
            return permissions.check_node(producer.connection, Action.PUBLISH, node)
        case _:
            return None  # a relay is checked for each message, `$management` for each request
