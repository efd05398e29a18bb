"""Links, sessions and connections that the peer ends: deliveries come back, lifetimes are looked at, the rules decide
about closes.

Source: design, section 3, decisions 5, 8, 9 and 14.
"""

from __future__ import annotations

from typing import assert_never

from penstock_amqp.endpoint.events import AmqpError, Detached, Ended, Held
from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_broker.access.connection import Connection
from penstock_broker.attach import close, temporary
from penstock_broker.errors import amqp_error
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Browser, Consumer, Producer, SubscriptionLookup
from penstock_broker.topology.records import Subscription
from penstock_broker.transactions import commit
from penstock_core.detach import DetachOnly, DetachRequest, EndSubscription, RefuseClose, SourceKind, decide_detach
from penstock_core.existing_subscription import ExistingSubscription
from penstock_core.identity import Identity
from penstock_core.link_stealing import STOLEN
from penstock_core.subscription_lifetime import SessionKey
from penstock_core.terms import Durability

__all__ = ["connection_gone", "detached", "session_ended", "steal", "steal_within_session"]


def detached(broker: Broker, connection: Connection, event: Detached) -> None:
    """The peer detached or closed a link: answer it."""
    link = event.link
    context = link.context
    if isinstance(context, Consumer | Producer | SubscriptionLookup) and not context.is_active:
        # Its attach waits for the log; the answers leave in order.
        context.after_reply.append(lambda: detached(broker, connection, event))
        return
    if isinstance(context, Consumer) and context.identity is not None:
        _detach_consumer(broker, connection, context, event.closed)
    elif isinstance(context, SubscriptionLookup):
        _detach_finder(broker, connection, context, event.closed)
    else:
        held = connection.endpoint.held_by(link) if isinstance(link, OutLink) else []
        close.leave(broker, link, held, orderly=True)
        temporary.left(broker, (context,))
        connection.endpoint.detach(link, closed=event.closed)
    broker.work.touch(connection)


def _detach_consumer(broker: Broker, connection: Connection, consumer: Consumer, closed: bool) -> None:
    identity = consumer.identity
    assert identity is not None
    request = DetachRequest(
        closed=closed,
        source=SourceKind.TOPIC,
        durability=consumer.durability,
        user=connection.user,
        may_use_others=broker.permissions.may_use_others(connection, identity),
    )
    others = len(consumer.queue.links.consumers) - 1
    decision = decide_detach(request, _still_there(broker, consumer), others)
    close.leave(broker, consumer.link, connection.endpoint.held_by(consumer.link), orderly=True)
    _finish(broker, connection, consumer.link, identity, decision, closed)
    temporary.left(broker, (consumer,))


def _detach_finder(broker: Broker, connection: Connection, finder: SubscriptionLookup, closed: bool) -> None:
    assert finder.identity is not None, "what was not found is refused"
    subscription = broker.topology.subscriptions.get(finder.identity)
    request = DetachRequest(
        closed=closed,
        source=SourceKind.LOOKUP,
        durability=Durability.NONE,
        user=connection.user,
        may_use_others=broker.permissions.may_use_others(connection, finder.identity),
    )
    consumers = len(subscription.queue.links.consumers) if subscription is not None else 0
    existing = subscription.existing() if subscription is not None else None
    decision = decide_detach(request, existing, consumers)
    close.leave(broker, finder.link, [])
    _finish(broker, connection, finder.link, finder.identity, decision, closed)


def _finish(
    broker: Broker,
    connection: Connection,
    link: OutLink,
    identity: Identity,
    decision: DetachOnly | EndSubscription | RefuseClose,
    closed: bool,
) -> None:
    """Apply a detach decision and answer, once whatever it wrote is synced."""
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
    broker.sync.when_durable(connection, lambda: _answer(broker, connection, link, error, closed))


def _answer(broker: Broker, connection: Connection, link: OutLink, error: AmqpError | None, closed: bool) -> None:
    if link.is_open:
        connection.endpoint.detach(link, closed=closed, error=error)
        broker.work.touch(connection)


def _still_there(broker: Broker, consumer: Consumer) -> ExistingSubscription | None:
    there = broker.topology.by_incarnation.get(consumer.queue.incarnation)
    return there.existing() if isinstance(there, Subscription) else None


def steal(broker: Broker, loser: Consumer, winner: Connection) -> None:
    """The same link was attached elsewhere, on `winner`: end this one."""
    connection, link = loser.connection, loser.link
    if winner is not connection:
        broker.clients.contests.record(
            winner.container_id, winner.number, now_ms=broker.clock.now_ms, now_us=broker.clock.now_us
        )
    close.leave(broker, link, connection.endpoint.held_by(link))
    connection.endpoint.detach(link, closed=True, error=amqp_error(STOLEN))
    broker.work.touch(connection)
    if loser.creates is not None:
        # Later: what the winner attaches to was decided already.
        broker.clock.after(0, lambda: temporary.left(broker, (loser,)))


def steal_within_session(broker: Broker, connection: Connection, link: InLink | OutLink) -> None:
    """End what brings or browses messages under the name of `link` on its session (AMQP 1.0 part 2, 2.6.1).

    On another session it stays: clients number their links per session, and there is nothing to take over. Links that
    consume are stolen by the rules of what they consume from.
    """
    for other in tuple(link.session.links):
        context = other.context
        is_rival = (
            other is not link and other.name == link.name and isinstance(other, InLink) is isinstance(link, InLink)
        )
        if is_rival and isinstance(context, Producer | Browser):
            close.close_link(broker, connection, other, amqp_error(STOLEN))
            temporary.left(broker, (context,))


def session_ended(broker: Broker, connection: Connection, event: Ended) -> None:
    """The peer ended a session; its links are gone with it."""
    by_link: dict[OutLink, list[Held]] = {}
    for held in connection.endpoint.all_held():
        if held[0].session is event.session:
            by_link.setdefault(held[0], []).append(held)
    contexts = [link.context for link in event.session.links]
    for link in event.session.links:
        close.leave(broker, link, by_link.get(link, []) if isinstance(link, OutLink) else [], orderly=True)
    connection.endpoint.end(event.session)
    number = event.session.context
    if isinstance(number, int):
        session = SessionKey(connection.number, number)
        for identity in list(connection.attached):
            subscription = broker.topology.subscriptions.get(identity)
            if subscription is not None:
                subscription.users = subscription.users.session_ended(session)
                close.end_if_over(broker, identity)
    temporary.left(broker, contexts)
    broker.work.touch(connection)


def connection_gone(broker: Broker, connection: Connection, *, orderly: bool = False) -> None:
    """The connection is closed (`orderly`: by its client) or lost: its links go, and what lived as long as it."""
    broker.clients.counts.leave(connection)
    commit.connection_gone(broker, connection)
    by_link: dict[OutLink, list[Held]] = {}
    for held in connection.endpoint.all_held():
        by_link.setdefault(held[0], []).append(held)
    for link in connection.endpoint.all_links():
        close.leave(broker, link, by_link.get(link, []) if isinstance(link, OutLink) else [], orderly=orderly)
    for identity in connection.attached:
        subscription = broker.topology.subscriptions.get(identity)
        if subscription is not None:
            subscription.users = subscription.users.connection_closed(connection.number)
            close.end_if_over(broker, identity)
    connection.attached.clear()
    temporary.connection_gone(broker, connection)
    temporary.left(broker, ())
    sharers = broker.clients.containers.get(connection.container_id)
    if sharers is not None and connection in sharers:
        sharers.remove(connection)
        if not sharers:
            del broker.clients.containers[connection.container_id]
