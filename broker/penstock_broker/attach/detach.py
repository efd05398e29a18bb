"""Links, sessions and connections that end: deliveries go back to their queues, lifetimes are checked, and the rules
decide what a closing detach does.

Source: docs/decisions/008-null-source.md, docs/decisions/009-closing-detach.md,
docs/decisions/014-managed-subscriptions.md.
"""

from __future__ import annotations

import logging
from typing import assert_never

from penstock_amqp.endpoint.events import AmqpError, Detached, Held, SessionEnded
from penstock_amqp.endpoint.links import InLink, OutLink, Session
from penstock_broker.access.connection import Connection, Phase
from penstock_broker.attach import close, severance, temporary
from penstock_broker.errors import amqp_error
from penstock_broker.messages import departures
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Consumer, Producer, SubscriptionLookup
from penstock_broker.topology.records import Subscription
from penstock_broker.transactions import commit
from penstock_core.detach import DetachOnly, DetachRequest, EndSubscription, RefuseClose, SourceKind, decide_detach
from penstock_core.existing_subscription import ExistingSubscription
from penstock_core.identity import Identity
from penstock_core.subscription_lifetime import SessionKey
from penstock_core.terms import Durability

__all__ = ["close_connection", "connection_ended", "detached", "session_ended"]

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
        close.remove_link(broker, link, close.held_by(connection, link), orderly=True)
        temporary.links_ended(broker, (context,))
        departures.when_back((link,), lambda: _reply(broker, connection, link, None, event.closed))
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
    temporary.links_ended(broker, (consumer,))


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
        connection, lambda: departures.when_back((link,), lambda: _reply(broker, connection, link, error, closed))
    )


def _reply(
    broker: Broker, connection: Connection, link: InLink | OutLink, error: AmqpError | None, closed: bool
) -> None:
    if link.is_open:
        connection.endpoint.detach(link, closed=closed, error=error)
        broker.work.touch(connection)


def session_ended(broker: Broker, connection: Connection, event: SessionEnded) -> None:
    """The peer ended a session: its links end with it."""
    held = _held_by_link(connection)
    contexts = [link.context for link in event.session.links]
    for link in event.session.links:
        close.remove_link(broker, link, _of(held, link), orderly=True)
    departures.when_back(event.session.links, lambda: _end_session(broker, connection, event.session))
    number = event.session.context
    if isinstance(number, int):
        session = SessionKey(connection.number, number)
        for identity in list(connection.subscriptions):
            subscription = broker.topology.subscriptions.get(identity)
            if subscription is not None:
                subscription.users = subscription.users.session_ended(session)
                close.end_if_over(broker, identity)
    temporary.links_ended(broker, contexts)
    broker.work.touch(connection)


def _end_session(broker: Broker, connection: Connection, session: Session) -> None:
    connection.endpoint.end(session)
    broker.work.touch(connection)


def connection_ended(broker: Broker, connection: Connection, *, orderly: bool = False) -> None:
    """The connection is closed (`orderly`: by its client) or lost: its links end, and what lives no longer than it.

    Raises nothing: if a step fails, the connection is taken apart without looking at what the steps have done.
    """
    try:
        _end(broker, connection, orderly=orderly)
    except Exception:
        logger.exception(
            "Connection %d of %s did not end in order; it is taken apart", connection.number, connection.transport.peer
        )
        severance.sever(broker, connection)


def _end(broker: Broker, connection: Connection, *, orderly: bool) -> None:
    logger.debug(
        "Connection %d of %s has ended, orderly=%s: %d links",
        connection.number, connection.transport.peer, orderly, len(connection.endpoint.all_links()),
    )  # fmt: skip
    broker.clients.counts.leave(connection)
    commit.roll_back_connection(broker, connection)
    held = _held_by_link(connection)
    for link in connection.endpoint.all_links():
        close.remove_link(broker, link, _of(held, link), orderly=orderly)
    for identity in connection.subscriptions:
        subscription = broker.topology.subscriptions.get(identity)
        if subscription is not None:
            subscription.users = subscription.users.connection_closed(connection.number)
            close.end_if_over(broker, identity)
    connection.subscriptions.clear()
    temporary.connection_ended(broker, connection)
    temporary.links_ended(broker, ())
    same_container = broker.clients.containers.get(connection.client.container_id)
    if same_container is not None and connection in same_container:
        same_container.remove(connection)
        if not same_container:
            del broker.clients.containers[connection.client.container_id]


def _of(held: dict[OutLink, list[Held]] | None, link: InLink | OutLink) -> list[Held] | None:
    if not isinstance(link, OutLink):
        return []
    return None if held is None else held.get(link, [])


def _held_by_link(connection: Connection) -> dict[OutLink, list[Held]] | None:
    """The deliveries that the client has not settled; None if they are too many for one turn."""
    if departures.holds_many(connection):
        return None
    by_link: dict[OutLink, list[Held]] = {}
    for held in connection.endpoint.all_held():
        by_link.setdefault(held[0], []).append(held)
    return by_link


def close_connection(broker: Broker, connection: Connection, error: AmqpError) -> None:
    """Close a connection on the broker's own account, with the reason; the socket is closed once that is sent."""
    if connection.phase is Phase.GONE:
        return
    connection_ended(broker, connection)
    phase, connection.phase = connection.phase, Phase.CLOSING
    try:
        if phase is Phase.OPENING:
            connection.endpoint.refuse_open(broker.instance.container_id, error)
        elif phase is Phase.OPEN:
            connection.endpoint.close(error)
    except Exception:
        logger.exception("Connection %d can't be told why it is closed: %s", connection.number, error.description)
    broker.work.touch(connection)
