"""Answers attaches, in four steps, each in files of its own: the request is read from the frame, an answer is decided,
the decision is applied, and the reply is sent.

1. read: `request` (with `binding_filters`).
2. decide: `node` finds what source or target means; `topic_source` (null sources as well), `queue_source` and `target`
   gather the facts and let the rules decide. A refusal is a value, and changes nothing.
3. apply: `apply` (with `steal` and `temporary_nodes`).
4. reply, once what was written is synced: `reply` (with `termini`).

Links to a coordinator and from the management node are answered by the rooms that serve them. Source:
docs/decisions/010-refusals-change-nothing.md, docs/decisions/012-every-attach-is-answered.md; for the limits of every
attach docs/reference/security.md and docs/decisions/048-observer.md.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import assert_never

from penstock_amqp.endpoint.events import Attached
from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_amqp.frames.performatives import Attach, Coordinator, Source, Target
from penstock_amqp.types.composites import OtherAddress
from penstock_api.management import NODE
from penstock_broker.access.connection import Connection
from penstock_broker.attach import apply, reply
from penstock_broker.attach.node import QueueNode, TopicNode, find_source, find_target
from penstock_broker.attach.queue_source import BrowsePlan, ConsumePlan, decide_queue
from penstock_broker.attach.request import SourceRequest, TargetRequest, read_source_request, read_target_request
from penstock_broker.attach.target import ProducePlan, decide_target
from penstock_broker.attach.topic_source import LookUpPlan, SubscribePlan, decide_lookup, decide_subscription
from penstock_broker.errors import amqp_error
from penstock_broker.settings.settings import Role
from penstock_broker.state.broker import Broker
from penstock_broker.transactions import coordinator
from penstock_core.address import ManagementAddress, SubscriptionQueue
from penstock_core.reason import Reason, Refuse

__all__ = ["attach_source", "attach_target", "check_connection"]

logger = logging.getLogger(__name__)


def attach_source(broker: Broker, connection: Connection, link: OutLink, frame: Attach) -> None:
    """Answer the attach of a link on which the peer receives."""
    plan = _decide_source(broker, connection, read_source_request(frame))
    _tell(connection, link, "consumes", plan)
    match plan:
        case Refuse():
            connection.endpoint.refuse_attach(link, amqp_error(plan))
        case SubscribePlan():
            consumer = apply.subscribe(broker, connection, link, plan)
            broker.sync.when_durable(connection, partial(reply.reply_to_consumer, broker, consumer, plan))
        case ConsumePlan():
            consumer = apply.consume(broker, connection, link, plan)
            broker.sync.when_durable(connection, partial(reply.reply_to_consumer, broker, consumer, plan))
        case BrowsePlan():
            reply.reply_to_browser(broker, apply.add_browser(broker, connection, link, plan), plan)
        case LookUpPlan():
            lookup = apply.add_lookup(connection, link, plan)
            broker.sync.when_durable(connection, partial(reply.reply_to_lookup, broker, lookup, plan))
        case ManagementAddress():
            broker.management.attach_reply_link(connection, link, frame)
        case _:
            assert_never(plan)


def attach_target(broker: Broker, connection: Connection, link: InLink, frame: Attach) -> None:
    """Answer the attach of a link on which the peer sends."""
    if isinstance(frame.target, Coordinator):
        coordinator.attach_coordinator(broker, connection, link, frame)
        return
    plan = _decide_target(broker, connection, read_target_request(frame, frame.target))
    _tell(connection, link, "produces", plan)
    if isinstance(plan, Refuse):
        connection.endpoint.refuse_attach(link, amqp_error(plan))
        return
    producer = apply.add_producer(broker, connection, link, plan)
    broker.sync.when_durable(connection, partial(reply.reply_to_producer, broker, producer, plan))


def _decide_source(
    broker: Broker, connection: Connection, request: SourceRequest
) -> SubscribePlan | ConsumePlan | BrowsePlan | LookUpPlan | ManagementAddress | Refuse:
    if request.is_null:
        return decide_lookup(broker, connection, request)
    if request.frame.incomplete_unsettled:  # then nothing may be sent to it but deliveries that are resumed (2.7.3)
        return Refuse(Reason.NOT_IMPLEMENTED, "Deliveries are not resumed; attach without incomplete-unsettled.")
    found = find_source(broker, connection, request)
    if isinstance(found, Refuse):
        return found
    match found.node:
        case TopicNode():
            return decide_subscription(broker, connection, request, found, found.node)
        case QueueNode() | SubscriptionQueue():
            return decide_queue(broker, connection, request, found, found.node)
        case ManagementAddress():
            return found.node
        case _:
            assert_never(found.node)


def _decide_target(broker: Broker, connection: Connection, request: TargetRequest) -> ProducePlan | Refuse:
    found = find_target(broker, connection, request)
    return found if isinstance(found, Refuse) else decide_target(broker, connection, request, found)


def _tell(connection: Connection, link: InLink | OutLink, role: str, plan: object) -> None:
    """What was decided, for `--log-level debug`."""
    if logger.isEnabledFor(logging.DEBUG):
        decided = f"refused, {plan.reason.value}: {plan.description}" if isinstance(plan, Refuse) else str(plan)[:1000]
        logger.debug(
            "Attach of link %r, which %s, on connection %d (container %r, user %r): %s",
            link.name, role, connection.number, connection.client.container_id, connection.login.user, decided,
        )  # fmt: skip


def check_connection(connection: Connection, event: Attached) -> Refuse | None:
    """None if the link may be attached as far as its connection is concerned; its terminus is looked at next."""
    most = connection.listener.max_links
    if len(connection.endpoint.all_links()) > most:
        told = f"The connection has {most} links, which is the limit: close some, or open another connection."
        return Refuse(Reason.LIMIT_EXCEEDED, told)
    if connection.listener.role is Role.OBSERVER and not _is_management(event):
        told = "The observer's socket is for $management; publish and consume on a listener for clients."
        return Refuse(Reason.NOT_PERMITTED, told)
    terminus = _terminus(event)
    if terminus is not None and isinstance(terminus.address, OtherAddress):
        told = f"The address is of type {terminus.address.kind}; write it as a string."
        return Refuse(Reason.INVALID_ADDRESS, told)
    return None


def _is_management(event: Attached) -> bool:
    terminus = _terminus(event)
    return terminus is not None and not terminus.dynamic and terminus.address == NODE


def _terminus(event: Attached) -> Source | Target | None:
    """The broker's end of the link; None if it is null, or a coordinator."""
    terminus = event.attach.source if isinstance(event.link, OutLink) else event.attach.target
    return terminus if isinstance(terminus, Source | Target) else None
