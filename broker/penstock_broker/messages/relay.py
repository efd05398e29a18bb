"""Where a message of an anonymous producer goes: its `to`, read like the address of a target.

The annotation `x-opt-jms-dest` says whether `to` names a queue or a topic, as the capabilities of a target do. A link
remembers a bounded number of targets. Source: Using the AMQP Anonymous Terminus for Message Routing 1.0; JMS mapping,
"JMSDestination and JMSReplyTo Type Information"; docs/decisions/018-addresses.md.
"""

from __future__ import annotations

from typing import Final

from penstock_amqp.endpoint.events import AmqpError
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages import fields, message_head
from penstock_broker.access.connection import Connection
from penstock_broker.errors import amqp_error
from penstock_broker.messages import addresses
from penstock_broker.state.broker import Broker
from penstock_broker.state.routes import ExchangeTarget, QueueTarget, RelayTarget
from penstock_core import address, queue_links
from penstock_core.permissions import Action
from penstock_core.reason import Reason, Refuse

__all__ = ["target_of"]

KNOWN_TARGETS: Final = 256
"""Targets that one link remembers; with the next one it forgets them all."""

_KINDS: Final = {0: "queue", 1: "topic", 2: "temporary-queue", 3: "temporary-topic"}
"""Values of `x-opt-jms-dest` as capabilities."""


def target_of(
    broker: Broker, connection: Connection, relay: RelayTarget, data: bytes
) -> ExchangeTarget | QueueTarget | AmqpError:
    """The target of a message, made if that is allowed; or why it is none."""
    try:
        start = message_head.read_head(data).start
        named = fields.properties_field(data, start, fields.Field.TO)
        kind = _KINDS.get(_number(fields.annotation(data, start, "x-opt-jms-dest")))
    except DecodeError as error:
        return AmqpError("amqp:decode-error", f"The message can't be read: {error}")
    to = named if isinstance(named, str) else ""
    capabilities = (kind,) if kind is not None and not address.has_prefix(to) else ()
    parsed = addresses.target_named(broker, connection, to or None, capabilities)
    target = _known(broker, relay, to, parsed)
    if isinstance(target, AmqpError):
        return target
    node = target.exchange if isinstance(target, ExchangeTarget) else target.node
    refused = broker.permissions.check_node(connection, Action.PUBLISH, node)
    return target if refused is None else amqp_error(refused)


def _number(annotation: object) -> int:
    return annotation if isinstance(annotation, int) else -1


def _known(
    broker: Broker, relay: RelayTarget, to: str, parsed: addresses.Named | address.AnonymousRelay
) -> ExchangeTarget | QueueTarget | AmqpError:
    match parsed:
        case address.ExchangeAddress():
            exchange = broker.topology.exchanges[parsed.exchange]
            known = relay.known.get(to)
            if isinstance(known, ExchangeTarget) and known.exchange is exchange:
                return known
            return _remember(relay, to, ExchangeTarget(exchange, parsed.key))
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
    if len(relay.known) >= KNOWN_TARGETS:
        relay.known.clear()
    relay.known[to] = target
    return target
