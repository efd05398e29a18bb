"""Decides attaches whose source is a queue: consumers, which take its messages, and browsers, which get copies.

A selector holds at dispatch: what it does not select stays for others. A browser gets copies of what a consumer could
take when it attached: neither messages in flight nor delayed ones. Changes nothing. Source:
docs/decisions/011-browsing.md, docs/decisions/018-addresses.md; JMS 2.0, 3.8.1 and 6.1.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from penstock_broker.access.connection import Connection
from penstock_broker.attach import steal, temporary_nodes
from penstock_broker.attach.node import QueueNode, SourceNode
from penstock_broker.attach.request import SourceRequest
from penstock_broker.queue.queue import Queue
from penstock_broker.settings.settings import Role
from penstock_broker.state.broker import Broker
from penstock_broker.topology.records import PointToPointQueue
from penstock_core import address, queue_links
from penstock_core.existing_subscription import QueueLink
from penstock_core.identity import LinkKey
from penstock_core.link_stealing import Steal, decide_steal
from penstock_core.permissions import Action, TargetKind
from penstock_core.reason import Reason, Refuse
from penstock_core.selector import Selector

__all__ = ["BrowsePlan", "ConsumePlan", "decide_queue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumePlan:
    """The link takes messages out of a queue."""

    request: SourceRequest
    node: PointToPointQueue
    selector: Selector | None
    key: LinkKey
    kind: QueueLink
    steals: bool
    priority: int
    new_node: PointToPointQueue | None
    """The queue, if it is a temporary one that has to be made before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowsePlan:
    """The link gets copies of what waits in a queue."""

    request: SourceRequest
    queue: Queue
    selector: Selector | None


def decide_queue(
    broker: Broker,
    connection: Connection,
    request: SourceRequest,
    found: SourceNode,
    queue: QueueNode | address.SubscriptionQueue,
) -> ConsumePlan | BrowsePlan | Refuse:
    """Decide an attach whose source is the queue `queue`."""
    selector = request.selector
    if isinstance(selector, Refuse):
        return selector
    may_manage = _may_manage(broker, connection, queue)
    asked = address.QueueAddress(queue.node.name) if isinstance(queue, QueueNode) else queue
    # The queue of a dynamic source is empty when it is made, and a browser sees only what is there then: it consumes.
    mode = None if request.dynamic is not None else request.distribution_mode
    decision = queue_links.decide_queue_attach(asked, mode, may_manage=may_manage)
    match decision:
        case Refuse():
            return decision
        case queue_links.Browse():
            return _browse(broker, connection, request, queue, selector)
        case queue_links.Consume():
            assert isinstance(queue, QueueNode), "the queue of a subscription is only browsed"
            return _consume(broker, connection, request, found, queue, selector, may_manage)
        case _:
            assert_never(decision)


def _consume(
    broker: Broker,
    connection: Connection,
    request: SourceRequest,
    found: SourceNode,
    queue: QueueNode,
    selector: Selector | None,
    may_manage: bool,
) -> ConsumePlan | Refuse:
    node = queue.node
    refused = temporary_nodes.check_use(broker, connection, node)
    refused = refused or broker.permissions.check_node(connection, Action.CONSUME, node)
    if refused is not None:
        return refused
    key = LinkKey(connection.client.container_id, request.link_name)
    kind = QueueLink("" if queue.is_new else node.name)
    stealing = decide_steal(kind, steal.live_link(broker.clients, key), connection.login.user, may_manage)
    if isinstance(stealing, Refuse):
        return stealing
    return ConsumePlan(
        request=request,
        node=node,
        selector=selector,
        key=key,
        kind=kind,
        steals=isinstance(stealing, Steal),
        priority=found.priority,
        new_node=node if queue.is_new else None,
    )


def _browse(
    broker: Broker,
    connection: Connection,
    request: SourceRequest,
    queue: QueueNode | address.SubscriptionQueue,
    selector: Selector | None,
) -> BrowsePlan | Refuse:
    if isinstance(queue, address.SubscriptionQueue):
        subscription = broker.topology.subscriptions.get(queue.identity)
        if subscription is None:
            return Refuse(Reason.SUBSCRIPTION_NOT_FOUND, f"There is no {queue.identity}; check the name.")
        return BrowsePlan(request=request, queue=subscription.queue, selector=selector)
    node = queue.node
    refused = (
        None if connection.listener.role is Role.MANAGEMENT else temporary_nodes.check_use(broker, connection, node)
    )
    refused = refused or broker.permissions.check_node(connection, Action.CONSUME, node)
    if refused is not None:
        return refused
    return BrowsePlan(request=request, queue=node.queue, selector=selector)


def _may_manage(broker: Broker, connection: Connection, queue: QueueNode | address.SubscriptionQueue) -> bool:
    if isinstance(queue, address.SubscriptionQueue):
        return broker.permissions.may_use_others(connection, queue.identity)
    return broker.permissions.may_manage(connection, TargetKind.QUEUE, queue.node.name)
