"""Decides attaches of links on which the peer sends: the target has to exist, or to be made where that is allowed.

Changes nothing. Source: docs/decisions/018-addresses.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from penstock_broker.access.connection import Connection
from penstock_broker.attach.node import QueueNode, TargetNode, TopicNode
from penstock_broker.attach.request import TargetRequest
from penstock_broker.state.broker import Broker
from penstock_broker.state.routes import Destination, ManagementTarget, QueueTarget, RelayTarget
from penstock_broker.topology.records import Exchange, PointToPointQueue
from penstock_core import address, queue_links
from penstock_core.permissions import Action
from penstock_core.reason import Refuse

__all__ = ["ProducePlan", "decide_target"]


@dataclass(frozen=True, slots=True)
class ProducePlan:
    """The link brings messages for `destination`."""

    request: TargetRequest
    destination: Destination
    new_node: Exchange | PointToPointQueue | None
    """The destination, if it is a temporary node that has to be made before."""


def decide_target(
    broker: Broker, connection: Connection, request: TargetRequest, found: TargetNode
) -> ProducePlan | Refuse:
    """Decide an attach whose target is `found`."""
    match found:
        case TopicNode(exchange=exchange):
            refused = broker.permissions.check_node(connection, Action.PUBLISH, exchange)
            destination = broker.routes.target_of(exchange, found.key)
            return refused or ProducePlan(request, destination, exchange if found.is_new else None)
        case QueueNode(node=node):
            refused = broker.permissions.check_node(connection, Action.PUBLISH, node)
            return refused or ProducePlan(request, QueueTarget(node), node if found.is_new else None)
        case address.SubscriptionQueue():
            decision = queue_links.decide_publish(found)
            assert isinstance(decision, Refuse), "its messages come by its exchange alone"
            return decision
        case address.ManagementAddress():
            return ProducePlan(request, ManagementTarget(), None)
        case address.AnonymousRelay():
            return ProducePlan(request, RelayTarget(), None)
        case _:
            assert_never(found)
