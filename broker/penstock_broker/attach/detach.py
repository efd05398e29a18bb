"""Links and sessions that end: deliveries go back to their queues, lifetimes are checked, and the rules decide what a
closing detach does.

Source: docs/decisions/008-null-source.md, docs/decisions/009-closing-detach.md,
docs/decisions/014-managed-subscriptions.md.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import assert_never

from penstock_amqp.endpoint.events import AmqpError, Detached, SessionEnded
from penstock_amqp.endpoint.links import InLink, OutLink, Session
from penstock_broker.access.connection import Connection
from penstock_broker.attach import close, temporary_nodes
from penstock_broker.attach.connection_end import held_by_link, held_of
from penstock_broker.attach.session_keys import session_of
from penstock_broker.errors import amqp_error
from penstock_broker.messages import delivery_returns
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Consumer, Producer, SubscriptionLookup
from penstock_broker.state.open_transactions import Coordinator
from penstock_broker.topology.records import DetachedLink, Subscription
from penstock_broker.transactions import coordinator
from penstock_core.detach import DetachOnly, DetachRequest, EndSubscription, RefuseClose, SourceKind, decide_detach
from penstock_core.existing_subscription import ExistingSubscription
from penstock_core.identity import Identity
from penstock_core.subscription_lifetime import SessionKey
from penstock_core.terms import Durability

__all__ = ["detached", "session_ended"]

logger = logging.getLogger(__name__)


def detached(broker: Broker, connection: Connection, event: Detached) -> None:
    """The peer detached or closed a link: answer it."""
    link = event.link
    context = link.context
    logger.debug("Detach of link %r on connection %d, closed=%s", link.name, connection.number, event.closed)
    if isinstance(context, Consumer | Producer | SubscriptionLookup) and not context.is_active:
        # Its attach waits for the log; the answers are sent in order.
        context.after_reply.append(lambda: detached(broker, connection, event))
        return
    if isinstance(context, Consumer) and context.identity is not None:
        _detach_consumer(broker, context, context.identity, event.closed)
    elif isinstance(context, SubscriptionLookup):
        _detach_lookup(broker, context, event.closed)
    else:
        ended = _detached_link(connection, link)
        close.remove_link(broker, link, close.held_by(connection, link), orderly=True)
        _end_node(broker, context, ended, event.closed)
        reply = partial(_reply, broker, connection, link, None, event.closed)
        if isinstance(context, Coordinator):
            coordinator.when_discharged(connection, reply)
        else:
            delivery_returns.when_back((link,), reply)
    broker.work.touch(connection)


def _detach_consumer(broker: Broker, consumer: Consumer, identity: Identity, closed: bool) -> None:
    connection, link = consumer.connection, consumer.link
    request = DetachRequest(
        closed=closed,
        source=SourceKind.TOPIC,
        durability=consumer.durability,
        user=connection.login.user,
        may_use_others=broker.permissions.may_use_others(connection, identity),
    )
    others = len(consumer.queue.links.consumers) - 1
    decision = decide_detach(request, _existing(broker, consumer), others)
    close.remove_link(broker, link, close.held_by(connection, link), orderly=True)
    _apply(broker, connection, link, identity, decision, closed)
    _end_node(broker, consumer, _detached_link(connection, link), closed)


def _detached_link(connection: Connection, link: InLink | OutLink) -> DetachedLink:
    return DetachedLink(link.name, isinstance(link, OutLink), session_of(connection, link))


def _end_node(broker: Broker, context: object, link: DetachedLink, closed: bool) -> None:
    if closed:
        temporary_nodes.links_ended(broker, (context,))
    else:
        temporary_nodes.link_detached(broker, context, link)


def _detach_lookup(broker: Broker, lookup: SubscriptionLookup, closed: bool) -> None:
    connection, identity = lookup.connection, lookup.identity
    assert identity is not None, "what was not found is refused"
    subscription = broker.topology.subscriptions.get(identity)
    request = DetachRequest(
        closed=closed,
        source=SourceKind.LOOKUP,
        durability=Durability.NONE,
        user=connection.login.user,
        may_use_others=broker.permissions.may_use_others(connection, identity),
    )
    consumers = len(subscription.queue.links.consumers) if subscription is not None else 0
    existing = subscription.existing() if subscription is not None else None
    decision = decide_detach(request, existing, consumers)
    close.remove_link(broker, lookup.link, [])
    _apply(broker, connection, lookup.link, identity, decision, closed)


def _existing(broker: Broker, consumer: Consumer) -> ExistingSubscription | None:
    """The subscription that the link consumes from; None if it has ended, or was rebound."""
    record = broker.topology.by_incarnation.get(consumer.queue.incarnation)
    return record.existing() if isinstance(record, Subscription) else None


def _apply(
    broker: Broker,
    connection: Connection,
    link: OutLink,
    identity: Identity,
    decision: DetachOnly | EndSubscription | RefuseClose,
    closed: bool,
) -> None:
    """Apply a detach decision, and answer once what it wrote is synced."""
    error: AmqpError | None = None
    match decision:
        case DetachOnly():
            close.end_if_over(broker, identity)
        case EndSubscription():
            subscription = broker.topology.subscriptions.get(identity)
            if subscription is not None and subscription.is_logged and broker.log.failed is not None:
                error = broker.storage_refusal()
            elif subscription is not None:
                close.end_subscription(broker, subscription)
        case RefuseClose():
            error = amqp_error(decision.refuse)
        case _:
            assert_never(decision)
    broker.sync.when_durable(
        connection, lambda: delivery_returns.when_back((link,), lambda: _reply(broker, connection, link, error, closed))
    )


def _reply(
    broker: Broker, connection: Connection, link: InLink | OutLink, error: AmqpError | None, closed: bool
) -> None:
    if link.is_open:
        connection.endpoint.detach(link, closed=closed, error=error)
        broker.work.touch(connection)


def session_ended(broker: Broker, connection: Connection, event: SessionEnded) -> None:
    """The peer ended a session: its links end with it."""
    contexts = [(link.context, _detached_link(connection, link)) for link in event.session.links]
    for link in event.session.links:
        if isinstance(link.context, Coordinator):  # first: what its transactions acquired is not held any more then
            close.remove_link(broker, link, [])
    held = held_by_link(connection)
    for link in event.session.links:
        if link.context is not None:
            close.remove_link(broker, link, held_of(held, link), orderly=True)
    delivery_returns.when_back(event.session.links, lambda: _end_session(broker, connection, event.session))
    number = event.session.context
    if isinstance(number, int):  # else it never had a link
        session = SessionKey(connection.number, number)
        for identity in list(connection.subscriptions):
            subscription = broker.topology.subscriptions.get(identity)
            if subscription is not None:
                subscription.users = subscription.users.session_ended(session)
                close.end_if_over(broker, identity)
        temporary_nodes.session_ended(broker, connection, session, contexts)
    broker.work.touch(connection)


def _end_session(broker: Broker, connection: Connection, session: Session) -> None:
    connection.endpoint.end(session)
    broker.work.touch(connection)
