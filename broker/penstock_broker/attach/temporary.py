"""Makes temporary queues and topics, and deletes them when their policy, their link or their connection says so.

`penstock_core.temporary_nodes` decides; this module counts what it asks for and applies. Nothing here is logged.
Source: AMQP 1.0 part 3, sections 3.5.9 to 3.5.13; issue "all of JMS", temporary queues and topics.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from penstock_amqp.types.values import Symbol, Value
from penstock_broker.access.connection import Connection
from penstock_broker.attach import close, request
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Consumer, Producer
from penstock_broker.topology.records import Exchange, PointToPointQueue, Temporary, new_router
from penstock_core.address import kinds_of
from penstock_core.reason import Reason, Refuse
from penstock_core.temporary_nodes import LifetimePolicy, MakeTemporary, Use, check_consumer, decide_dynamic, is_over
from penstock_core.terms import ExchangeType, NodeKind

__all__ = ["check", "connection_gone", "delete", "left", "make", "node_named"]

REVIEW_MS: Final = 1000
"""How long a node may be over before that is noticed, if it was its last message that left."""

TOKEN_BYTES: Final = 16

Node: TypeAlias = Exchange | PointToPointQueue


def make(
    broker: Broker,
    connection: Connection,
    address: str | None,
    capabilities: frozenset[str],
    properties: Mapping[Symbol, Value] | None,
) -> MakeTemporary | Refuse:
    """Make what a dynamic terminus asks for. Its link is to be told to the rules by `Producer.creates` or its like."""
    wrong = request.check_node_properties(properties)
    if wrong is not None:
        return wrong
    decision = decide_dynamic(
        address,
        kinds_of(capabilities),
        request.lifetime_policy(properties),
        token=secrets.token_urlsafe(TOKEN_BYTES),
        made=len(connection.temporary),
        limit=broker.settings.temporary_per_connection,
    )
    if isinstance(decision, Refuse):
        return decision
    mark = Temporary(connection.number, decision.policy)
    if decision.kind is NodeKind.QUEUE:
        broker.topology.make_queue(decision.name, durable=False, now_us=broker.clock.now_us, temporary=mark)
    else:
        kind = ExchangeType.FANOUT  # whatever its subject is: who subscribes gets every message
        broker.topology.put_exchange(
            Exchange(name=decision.name, type=kind, durable=False, router=new_router(kind), temporary=mark)
        )
    connection.temporary.add(decision.name)
    if decision.policy is not LifetimePolicy.DELETE_ON_CLOSE:
        broker.temporary.lingering.add(decision.name)
        if not broker.temporary.is_under_review:
            broker.temporary.is_under_review = True
            broker.clock.after(REVIEW_MS, lambda: _review_again(broker))
    return decision


def check(node: Node, connection: Connection, *, durable: bool = False) -> Refuse | None:
    """None if this connection may consume from a node, temporary or not."""
    if node.temporary is None:
        return None
    return check_consumer(node.name, node.temporary.connection, connection.number, durable=durable)


def node_named(broker: Broker, name: str) -> Node | None:
    """The temporary node of this name; None if it is gone."""
    node = broker.topology.queues.get(name) or broker.topology.exchanges.get(name)
    return node if node is not None and node.temporary is not None else None


def left(broker: Broker, contexts: Iterable[object]) -> None:
    """Links are gone: delete what they made, and what nobody uses any more."""
    for context in contexts:
        if isinstance(context, Producer | Consumer) and context.creates is not None:
            node = node_named(broker, context.creates)
            if node is not None and node.temporary is not None:
                node.temporary.has_creator = False
                _delete_if_over(broker, node, node.temporary)
    if broker.temporary.lingering:
        _review(broker)


def connection_gone(broker: Broker, connection: Connection) -> None:
    """Its temporary nodes go with a connection, whatever their policy."""
    for name in list(connection.temporary):
        node = node_named(broker, name)
        if node is not None:
            delete(broker, node)
    connection.temporary.clear()


def delete(broker: Broker, node: Node) -> None:
    """Delete a temporary node with its messages; links that use it are told."""
    told = Refuse(Reason.NODE_DELETED, f"The temporary {_word(node)} {node.name!r} was deleted.")
    if isinstance(node, PointToPointQueue):
        close.end_queue(broker, node, told)
    else:
        close.end_exchange(broker, node, told)
    broker.temporary.lingering.discard(node.name)
    assert node.temporary is not None
    owner = broker.clients.connections.get(node.temporary.connection)
    if owner is not None:
        owner.temporary.discard(node.name)


def _word(node: Node) -> str:
    return "queue" if isinstance(node, PointToPointQueue) else "topic"


def _review_again(broker: Broker) -> None:
    """Once a second as long as there is anything to look at: messages leave queues without a word to this module."""
    _review(broker)
    broker.temporary.is_under_review = bool(broker.temporary.lingering)
    if broker.temporary.is_under_review:
        broker.clock.after(REVIEW_MS, lambda: _review_again(broker))


def _review(broker: Broker) -> None:
    for name in list(broker.temporary.lingering):
        node = node_named(broker, name)
        if node is None or node.temporary is None:
            broker.temporary.lingering.discard(name)
        else:
            _delete_if_over(broker, node, node.temporary)


def _delete_if_over(broker: Broker, node: Node, mark: Temporary) -> None:
    if is_over(mark.policy, _use(broker, node, mark)):
        delete(broker, node)


def _use(broker: Broker, node: Node, mark: Temporary) -> Use:
    queues = [node.queue] if isinstance(node, PointToPointQueue) else node.router.handles
    consumers = sum(len(each.links.consumers) + len(each.links.browsers) for each in queues)
    return Use(mark.has_creator, len(node.producers) + consumers, sum(each.depth for each in queues))
