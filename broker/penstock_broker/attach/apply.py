"""Applies what was decided for an attach: the third of its four steps.

The order is fixed: a temporary node is made, the live link of the same name is stolen, the subscription is made, joined
or rebound, and then the link has its record. From here on the client's link is part of the broker's state, and the
reply may have to wait for the log. Source: docs/decisions/005-decide-then-steal.md.
"""

from __future__ import annotations

from typing import Final, assert_never

from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_broker.access.connection import Connection
from penstock_broker.attach import close, steal, temporary_nodes
from penstock_broker.attach.queue_source import BrowsePlan, ConsumePlan
from penstock_broker.attach.session_keys import session_of
from penstock_broker.attach.target import ProducePlan
from penstock_broker.attach.topic_source import LookUpPlan, SubscribePlan
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Browser, Consumer, Producer, SubscriptionLookup
from penstock_broker.state.routes import ExchangeTarget, QueueTarget
from penstock_broker.topology.records import Subscription
from penstock_broker.topology.store import Topology
from penstock_core.attach import Create, Join, Rebind

__all__ = ["add_browser", "add_lookup", "add_producer", "consume", "subscribe"]

ROOM_BYTES: Final = 1024 * 1024
"""More than the broker ever adds to a message: no message exceeds the limit of a link that allows this much more."""


def subscribe(broker: Broker, connection: Connection, link: OutLink, plan: SubscribePlan) -> Consumer:
    """Make, join or rebind a subscription; the link consumes from it."""
    if plan.new_node is not None:
        temporary_nodes.make(broker, connection, plan.new_node)
    stolen = steal.steal_consumer(broker, plan.key, connection) if plan.steals else None
    subscription = _apply(broker.topology, plan.decision, broker.clock.now_us)
    consumer = Consumer(
        connection,
        link,
        subscription.queue,
        identity=subscription.identity,
        kind=plan.kind,
        key=plan.key,
        durability=plan.request.durability,
    )
    _add_consumer(broker, consumer, plan)
    subscription.users = subscription.users.attached(session_of(connection, link))
    connection.subscriptions.add(subscription.identity)
    if stolen is not None and stolen.identity is not None:
        close.end_if_over(broker, stolen.identity)  # a not-shared volatile one lived as long as its link
    broker.routes.forget()
    return consumer


def consume(broker: Broker, connection: Connection, link: OutLink, plan: ConsumePlan) -> Consumer:
    """The link consumes from a queue."""
    if plan.new_node is not None:
        temporary_nodes.make(broker, connection, plan.new_node)
    if plan.steals:
        steal.steal_consumer(broker, plan.key, connection)
    queue = plan.node.queue
    consumer = Consumer(
        connection,
        link,
        queue,
        identity=None,
        kind=plan.kind,
        key=plan.key,
        durability=plan.request.durability,
    )
    _add_consumer(broker, consumer, plan)
    if plan.selector is not None:
        queue.backlog.select(consumer, plan.selector)
    return consumer


def add_browser(broker: Broker, connection: Connection, link: OutLink, plan: BrowsePlan) -> Browser:
    """The link gets copies of what waits in a queue now."""
    steal.steal_within_session(broker, connection, link)
    browser = Browser(connection, link, plan.queue, plan.selector, broker.log.next_number)
    link.context = browser
    plan.queue.links.browsers.append(browser)
    return browser


def add_lookup(connection: Connection, link: OutLink, plan: LookUpPlan) -> SubscriptionLookup:
    """The link looks a subscription up. It has its record even if nothing was found: the refusal may have to wait."""
    lookup = SubscriptionLookup(connection, link, plan.identity)
    link.context = lookup
    return lookup


def add_producer(broker: Broker, connection: Connection, link: InLink, plan: ProducePlan) -> Producer:
    """The link brings messages."""
    if plan.new_node is not None:
        temporary_nodes.make(broker, connection, plan.new_node)
    steal.steal_within_session(broker, connection, link)
    producer = Producer(connection, link, plan.destination, broker.settings.link_credit, broker.credit_hold)
    producer.can_reject = plan.request.can_reject
    producer.creates = plan.new_node.name if plan.new_node is not None else None
    link.context = producer
    match plan.destination:
        case ExchangeTarget(exchange=exchange):
            exchange.producers.add(producer)
        case QueueTarget(node=node):
            node.producers.add(producer)
        case _:
            pass
    return producer


def _apply(topology: Topology, decision: Create | Join | Rebind, now_us: int) -> Subscription:
    match decision:
        case Create():
            return topology.create(decision, now_us)
        case Join():
            subscription = topology.subscriptions[decision.existing.identity]
        case Rebind():
            subscription = topology.rebind(decision, now_us)
        case _:
            assert_never(decision)
    if decision.claims is not None:
        topology.claim(subscription, decision.claims)
    return subscription


def _add_consumer(broker: Broker, consumer: Consumer, plan: SubscribePlan | ConsumePlan) -> None:
    """Put a new consumer where the queue, the link and a later attach of its name find it."""
    link = consumer.link
    if link.max_bytes > broker.settings.largest_message_bytes + ROOM_BYTES:
        link.max_bytes = 0
    consumer.priority = plan.priority
    consumer.creates = plan.new_node.name if plan.new_node is not None else None
    link.context = consumer
    consumer.queue.join(consumer)
    broker.clients.live_links[consumer.key] = consumer
