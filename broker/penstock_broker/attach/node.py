"""Finds the node that an attach means: the second of the four steps of an attach begins here.

A node is found by its address, or made at once where auto-creation allows it. One that a dynamic terminus asks for is
described by a record that becomes part of the topology only when the attach is applied: a refused attach makes none.
Source: docs/decisions/018-addresses.md, docs/decisions/019-auto-creation.md; AMQP 1.0 part 3, 3.5.3 and 3.5.4.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from penstock_amqp.frames.performatives import Attach
from penstock_broker.access.connection import Connection
from penstock_broker.attach import temporary_nodes
from penstock_broker.attach.request import DynamicNode, SourceRequest, TargetRequest
from penstock_broker.messages import addresses
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_broker.topology.records import Exchange, PointToPointQueue, Temporary, new_router
from penstock_core import address
from penstock_core.reason import Reason, Refuse
from penstock_core.temporary_nodes import decide_dynamic
from penstock_core.terms import ExchangeType, NodeKind

__all__ = ["QueueNode", "SourceNode", "TargetNode", "TopicNode", "find_source", "find_target"]

TOKEN_BYTES: Final = 16
"""Random bytes in the name of a temporary node."""


@dataclass(frozen=True, slots=True)
class TopicNode:
    """An exchange."""

    exchange: Exchange
    key: str | None
    """The binding or routing key in the address; None if it names the exchange alone."""
    is_new: bool = False
    """It is dynamic, and made when the attach is applied, unless it waits for the link."""


@dataclass(frozen=True, slots=True)
class QueueNode:
    """A point-to-point queue."""

    node: PointToPointQueue
    is_new: bool = False
    """It is dynamic, and made when the attach is applied, unless it waits for the link."""


@dataclass(frozen=True, slots=True)
class SourceNode:
    """What a source means."""

    node: TopicNode | QueueNode | address.SubscriptionQueue | address.ManagementAddress
    address: str
    """The source's address for the reply: as the client wrote it, or of the node that is made for it."""
    priority: int
    """The consumer's priority."""


TargetNode: TypeAlias = (
    TopicNode | QueueNode | address.SubscriptionQueue | address.ManagementAddress | address.AnonymousRelay
)


def find_source(broker: Broker, connection: Connection, request: SourceRequest) -> SourceNode | Refuse:
    """The node of a source that isn't null."""
    if request.dynamic is not None:
        new = _describe(broker, connection, request.dynamic, request.frame)
        return new if isinstance(new, Refuse) else SourceNode(new, _name_of(new), request.priority)
    name, priority = request.address, request.priority
    option = request.address_option
    if option is not None and not _is_node(broker, name or ""):
        name, priority = option.address, option.priority
    found = addresses.source_named(broker, connection, name, request.capabilities)
    node: TopicNode | QueueNode | address.SubscriptionQueue | address.ManagementAddress
    match found:
        case Refuse():
            return found
        case address.ExchangeAddress():
            node = TopicNode(broker.topology.exchanges[found.exchange], found.key)
        case address.QueueAddress():
            node = QueueNode(broker.topology.queues[found.queue])
        case address.SubscriptionQueue() | address.ManagementAddress():
            node = found
        case _:
            assert_never(found)
    return SourceNode(node, request.address or "", priority)


def find_target(broker: Broker, connection: Connection, request: TargetRequest) -> TargetNode | Refuse:
    """The node of a target that isn't a coordinator."""
    if request.target is None:
        return Refuse(Reason.INVALID_ADDRESS, "The link has no target; name an exchange or a queue.")
    if request.dynamic is not None:
        return _describe(broker, connection, request.dynamic, request.frame)
    found = addresses.target_named(broker, connection, request.address, request.capabilities)
    match found:
        case address.ExchangeAddress():
            return TopicNode(broker.topology.exchanges[found.exchange], found.key)
        case address.QueueAddress():
            return QueueNode(broker.topology.queues[found.queue])
        case _:
            return found


def _is_node(broker: Broker, name: str) -> bool:
    """True if the whole address names a node: what looks like an option then is part of its name."""
    return broker.topology.has_queue(name) or broker.topology.exchange_type(name) is not None


def _describe(
    broker: Broker, connection: Connection, dynamic: DynamicNode | Refuse, frame: Attach
) -> TopicNode | QueueNode | Refuse:
    """The record of the temporary node that a dynamic terminus asks for: a new one, unless the link made one before it
    was detached.
    """
    if isinstance(dynamic, Refuse):
        return dynamic
    awaiting = temporary_nodes.awaiting(broker, connection, frame.name, receives=frame.role)
    if isinstance(awaiting, PointToPointQueue) and NodeKind.TOPIC not in dynamic.kinds:
        return QueueNode(awaiting, is_new=True)
    if isinstance(awaiting, Exchange) and NodeKind.TOPIC in dynamic.kinds:
        return TopicNode(awaiting, None, is_new=True)
    decision = decide_dynamic(
        dynamic.address,
        dynamic.kinds,
        dynamic.policy,
        token=secrets.token_urlsafe(TOKEN_BYTES),
        made=len(connection.temporary),
        limit=broker.settings.temporary_per_connection,
    )
    if isinstance(decision, Refuse):
        return decision
    record = Temporary(connection.number, decision.policy, dynamic.is_exclusive, expiry=dynamic.expiry)
    if decision.kind is NodeKind.QUEUE:
        incarnation = broker.topology.next_incarnation()
        queue = Queue(decision.name, incarnation, is_logged=False, now_us=broker.clock.now_us)
        return QueueNode(
            PointToPointQueue(name=decision.name, durable=False, queue=queue, temporary=record), is_new=True
        )
    kind = ExchangeType.FANOUT  # whatever the subject of a message is: who subscribes gets every message
    exchange = Exchange(name=decision.name, type=kind, durable=False, router=new_router(kind), temporary=record)
    return TopicNode(exchange, None, is_new=True)


def _name_of(new: TopicNode | QueueNode) -> str:
    return new.exchange.name if isinstance(new, TopicNode) else new.node.name
