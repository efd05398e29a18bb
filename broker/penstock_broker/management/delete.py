"""DELETE: reads the request, lets the rules decide, and ends the entity. If there is no such entity, that is success.

The reply is returned; the node sends it once the deletion is synced. Source: docs/reference/management.md,
docs/decisions/047-management-node.md.
"""

from __future__ import annotations

from typing import assert_never

from pydantic import ValidationError

from penstock_amqp.endpoint.events import AmqpError
from penstock_amqp.types.values import Value
from penstock_api import management
from penstock_api.management import EntityType, StatusCode
from penstock_api.validation_messages import validation_messages
from penstock_broker.attach import close, connection_end, permission_review, temporary_nodes
from penstock_broker.errors import amqp_error
from penstock_broker.management import entity_states, logged_operations
from penstock_broker.management.logged_operations import Caller
from penstock_broker.management.replies import ManagementReply, invalid_request, refusal
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_broker.topology.records import Exchange, Subscription
from penstock_core.declaration_rules import DeleteExisting, NothingToDelete, decide_deletion, decide_exchange_deletion
from penstock_core.identity import parse_queue_name
from penstock_core.reason import Reason, Refuse

__all__ = ["delete"]


def delete(broker: Broker, caller: Caller, kind: EntityType, name: str | None, body: Value) -> ManagementReply:
    """DELETE one entity; to delete one that is not there succeeds. What `caller` deletes is told in the log."""
    try:
        wanted = management.Deletion.model_validate(body if body is not None else {})
    except ValidationError as error:
        return invalid_request(
            f"The body does not fit a deletion: {'; '.join(validation_messages(error, whole='body'))}."
        )
    match kind:
        case EntityType.EXCHANGE:
            return _delete_exchange(broker, caller, name or "", wanted)
        case EntityType.SUBSCRIPTION:
            return _delete_subscription(broker, caller, name or "", wanted)
        case EntityType.QUEUE:
            return _delete_queue(broker, caller, name or "", wanted)
        case EntityType.CONNECTION:
            return _close_connection(broker, caller, name or "")
        case EntityType.BROKER | EntityType.LINK:
            return refusal(Refuse(Reason.NOT_IMPLEMENTED, f"A {kind.value} can't be deleted."))
        case _:
            assert_never(kind)


_DELETED = ManagementReply(status=int(StatusCode.DELETED), description="Gone")


def _delete_exchange(broker: Broker, caller: Caller, name: str, wanted: management.Deletion) -> ManagementReply:
    exchange = broker.topology.exchanges.get(name)
    if exchange is None:
        return _DELETED
    if wanted.owner_uid is not None and exchange.owner is not None and exchange.owner.uid != wanted.owner_uid:
        return refusal(Refuse(Reason.MANAGED, f"The exchange {name!r} is now declared by another resource."))
    if wanted.rights_only:
        return _end_rights(broker, exchange)
    bound = len(broker.topology.bound(name))
    refused = decide_exchange_deletion(name, bound, if_unused=wanted.if_unused)
    if refused is not None:
        return refusal(refused, {"boundSubscriptions": bound})
    logged_operations.tell_deleted(caller, "exchange", name)
    if exchange.temporary is not None:
        temporary_nodes.delete(broker, exchange)
        return _DELETED
    reason = Refuse(Reason.NODE_DELETED, f"The exchange {name!r} was deleted.")
    close.close_producers(broker, exchange, amqp_error(reason))
    broker.topology.delete_exchange(name)
    broker.routes.forget()
    return _DELETED


def _delete_subscription(broker: Broker, caller: Caller, name: str, wanted: management.Deletion) -> ManagementReply:
    identity = parse_queue_name(name)
    if identity is None:
        return invalid_request(f"{name!r} is not the queue name of a subscription.")
    subscription = broker.topology.subscriptions.get(identity)
    decision = decide_deletion(
        subscription.existing() if subscription is not None else None,
        subscription.queue.depth if subscription is not None else 0,
        if_unused=wanted.if_unused and not wanted.rights_only,
        if_empty=wanted.if_empty and not wanted.rights_only,
        owner_uid=wanted.owner_uid,
    )
    match decision:
        case NothingToDelete():
            return _DELETED
        case Refuse():
            assert subscription is not None
            return refusal(decision, _users_of(subscription.queue))
        case DeleteExisting():
            assert subscription is not None
            if wanted.rights_only:
                return _end_rights(broker, subscription)
            logged_operations.tell_deleted(caller, "subscription", name, subscription.queue.depth)
            close.end_subscription(broker, subscription)
            return _DELETED
        case _:
            assert_never(decision)


def _end_rights(broker: Broker, record: Exchange | Subscription) -> ManagementReply:
    """The resource that gave rights may not, or is gone; what it declared stays, and so do the messages."""
    if isinstance(record, Exchange) and record.publishers:
        record.publishers = ()
        broker.topology.put_exchange(record)
        broker.routes.forget()
        permission_review.check_links_soon(broker)
    elif isinstance(record, Subscription) and record.declared_consumers:
        record.declared_consumers = ()
        broker.topology.changed(record)
        permission_review.check_links_soon(broker)
    return _DELETED


def _users_of(queue: Queue) -> Value:
    """What is in the way of a deletion: the containers that consume, and the messages that wait."""
    containers: list[Value] = list(dict.fromkeys(each.connection.client.container_id for each in queue.links.consumers))
    return {"containers": containers[: entity_states.MAX_CONTAINERS], "depth": queue.depth}


def _delete_queue(broker: Broker, caller: Caller, name: str, wanted: management.Deletion) -> ManagementReply:
    node = broker.topology.queues.get(name)
    if node is None:
        return _DELETED
    if wanted.owner_uid is not None and node.owner is not None and node.owner.uid != wanted.owner_uid:
        return refusal(Refuse(Reason.MANAGED, f"The queue {name!r} is now declared by another resource."))
    if wanted.if_unused and node.queue.links.consumers:
        reason = Refuse(Reason.CONSUMERS_ACTIVE, f"The queue {name!r} has consuming links; stop them first.")
        return refusal(reason, _users_of(node.queue))
    if wanted.if_empty and node.queue.depth:
        reason = Refuse(
            Reason.NOT_EMPTY, f"The queue {name!r} holds {node.queue.depth} message(s); consume them first."
        )
        return refusal(reason, _users_of(node.queue))
    logged_operations.tell_deleted(caller, "queue", name, node.queue.depth)
    if node.temporary is not None:
        temporary_nodes.delete(broker, node)
    else:
        close.end_queue(broker, node, Refuse(Reason.NODE_DELETED, f"The queue {name!r} was deleted."))
    return _DELETED


def _close_connection(broker: Broker, caller: Caller, name: str) -> ManagementReply:
    connection = broker.clients.connections.get(int(name)) if name.isdigit() else None
    if connection is not None:
        logged_operations.tell_deleted(caller, "connection", f"{name} of {connection.transport.peer}")
        connection_end.close_connection(
            broker, connection, AmqpError("amqp:connection:forced", "Closed by the administrator.")
        )
    return _DELETED
