"""Answers attaches of links on which the peer sends: the target has to exist, or to be made where that is allowed.

Source: design, section 3 ("Addresses").
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final, assert_never

from penstock_amqp.endpoint.links import InLink
from penstock_amqp.frames.performatives import Attach, Coordinator, Target
from penstock_broker.access.connection import Connection
from penstock_broker.attach import detach, request, temporary
from penstock_broker.errors import amqp_error
from penstock_broker.messages import addresses, spool
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Producer
from penstock_broker.state.routes import Destination, ExchangeTarget, ManagementTarget, QueueTarget, RelayTarget
from penstock_broker.transactions import coordinator
from penstock_core import address, queue_links
from penstock_core.permissions import Action
from penstock_core.reason import Reason, Refuse

__all__ = ["attach_producer"]

MAX_REQUEST_BYTES: Final = 16 * 1024 * 1024
"""Longest request to the management node, which is decoded as a whole."""


def attach_producer(broker: Broker, connection: Connection, link: InLink, attach: Attach) -> None:
    """Answer an attach of a link on which the peer sends."""
    if isinstance(attach.target, Coordinator):
        coordinator.attach_coordinator(broker, connection, link, attach)
        return
    found = _destination(broker, connection, attach)
    if isinstance(found, Refuse):
        connection.endpoint.refuse_attach(link, amqp_error(found))
        return
    destination, told = found
    detach.steal_within_session(broker, connection, link)
    producer = Producer(connection, link, destination, broker.settings.link_credit)
    producer.can_reject = request.can_reject(attach)
    link.context = producer
    if isinstance(destination, ExchangeTarget):
        destination.exchange.producers.add(producer)
    elif isinstance(destination, QueueTarget):
        destination.node.producers.add(producer)
    if told.dynamic:
        producer.creates = told.address
    broker.sync.when_durable(connection, lambda: _admit(broker, producer, attach, told))


def _admit(broker: Broker, producer: Producer, attach: Attach, target: Target) -> None:
    connection, link = producer.connection, producer.link
    if not link.is_open:
        return
    producer.is_active = True
    link.is_request = not isinstance(producer.destination, ExchangeTarget | QueueTarget)
    keeps_all = isinstance(producer.destination, ManagementTarget)  # what it decodes, it decodes as a whole
    if not keeps_all:
        written = partial(broker.hold_if_behind, connection)
        link.spool = lambda: spool.SpooledMessage(broker.log, broker.storage_refusal(), written)
    connection.flush()  # the reply has to begin on a frame boundary to be rewritten
    connection.endpoint.attach_reply(
        link,
        source=attach.source,
        target=Target(
            address=target.address,
            durable=target.durable,
            expiry_policy=target.expiry_policy,
            dynamic=target.dynamic,
            dynamic_node_properties=target.dynamic_node_properties if target.dynamic else None,
            capabilities=target.capabilities,
        ),
        answers_unsettled=attach.unsettled is not None,
        max_message_bytes=min(connection.port.max_message_bytes, MAX_REQUEST_BYTES if keeps_all else 1 << 62),
        settles_second=attach.rcv_settle_mode == 1,
        peer_settles=attach.snd_settle_mode,
    )
    connection.endpoint.credit(link, producer.window)
    broker.work.touch(connection)
    for action in producer.after_reply:
        action()
    producer.after_reply = []


def _destination(broker: Broker, connection: Connection, attach: Attach) -> tuple[Destination, Target] | Refuse:
    """Where messages go, and the target to reply with."""
    target = attach.target
    assert not isinstance(target, Coordinator)
    if target is None:
        return Refuse(Reason.INVALID_ADDRESS, "The link has no target; name an exchange or a queue.")
    if target.dynamic:
        made = _make_dynamic(broker, connection, target)
        if isinstance(made, Refuse):
            return made
        target = made
    found = _named(broker, connection, target)
    return found if isinstance(found, Refuse) else (found, target)


def _make_dynamic(broker: Broker, connection: Connection, target: Target) -> Target | Refuse:
    """Make a temporary node; the target that tells of it. Only nodes that last could be durable."""
    asked = frozenset(target.capabilities or ())
    made = temporary.make(broker, connection, target.address, asked, target.dynamic_node_properties)
    if isinstance(made, Refuse):
        return made
    properties = request.node_properties(made.policy, made.kind)
    return replace(target, address=made.name, durable=0, dynamic_node_properties=properties)


def _named(broker: Broker, connection: Connection, target: Target) -> Destination | Refuse:
    asked = frozenset(target.capabilities or ())
    parsed = addresses.target_named(broker, connection, target.address, asked)
    permitting = broker.permissions
    match parsed:
        case address.ExchangeAddress():
            exchange = broker.topology.exchanges[parsed.exchange]
            return permitting.check_node(connection, Action.PUBLISH, exchange) or ExchangeTarget(exchange, parsed.key)
        case address.QueueAddress() | address.SubscriptionQueue():
            allowed = queue_links.decide_publish(parsed)
            if isinstance(allowed, Refuse):
                return allowed
            node = broker.topology.queues[allowed.queue]
            return permitting.check_node(connection, Action.PUBLISH, node) or QueueTarget(node)
        case address.ManagementAddress():
            return ManagementTarget()
        case address.AnonymousRelay():
            return RelayTarget()
        case Refuse():
            return parsed
        case _:
            assert_never(parsed)
