"""Answers attaches of links on which the peer receives: finds out what the source means, and who answers.

Topics and null sources: `topic_source`; queues: `queue_source`. Links on which the peer sends: `target`.
A refusal changes nothing. Source: design, section 3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from penstock_amqp.endpoint.links import OutLink
from penstock_amqp.frames.performatives import Attach, Source
from penstock_amqp.types.values import Symbol
from penstock_broker.access.connection import Connection
from penstock_broker.attach import queue_source, request, temporary, topic_source
from penstock_broker.errors import amqp_error
from penstock_broker.messages import addresses
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Consumer
from penstock_core import address, dispatch_order
from penstock_core.reason import Refuse

__all__ = ["attach_consumer"]


def attach_consumer(broker: Broker, connection: Connection, link: OutLink, attach: Attach) -> None:
    """Answer an attach of a link on which the peer receives."""
    refused = _attach_consumer(broker, connection, link, attach)
    if refused is not None:
        connection.endpoint.refuse_attach(link, amqp_error(refused))


def _attach_consumer(broker: Broker, connection: Connection, link: OutLink, attach: Attach) -> Refuse | None:
    source = attach.source
    if source is None:
        topic_source.find(broker, connection, link, attach)
        return None
    if source.dynamic:
        return _attach_dynamic(broker, connection, link, attach, source)
    named, attach = _with_priority(broker, attach, source)
    return _attach_named(broker, connection, link, attach, named)


def _attach_dynamic(
    broker: Broker, connection: Connection, link: OutLink, attach: Attach, source: Source
) -> Refuse | None:
    """Make the node, then attach to it as if the client had named it; a refused attach leaves no node."""
    asked = request.capabilities(attach)
    made = temporary.make(broker, connection, source.address, asked, source.dynamic_node_properties)
    if isinstance(made, Refuse):
        return made
    named = replace(source, address=made.name, dynamic_node_properties=request.node_properties(made.policy, made.kind))
    refused = _attach_named(broker, connection, link, replace(attach, source=named), named)
    if refused is None:
        assert isinstance(link.context, Consumer)
        link.context.creates = made.name
        return None
    node = temporary.node_named(broker, made.name)
    assert node is not None
    temporary.delete(broker, node)
    return refused


def _with_priority(broker: Broker, attach: Attach, source: Source) -> tuple[Source, Attach]:
    """A consumer priority that is said in the address, put where other clients say it, and the source without it.

    The attach keeps its address, which the reply echoes. A node may be called so, too.
    """
    whole = source.address or ""
    split = dispatch_order.split_priority(whole)
    if split is None or broker.topology.has_queue(whole) or broker.topology.exchange_type(whole) is not None:
        return source, attach
    properties = {Symbol(dispatch_order.PRIORITY_PROPERTY): split[1], **(attach.properties or {})}
    return replace(source, address=split[0]), replace(attach, properties=properties)


def _attach_named(
    broker: Broker, connection: Connection, link: OutLink, attach: Attach, source: Source
) -> Refuse | None:
    parsed = addresses.source_named(broker, connection, source.address, request.capabilities(attach))
    match parsed:
        case address.ExchangeAddress():
            return topic_source.subscribe(broker, connection, link, attach, parsed)
        case address.QueueAddress() | address.SubscriptionQueue():
            return queue_source.consume(broker, connection, link, attach, parsed)
        case address.ManagementAddress():
            broker.management.attach_answers(connection, link, attach)
            return None
        case Refuse():
            return parsed
        case _:
            assert_never(parsed)
