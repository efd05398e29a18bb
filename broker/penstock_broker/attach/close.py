"""Ends links, subscriptions, queues and exchanges on the broker's own account; the clients that used them get an error.

Whatever the reason, a link ends through `remove_link`, which clears every reference to it: cycles are not collected in
the broker process. Source: docs/decisions/008-null-source.md, docs/decisions/009-closing-detach.md,
docs/decisions/032-delivery-attempts.md (a lost link counts an attempt for its oldest unsettled delivery only).
"""

from __future__ import annotations

from functools import partial

from penstock_amqp.endpoint.events import AmqpError, Held
from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_broker.access.connection import Connection
from penstock_broker.errors import amqp_error
from penstock_broker.messages import delivery_returns, settle
from penstock_broker.queue.consumer import ReceivingLink, SendingLink
from penstock_broker.state.broker import Broker
from penstock_broker.state.leaving_links import LeavingLink
from penstock_broker.state.links import Browser, Consumer, Producer, SubscriptionLookup
from penstock_broker.state.open_transactions import Coordinator
from penstock_broker.state.routes import ExchangeTarget, QueueTarget
from penstock_broker.topology.records import Exchange, PointToPointQueue, Subscription
from penstock_broker.transactions import commit, lost_messages, rollback
from penstock_core.identity import Identity
from penstock_core.reason import Reason, Refuse
from penstock_core.subscription_lifetime import has_ended

__all__ = [
    "close_link",
    "close_lookup",
    "close_producers",
    "end_exchange",
    "end_if_over",
    "end_queue",
    "end_subscription",
    "held_by",
    "remove_link",
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
    """End a subscription with its backlog; its links are closed, with `error` if it is given."""
    error = error or amqp_error(Refuse(Reason.SUBSCRIPTION_ENDED, f"The {subscription.identity} was ended."))
    _close_receivers(broker, list(subscription.queue.links.consumers), error)
    _close_receivers(broker, list(subscription.queue.links.browsers), error)
    broker.topology.end(subscription)
    for number in subscription.users.connections:
        connection = broker.clients.connections.get(number)
        if connection is not None:  # it may live on for weeks
            connection.subscriptions.discard(subscription.identity)
    broker.routes.forget()


def end_queue(broker: Broker, node: PointToPointQueue, reason: Refuse) -> None:
    """End a queue with its messages; links that use it are closed with the reason."""
    error = amqp_error(reason)
    _close_receivers(broker, list(node.queue.links.consumers), error)
    _close_receivers(broker, list(node.queue.links.browsers), error)
    close_producers(broker, node, error)
    broker.topology.delete_queue(node.name)


def end_exchange(broker: Broker, exchange: Exchange, reason: Refuse) -> None:
    """End an exchange and the subscriptions bound to it; links that use them are closed with the reason."""
    error = amqp_error(reason)
    bound = [broker.topology.by_incarnation[queue.incarnation] for queue in exchange.router.handles]
    for subscription in bound:
        assert isinstance(subscription, Subscription), "only subscriptions are bound"
        end_subscription(broker, subscription, error)
    close_producers(broker, exchange, error)
    broker.topology.delete_exchange(exchange.name)
    broker.routes.forget()


def close_producers(broker: Broker, node: Exchange | PointToPointQueue, error: AmqpError) -> None:
    """Close the links that send to a node which ends; else their messages would be lost without notice."""
    for producer in list(node.producers):
        close_link(broker, producer.connection, producer.link, error)


def _close_receivers(broker: Broker, receivers: list[ReceivingLink], error: AmqpError) -> None:
    """Close the links that receive from a queue which ends. No client has failed, so no delivery has: else the oldest
    message that they hold might become a dead letter while the others end with their queue."""
    for each in receivers:
        close_link(broker, each.connection, each.link, error, orderly=True)


def close_lookup(lookup: SubscriptionLookup, error: AmqpError) -> None:
    """Close a link with a null source; its subscription stays as it is."""
    lookup.link.context = None
    lookup.connection.endpoint.detach(lookup.link, closed=True, error=error)


def close_link(
    broker: Broker, connection: Connection, link: InLink | OutLink, error: AmqpError, *, orderly: bool = False
) -> None:
    """Close a link of any kind. `orderly`: see `remove_link`."""
    try:
        if isinstance(link.context, SendingLink):
            lost_messages.producer_closing(link.context, error)
        remove_link(broker, link, held_by(connection, link), orderly=orderly)
        delivery_returns.when_back((link,), partial(_detach, broker, connection, link, error))
    except Exception:
        broker.fail_connection(connection)  # it may be another than the one that is served


def _detach(broker: Broker, connection: Connection, link: InLink | OutLink, error: AmqpError) -> None:
    if link.is_open:
        connection.endpoint.detach(link, closed=True, error=error)
        broker.work.touch(connection)


def held_by(connection: Connection, link: InLink | OutLink) -> list[Held] | None:
    """The deliveries with which a link ends, for `remove_link`; None if they can't be looked for in one turn."""
    if not isinstance(link, OutLink):
        return []
    if delivery_returns.holds_many(connection) and connection.endpoint.unsettled.count_on(link):
        return None
    return connection.endpoint.unsettled.held_by(link)


def remove_link(broker: Broker, link: InLink | OutLink, held: list[Held] | None, *, orderly: bool = False) -> None:
    """Clear every reference to a link. Its deliveries `held` go back to their queue; None: they do in the next turns,
    and `delivery_returns.when_back` says when.

    `orderly`: the client ended the link itself, or the queue ends, so nothing was lost and no delivery attempt counts.
    """
    context = link.context
    match context:
        case Consumer():
            queue = context.queue
            context.link.ended = queue  # `delivery_returns.give_back_late`
            reserves = queue.leave(context, broker.clock.now_us, delivery_returns.AT_ONCE)
            if queue.links.consumers:
                broker.work.schedule(queue)  # what was for this link alone may be for another now
            if broker.clients.live_links.get(context.key) is context:
                del broker.clients.live_links[context.key]
            counts = not orderly and not broker.is_stopping
            if held is None:
                commit.withdraw_settled(context)
            else:
                settle.lost(broker, queue, commit.separate_settled(context, held), counts=counts)
            context.after_reply = []
            if held is None or reserves:
                withdraws = held is None
                delivery_returns.begin(broker, context, context.link, queue, counts=counts, withdraws=withdraws,
                                       reserves=reserves)  # fmt: skip
                return
        case Browser():
            context.queue.links.browsers.remove(context)
            broker.topology.disposal.add(context.take_pending())
            context.is_active = False
            if held is None:
                delivery_returns.begin(
                    broker, context, context.link, None, counts=False, withdraws=True, reserves=False
                )
                return
        case LeavingLink():
            return  # it has ended before
        case Producer():
            lost_messages.producer_leaving(context)
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
            rollback.roll_back_coordinator(broker, context)
        case SubscriptionLookup():
            context.is_active = False
            context.after_reply = []
        case _:
            broker.management.link_removed(context)
    link.context = None  # last: if a step raises an exception, `failed_connection` finds what the link was for
