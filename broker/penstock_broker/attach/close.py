"""Ends links, subscriptions, queues and exchanges of our own accord; whoever used them is told.

Whatever the reason, a link ends through `leave`, which takes every reference apart. Source: design, section 3,
decisions 8 and 9; section 4 ("a lost link counts only for its oldest unsettled delivery").
"""

from __future__ import annotations

from collections import deque

from penstock_amqp.endpoint.events import AmqpError, Held
from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_broker.access.connection import Connection
from penstock_broker.errors import amqp_error
from penstock_broker.messages import settle
from penstock_broker.queue.consumer import ReceivingLink, SendingLink
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Browser, Consumer, Producer, SubscriptionLookup
from penstock_broker.state.open_transactions import Coordinator
from penstock_broker.state.routes import ExchangeTarget, QueueTarget
from penstock_broker.topology.records import Exchange, PointToPointQueue, Subscription
from penstock_broker.transactions import commit
from penstock_core.identity import Identity
from penstock_core.reason import Reason, Refuse
from penstock_core.subscription_lifetime import has_ended

__all__ = [
    "close_consumer",
    "close_finder",
    "close_link",
    "close_producer",
    "close_producers",
    "end_exchange",
    "end_if_over",
    "end_queue",
    "end_subscription",
    "leave",
]


def end_if_over(broker: Broker, identity: Identity) -> None:
    """End a subscription whose lifetime is over."""
    subscription = broker.topology.subscriptions.get(identity)
    if subscription is not None and has_ended(
        subscription.lifetime,
        len(subscription.queue.links.consumers),
        subscription.users,
        managed=subscription.managed is not None,
    ):
        end_subscription(broker, subscription)


def end_subscription(broker: Broker, subscription: Subscription, error: AmqpError | None = None) -> None:
    """The subscription goes with its backlog; links that still consume are told, by `error` if it is given."""
    for consumer in list(subscription.queue.links.consumers):
        told = Refuse(Reason.SUBSCRIPTION_ENDED, f"The {subscription.identity} was ended.")
        close_consumer(broker, consumer, error or amqp_error(told))
    broker.topology.end(subscription)
    broker.routes.forget()


def end_queue(broker: Broker, node: PointToPointQueue, told: Refuse) -> None:
    """A queue goes with its messages; links that use it are told why."""
    error = amqp_error(told)
    for consumer in list(node.queue.links.consumers):
        close_consumer(broker, consumer, error)
    for browser in list(node.queue.links.browsers):
        _close(broker, browser.connection, browser.link, [], error)
    close_producers(broker, node, error)
    broker.topology.delete_queue(node.name)


def end_exchange(broker: Broker, exchange: Exchange, told: Refuse) -> None:
    """An exchange goes, and the subscriptions bound to it; links that use them are told why."""
    error = amqp_error(told)
    bound = [broker.topology.by_incarnation[queue.incarnation] for queue in exchange.router.handles]
    for subscription in bound:
        assert isinstance(subscription, Subscription), "only subscriptions are bound"
        end_subscription(broker, subscription, error)
    close_producers(broker, exchange, error)
    broker.topology.delete_exchange(exchange.name)
    broker.routes.forget()


def close_consumer(broker: Broker, consumer: ReceivingLink, error: AmqpError) -> None:
    """Close a link of our own accord."""
    connection, link = consumer.connection, consumer.link
    _close(broker, connection, link, connection.endpoint.held_by(link), error)


def close_finder(connection: Connection, finder: SubscriptionLookup, error: AmqpError) -> None:
    """Close a link with a null source of our own accord; its subscription is not concerned."""
    finder.link.context = None
    connection.endpoint.detach(finder.link, closed=True, error=error)


def close_link(broker: Broker, connection: Connection, link: InLink | OutLink, error: AmqpError) -> None:
    """Close a link of any kind of our own accord."""
    if isinstance(link.context, SendingLink):
        close_producer(broker, link.context, error)
    else:
        _close(broker, connection, link, connection.endpoint.held_by(link) if isinstance(link, OutLink) else [], error)


def close_producers(broker: Broker, node: Exchange | PointToPointQueue, error: AmqpError) -> None:
    """What producers send to is gone: they are told, or they would send into nothing."""
    for producer in list(node.producers):
        close_producer(broker, producer, error)


def close_producer(broker: Broker, producer: SendingLink, error: AmqpError) -> None:
    """Close a link that sends to us of our own accord."""
    commit.producer_closes(producer, error)
    _close(broker, producer.connection, producer.link, [], error)


def _close(broker: Broker, connection: Connection, link: InLink | OutLink, held: list[Held], error: AmqpError) -> None:
    leave(broker, link, held)
    connection.endpoint.detach(link, closed=True, error=error)
    broker.work.touch(connection)


def leave(broker: Broker, link: InLink | OutLink, held: list[Held], *, orderly: bool = False) -> None:
    """Take a link out of everything that refers to it. `orderly`: its client said that it goes; nothing was lost."""
    context = link.context
    link.context = None
    match context:
        case Consumer():
            queue = context.queue
            queue.leave(context, broker.clock.now_us)
            if broker.clients.live_links.get(context.key) is context:
                del broker.clients.live_links[context.key]
            held = commit.keep_settled(context.connection, context, held)
            settle.lost(broker, queue, held, counts=not orderly and not broker.is_stopping)
            context.after_reply = []
        case Browser():
            context.queue.links.browsers.remove(context)
            broker.topology.disposal.add(context.pending)
            context.pending = deque()
            context.is_active = False
        case Producer():
            match context.destination:
                case ExchangeTarget(exchange=exchange):
                    exchange.producers.discard(context)
                case QueueTarget(node=node):
                    node.producers.discard(context)
                case _:
                    pass
            context.is_active = False
            context.after_reply = []
        case Coordinator():
            commit.coordinator_gone(broker, context)
        case SubscriptionLookup():
            context.is_active = False
            context.after_reply = []
        case _:
            broker.management.left(context)
