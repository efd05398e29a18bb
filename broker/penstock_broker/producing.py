"""Answers attaches of links on which the peer sends: the target has to exist, or to be made where that is allowed.

Source: design, section 3 ("Addresses").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from penstock_amqp.endpoint_links import InLink
from penstock_amqp.performatives import Attach, Coordinator, Target
from penstock_broker.connection import Connection
from penstock_broker.errors import amqp_error
from penstock_broker.links import Producer
from penstock_broker.routes import Destination, ExchangeTarget, ManagementTarget, QueueTarget, RelayTarget
from penstock_core import address, queues
from penstock_core.reason import Reason, Refuse

if TYPE_CHECKING:
    from penstock_broker.broker import Broker

__all__ = ["attach_producer"]


def attach_producer(broker: Broker, connection: Connection, link: InLink, attach: Attach) -> None:
    """Answer an attach of a link on which the peer sends."""
    found = _destination(broker, connection, attach)
    if isinstance(found, Refuse):
        connection.endpoint.refuse_attach(link, amqp_error(found))
        return
    producer = Producer(connection, link, found, broker.settings.link_credit)
    link.context = producer
    broker.when_durable(connection, lambda: _admit(producer, attach))


def _admit(producer: Producer, attach: Attach) -> None:
    connection, link, target = producer.connection, producer.link, attach.target
    if not link.is_open:
        return
    assert isinstance(target, Target)
    producer.is_active = True
    connection.flush()  # the reply has to begin on a frame boundary to be rewritten
    connection.endpoint.attach_reply(
        link,
        source=attach.source,
        target=Target(
            address=target.address,
            durable=target.durable,
            expiry_policy=target.expiry_policy,
            capabilities=target.capabilities,
        ),
        answers_unsettled=attach.unsettled is not None,
        max_message_bytes=connection.port.max_message_bytes,
    )
    connection.endpoint.credit(link, producer.window)
    for action in producer.after_reply:
        action()
    producer.after_reply = []


def _destination(broker: Broker, connection: Connection, attach: Attach) -> Destination | Refuse:
    target = attach.target
    if isinstance(target, Coordinator):
        return Refuse(Reason.NOT_IMPLEMENTED, "Transactions are not implemented in this version; use none.")
    if target is None:
        return Refuse(Reason.INVALID_ADDRESS, "The link has no target; name an exchange or a queue.")
    if target.dynamic:
        return Refuse(Reason.NOT_IMPLEMENTED, "Temporary queues and topics are not implemented in this version.")
    asked = frozenset(target.capabilities or ())
    auto = broker.settings.auto_create
    parsed = address.parse_target(target.address, asked, broker.topology, auto_create=auto)
    if isinstance(parsed, address.AutoCreate):
        broker.auto_create(parsed)
        parsed = address.parse_target(target.address, asked, broker.topology)
    match parsed:
        case address.ExchangeAddress():
            return ExchangeTarget(broker.topology.exchanges[parsed.exchange], parsed.key)
        case address.QueueAddress() | address.SubscriptionQueue():
            allowed = queues.decide_publish(parsed)
            return allowed if isinstance(allowed, Refuse) else QueueTarget(broker.topology.queues[allowed.queue])
        case address.ManagementNode():
            return ManagementTarget()
        case address.AnonymousRelay():
            return RelayTarget()
        case address.AutoCreate():
            raise AssertionError("what was made is there")
        case Refuse():
            return parsed
        case _:
            assert_never(parsed)
