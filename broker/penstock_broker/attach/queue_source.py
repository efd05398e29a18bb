"""Answers attaches whose source is a queue: links that take its messages, and browsers.

A selector holds at dispatch: what it does not select stays for others. A browser gets copies of what a consumer could
take when it attached: neither what is with consumers nor what waits for its time. A refusal changes nothing. Source:
design, section 3 ("Addresses", decision 11); JMS 2.0, 3.8.1 and 6.1.7.
"""

from __future__ import annotations

from typing import assert_never

from penstock_amqp.endpoint.links import OutLink
from penstock_amqp.frames.performatives import Attach, Source
from penstock_amqp.types.values import Symbol
from penstock_broker.access.connection import Connection
from penstock_broker.attach import detach, temporary
from penstock_broker.attach.reply import OUTCOMES, activate, add_consumer, live_link, request_of
from penstock_broker.attach.request import distribution_mode, filter_to_wire, selector_of
from penstock_broker.settings.settings import Role
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Browser
from penstock_core import address, queue_links
from penstock_core.binding import Filter
from penstock_core.existing_subscription import QueueLink
from penstock_core.link_stealing import Steal, decide_steal
from penstock_core.permissions import Action, TargetKind
from penstock_core.reason import Reason, Refuse
from penstock_core.selector import Selector
from penstock_core.terms import DistributionMode

__all__ = ["consume"]


def consume(
    broker: Broker,
    connection: Connection,
    link: OutLink,
    attach: Attach,
    parsed: address.QueueAddress | address.SubscriptionQueue,
) -> Refuse | None:
    """Answer an attach whose source is a queue, or say why not."""
    source = attach.source
    assert source is not None
    selector = selector_of(source)
    if isinstance(selector, Refuse):
        return selector
    may_manage = _may_manage(broker, connection, parsed)
    decision = queue_links.decide_queue_attach(parsed, distribution_mode(source), may_manage=may_manage)
    match decision:
        case Refuse():
            return decision
        case queue_links.Browse():
            return _browse(broker, connection, link, attach, parsed, selector)
        case queue_links.Consume():
            node = broker.topology.queues[decision.queue]
            refused = temporary.check(node, connection)
            refused = refused or broker.permissions.check_node(connection, Action.CONSUME, node)
            if refused is not None:
                return refused
        case _:
            assert_never(decision)
    request = request_of(connection, attach, None)
    kind = QueueLink("" if source.dynamic else decision.queue)
    stealing = decide_steal(kind, live_link(broker.clients.live_links.get(request.link)), connection.user, may_manage)
    if isinstance(stealing, Refuse):
        return stealing
    if isinstance(stealing, Steal):
        detach.steal(broker, broker.clients.live_links[request.link], connection)
    consumer = add_consumer(broker, connection, link, attach, request, node.queue, None)
    consumer.kind = kind
    if selector is not None:
        node.queue.backlog.select(consumer, selector)
    told = _queue_source(source, DistributionMode.MOVE, selector)
    broker.sync.when_durable(connection, lambda: activate(broker, consumer, attach, told, ()))
    return None


def _may_manage(
    broker: Broker, connection: Connection, parsed: address.QueueAddress | address.SubscriptionQueue
) -> bool:
    if isinstance(parsed, address.SubscriptionQueue):
        return broker.permissions.may_use_others(connection, parsed.identity)
    return broker.permissions.may_manage(connection, TargetKind.QUEUE, parsed.queue)


def _browse(
    broker: Broker,
    connection: Connection,
    link: OutLink,
    attach: Attach,
    parsed: address.QueueAddress | address.SubscriptionQueue,
    selector: Selector | None,
) -> Refuse | None:
    source = attach.source
    assert source is not None
    if isinstance(parsed, address.QueueAddress):
        node = broker.topology.queues[parsed.queue]
        refused = None if connection.port.role is Role.MANAGEMENT else temporary.check(node, connection)
        refused = refused or broker.permissions.check_node(connection, Action.CONSUME, node)
        if refused is not None:
            return refused
        queue = node.queue
    else:
        subscription = broker.topology.subscriptions.get(parsed.identity)
        if subscription is None:
            return Refuse(Reason.SUBSCRIPTION_NOT_FOUND, f"There is no {parsed.identity}; check the name.")
        queue = subscription.queue
    detach.steal_within_session(broker, connection, link)
    browser = Browser(connection, link, queue, selector)
    link.context = browser
    queue.links.browsers.append(browser)
    activate(broker, browser, attach, _queue_source(source, DistributionMode.COPY, selector), ())
    return None


def _queue_source(asked: Source, mode: DistributionMode, selector: Selector | None) -> Source:
    return Source(
        address=asked.address,
        durable=0,
        expiry_policy=asked.expiry_policy,
        dynamic=asked.dynamic,
        dynamic_node_properties=asked.dynamic_node_properties if asked.dynamic else None,
        distribution_mode=Symbol(mode.value),
        filter=filter_to_wire(Filter(selector.text if selector is not None else None), asked),
        outcomes=OUTCOMES,
        capabilities=(Symbol("temporary-queue" if asked.dynamic else "queue"),),
    )
