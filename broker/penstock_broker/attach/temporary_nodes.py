"""Makes temporary queues and topics, and deletes them when their policy, their link or their connection says so.

`attach.node` describes the node that an attach asks for, and `penstock_core.temporary_nodes` decides when one is
deleted; this module applies both. Nothing here is logged. Source: AMQP 1.0 part 3, sections 3.5.9 to 3.5.13; JMS 2.0,
6.2.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from penstock_broker.access.connection import Connection
from penstock_broker.attach import close
from penstock_broker.queue.consumer import Link
from penstock_broker.state.broker import Broker
from penstock_broker.topology.records import DetachedLink, Exchange, PointToPointQueue, Temporary
from penstock_core.permissions import Action
from penstock_core.reason import Reason, Refuse
from penstock_core.subscription_lifetime import SessionKey
from penstock_core.temporary_nodes import LifetimePolicy, Use, check_consumer, is_over, may_come_back

__all__ = [
    "awaiting",
    "check_use",
    "connection_ended",
    "delete",
    "end_one_of",
    "link_detached",
    "links_ended",
    "make",
    "node_named",
    "session_ended",
]

REVIEW_MS: Final = 1000
"""Between two reviews of the nodes whose policy depends on links or messages."""
PER_SLICE: Final = 100
"""Nodes that are looked at in one turn; so of few nodes none outlives the turn in which its last link ends."""

Node: TypeAlias = Exchange | PointToPointQueue


def make(broker: Broker, connection: Connection, node: Node) -> None:
    """Make the node that a dynamic source or target asks for; if it waits for its link, that link has come back."""
    assert node.temporary is not None
    if node.temporary.awaits is not None:
        node.temporary.awaits = None
        broker.temporary.awaiting.discard(node.name)
        return
    if isinstance(node, PointToPointQueue):
        broker.topology.put_queue(node)
    else:
        broker.topology.put_exchange(node)
    connection.temporary.add(node.name)
    if node.temporary.policy is not LifetimePolicy.DELETE_ON_CLOSE:
        broker.temporary.lingering.add(node.name)
        if not broker.temporary.is_under_review:
            broker.temporary.is_under_review = True
            broker.clock.after(REVIEW_MS, lambda: _review_again(broker))


def check_use(broker: Broker, connection: Connection, node: Node, *, durable: bool = False) -> Refuse | None:
    """None if the connection may consume from a node; one that is not temporary is not looked at. Of a node that is not
    exclusive, another user than its maker's needs the permission.
    """
    temporary = node.temporary
    if temporary is None:
        return None
    exclusive = temporary.is_exclusive
    refused = check_consumer(node.name, temporary.connection, connection.number, exclusive=exclusive, durable=durable)
    maker = broker.clients.connections.get(temporary.connection)
    if refused is None and maker is not None and maker.login.user != connection.login.user:
        refused = broker.permissions.check(connection, Action.CONSUME, node.permission_kind, node.name)
    return refused


def node_named(broker: Broker, name: str) -> Node | None:
    """The temporary node of this name; None if it was deleted."""
    node = broker.topology.queues.get(name) or broker.topology.exchanges.get(name)
    return node if node is not None and node.temporary is not None else None


def links_ended(broker: Broker, contexts: Iterable[object]) -> None:
    """Links have ended: delete the nodes that their attaches made, and nodes that nobody uses any more."""
    for context in contexts:
        if isinstance(context, Link) and context.creates is not None:
            node = node_named(broker, context.creates)
            if node is not None and node.temporary is not None:
                node.temporary.has_creator = False
                _delete_if_over(broker, node, node.temporary)
    if broker.temporary.lingering:
        _review(broker)


def link_detached(broker: Broker, context: object, link: DetachedLink) -> None:
    """The client has detached a link and not closed it: if the link may come back, the node that it made waits."""
    links_ended(broker, () if _waits(broker, context, link, session_ended=False) else (context,))


def session_ended(
    broker: Broker, connection: Connection, session: SessionKey, contexts: Iterable[tuple[object, DetachedLink]]
) -> None:
    """A session has ended with its links, and so have the links that were detached in it, unless their termini stay."""
    ended = [context for context, link in contexts if not _waits(broker, context, link, session_ended=True)]
    if broker.temporary.awaiting:
        for name in connection.temporary & broker.temporary.awaiting:
            node = node_named(broker, name)
            temporary = node.temporary if node is not None else None
            if node is None or temporary is None or temporary.awaits is None or temporary.awaits.session != session:
                continue
            if not may_come_back(temporary.expiry, session_ended=True):
                temporary.awaits, temporary.has_creator = None, False
                broker.temporary.awaiting.discard(name)
                _delete_if_over(broker, node, temporary)
    links_ended(broker, ended)


def awaiting(broker: Broker, connection: Connection, name: str, *, receives: bool) -> Node | None:
    """The node that waits for this link of the connection."""
    for each in connection.temporary & broker.temporary.awaiting if broker.temporary.awaiting else ():
        node = node_named(broker, each)
        link = node.temporary.awaits if node is not None and node.temporary is not None else None
        if link is not None and (link.name, link.receives) == (name, receives):
            return node
    return None


def _waits(broker: Broker, context: object, link: DetachedLink, *, session_ended: bool) -> bool:
    """Let the node that a link made wait for it; False if it made none, or does not come back."""
    node = node_named(broker, context.creates) if isinstance(context, Link) and context.creates is not None else None
    if node is None or node.temporary is None:
        return False
    if not may_come_back(node.temporary.expiry, session_ended=session_ended):
        return False
    node.temporary.awaits = link
    broker.temporary.awaiting.add(node.name)
    return True


def connection_ended(broker: Broker, connection: Connection) -> None:
    """Delete the temporary nodes of a connection, whatever their policy."""
    while connection.temporary:
        end_one_of(broker, connection)


def end_one_of(broker: Broker, connection: Connection) -> None:
    """Delete one of them; there are some."""
    node = node_named(broker, connection.temporary.pop())
    if node is not None:
        delete(broker, node)


def delete(broker: Broker, node: Node) -> None:
    """Delete a temporary node with its messages; links that use it are closed with the reason."""
    refuse = Refuse(Reason.NODE_DELETED, f"The temporary {_kind_of(node)} {node.name!r} was deleted.")
    if isinstance(node, PointToPointQueue):
        close.end_queue(broker, node, refuse)
    else:
        close.end_exchange(broker, node, refuse)
    broker.temporary.lingering.discard(node.name)
    broker.temporary.awaiting.discard(node.name)
    assert node.temporary is not None
    owner = broker.clients.connections.get(node.temporary.connection)
    if owner is not None:
        owner.temporary.discard(node.name)


def _kind_of(node: Node) -> str:
    return "queue" if isinstance(node, PointToPointQueue) else "topic"


def _review_again(broker: Broker) -> None:
    """Review the nodes, and set the timer again while any is left."""
    if broker.temporary.to_review:
        _review_slice(broker)  # a mistake has ended the review that was going on
    else:
        _review(broker)
    broker.temporary.is_under_review = bool(broker.temporary.lingering)
    if broker.temporary.is_under_review:
        broker.clock.after(REVIEW_MS, lambda: _review_again(broker))


def _review(broker: Broker) -> None:
    """Look at all nodes, from this turn on, or behind the review that is going on."""
    nodes = broker.temporary
    if nodes.to_review:
        nodes.asks_for_review = True
    else:
        nodes.to_review.extend(nodes.lingering)
        _review_slice(broker)


def _review_slice(broker: Broker) -> None:
    nodes = broker.temporary
    for _ in range(min(PER_SLICE, len(nodes.to_review))):
        name = nodes.to_review.popleft()
        node = node_named(broker, name)
        if node is None or node.temporary is None:
            nodes.lingering.discard(name)
        else:
            _delete_if_over(broker, node, node.temporary)
    if nodes.to_review:
        broker.clock.after(0, lambda: _review_slice(broker))
    elif nodes.asks_for_review:
        nodes.asks_for_review = False
        broker.clock.after(0, lambda: _review(broker))


def _delete_if_over(broker: Broker, node: Node, temporary: Temporary) -> None:
    if is_over(temporary.policy, _use(node, temporary)):
        delete(broker, node)


def _use(node: Node, temporary: Temporary) -> Use:
    queues = [node.queue] if isinstance(node, PointToPointQueue) else node.router.handles
    consumers = sum(len(each.links.consumers) + len(each.links.browsers) for each in queues)
    return Use(temporary.has_creator, len(node.producers) + consumers, sum(each.depth for each in queues))
