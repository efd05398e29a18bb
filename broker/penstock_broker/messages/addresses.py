"""What an address means to a connection: a node that is there, or one that is made now where auto-creation allows it.

`penstock_core.address` reads addresses; this module adds permissions, limits and the making. Source:
docs/decisions/018-addresses.md, docs/decisions/019-auto-creation.md.

A message that comes on a link without a target (the anonymous terminus) goes where its `to` says, which is read like
the address of a target. The annotation `x-opt-jms-dest` says whether `to` names a queue or a topic, as the capabilities
of a target do. A link remembers a bounded number of destinations. Source: Using the AMQP Anonymous Terminus for Message
Routing 1.0; the JMS mapping "JMSDestination and JMSReplyTo Type Information"; docs/decisions/018-addresses.md.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypeAlias

from penstock_amqp.endpoint.events import AmqpError
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages import fields, message_head
from penstock_broker.access.connection import Connection
from penstock_broker.errors import amqp_error
from penstock_broker.state.broker import Broker
from penstock_broker.state.routes import ExchangeTarget, QueueTarget, RelayTarget
from penstock_broker.topology import auto_creation
from penstock_core import address, queue_links
from penstock_core.auto_creation import check_limit
from penstock_core.permissions import Action
from penstock_core.reason import Reason, Refuse

__all__ = ["NamedNode", "destination_of", "source_named", "target_named"]


NamedNode: TypeAlias = (
    address.ExchangeAddress | address.QueueAddress | address.SubscriptionQueue | address.ManagementAddress | Refuse
)
"""A node that is there, or why there is none."""


def source_named(broker: Broker, connection: Connection, name: str | None, capabilities: Collection[str]) -> NamedNode:
    """The node of a source that is neither null nor dynamic."""
    found = address.parse_source(name, capabilities, broker.topology, auto_create=broker.creation)
    if isinstance(found, address.CreateNode):
        refused = _create(broker, connection, Action.CONSUME, found)
        found = refused or address.parse_source(name, capabilities, broker.topology)
        assert not isinstance(found, address.CreateNode), "it has just been made"
    return found


def target_named(
    broker: Broker, connection: Connection, name: str | None, capabilities: Collection[str]
) -> NamedNode | address.AnonymousRelay:
    """The node of a target that is neither null, dynamic nor a coordinator, or of the `to` of a message."""
    found = address.parse_target(name, capabilities, broker.topology, auto_create=broker.creation)
    if isinstance(found, address.CreateNode):
        refused = _create(broker, connection, Action.PUBLISH, found)
        found = refused or address.parse_target(name, capabilities, broker.topology)
        assert not isinstance(found, address.CreateNode), "it has just been made"
    return found


def _create(broker: Broker, connection: Connection, action: Action, wanted: address.CreateNode) -> Refuse | None:
    """Make a node by its name. None, or why the connection may not, in which case nothing is made."""
    if not broker.log.takes_topology():
        return broker.storage_refuse()
    topology = broker.topology
    refused = broker.permissions.check_creation(connection, action, wanted) or check_limit(
        broker.creation, wanted.kind, wanted.name, len(topology.made_by_name[wanted.kind])
    )
    if refused is None:
        auto_creation.auto_create(topology, wanted, broker.clock.now_us)
    return refused


MAX_DESTINATIONS: Final = 256
"""Destinations that one link remembers; with one more it forgets them all."""

_KINDS: Final = {0: "queue", 1: "topic", 2: "temporary-queue", 3: "temporary-topic"}
"""Values of `x-opt-jms-dest` as capabilities."""


def destination_of(
    broker: Broker, connection: Connection, relay: RelayTarget, data: bytes
) -> ExchangeTarget | QueueTarget | AmqpError:
    """The destination of a message, made by its name where that is allowed; or the error to reject the message with."""
    try:
        start = message_head.read_head(data).start
        named = fields.properties_field(data, start, fields.Field.TO)
        kind = _KINDS.get(_number(fields.annotation(data, start, "x-opt-jms-dest")))
    except DecodeError as error:
        return AmqpError("amqp:decode-error", f"The message can't be read: {error}")
    to = named if isinstance(named, str) else ""
    capabilities = (kind,) if kind is not None and not address.has_prefix(to) else ()
    parsed = target_named(broker, connection, to or None, capabilities)
    target = _destination(broker, relay, to, parsed)
    if isinstance(target, AmqpError):
        return target
    node = target.exchange if isinstance(target, ExchangeTarget) else target.node
    refused = broker.permissions.check_node(connection, Action.PUBLISH, node)
    return target if refused is None else amqp_error(refused)


def _number(annotation: object) -> int:
    return annotation if isinstance(annotation, int) else -1


def _destination(
    broker: Broker, relay: RelayTarget, to: str, parsed: NamedNode | address.AnonymousRelay
) -> ExchangeTarget | QueueTarget | AmqpError:
    match parsed:
        case address.ExchangeAddress():
            exchange = broker.topology.exchanges[parsed.exchange]
            known = relay.known.get(to)
            if isinstance(known, ExchangeTarget) and known.exchange is exchange:
                return known
            return _remember(relay, to, broker.routes.target_of(exchange, parsed.key))
        case address.QueueAddress():
            node = broker.topology.queues[parsed.queue]
            known = relay.known.get(to)
            if isinstance(known, QueueTarget) and known.node is node:
                return known
            return _remember(relay, to, QueueTarget(node))
        case address.SubscriptionQueue():
            refused = queue_links.decide_publish(parsed)
            assert isinstance(refused, Refuse)
            return amqp_error(refused)
        case address.ManagementAddress():
            return amqp_error(Refuse(Reason.NOT_ALLOWED, "Attach to $management to send requests."))
        case address.AnonymousRelay():
            return amqp_error(Refuse(Reason.INVALID_ADDRESS, "The message has no `to`; say where it goes."))
        case Refuse():
            return amqp_error(parsed)


def _remember(relay: RelayTarget, to: str, target: ExchangeTarget | QueueTarget) -> ExchangeTarget | QueueTarget:
    if len(relay.known) >= MAX_DESTINATIONS:
        relay.known.clear()
    relay.known[to] = target
    return target
