"""DELETE: reads what it asks, lets the rules decide, and ends the entity. What is absent is gone already: success.

Nothing here answers: the node does, once what was written is synced. Source: docs/management.md, design section 5.
"""

from __future__ import annotations

from typing import assert_never

from pydantic import ValidationError

from penstock_amqp.endpoint.events import AmqpError
from penstock_amqp.types.values import Value
from penstock_api import management
from penstock_api.management import EntityType, StatusCode
from penstock_api.validation_messages import validation_messages
from penstock_broker.attach import close, open, temporary
from penstock_broker.errors import amqp_error
from penstock_broker.management import entity_states
from penstock_broker.management.responses import Response, invalid, refusal
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_core.declaration_rules import DeleteExisting, NothingToDelete, decide_deletion, decide_exchange_deletion
from penstock_core.identity import parse_queue_name
from penstock_core.reason import Reason, Refuse

__all__ = ["delete"]


def delete(broker: Broker, kind: EntityType, name: str | None, body: Value) -> Response:
    """DELETE one entity; what is absent is gone already."""
    try:
        wanted = management.Deletion.model_validate(body if body is not None else {})
    except ValidationError as error:
        return invalid(f"The body does not fit a deletion: {'; '.join(validation_messages(error, whole='body'))}.")
    match kind:
        case EntityType.EXCHANGE:
            return _delete_exchange(broker, name or "", wanted)
        case EntityType.SUBSCRIPTION:
            return _delete_subscription(broker, name or "", wanted)
        case EntityType.QUEUE:
            return _delete_queue(broker, name or "", wanted)
        case EntityType.CONNECTION:
            return _close_connection(broker, name or "")
        case EntityType.BROKER | EntityType.LINK:
            return refusal(Refuse(Reason.NOT_IMPLEMENTED, f"A {kind.value} can't be deleted."))
        case _:
            assert_never(kind)


_GONE = Response(status=int(StatusCode.DELETED), description="Gone")


def _delete_exchange(broker: Broker, name: str, wanted: management.Deletion) -> Response:
    exchange = broker.topology.exchanges.get(name)
    if exchange is None:
        return _GONE
    if wanted.owner_uid is not None and exchange.owner is not None and exchange.owner.uid != wanted.owner_uid:
        return refusal(Refuse(Reason.MANAGED, f"The exchange {name!r} is declared by another resource by now."))
    bound = len(broker.topology.bound(name))
    refused = decide_exchange_deletion(name, bound, if_unused=wanted.if_unused)
    if refused is not None:
        return refusal(refused, {"boundSubscriptions": bound})
    if exchange.temporary is not None:
        temporary.delete(broker, exchange)
        return _GONE
    told = Refuse(Reason.NODE_DELETED, f"The exchange {name!r} was deleted.")
    close.close_producers(broker, exchange, amqp_error(told))
    broker.topology.delete_exchange(name)
    broker.routes.forget()
    return _GONE


def _delete_subscription(broker: Broker, name: str, wanted: management.Deletion) -> Response:
    identity = parse_queue_name(name)
    if identity is None:
        return invalid(f"{name!r} is not the queue name of a subscription.")
    subscription = broker.topology.subscriptions.get(identity)
    decision = decide_deletion(
        subscription.existing() if subscription is not None else None,
        subscription.queue.depth if subscription is not None else 0,
        if_unused=wanted.if_unused,
        if_empty=wanted.if_empty,
        owner_uid=wanted.owner_uid,
    )
    match decision:
        case NothingToDelete():
            return _GONE
        case Refuse():
            assert subscription is not None
            return refusal(decision, _in_the_way(subscription.queue))
        case DeleteExisting():
            assert subscription is not None
            close.end_subscription(broker, subscription)
            return _GONE
        case _:
            assert_never(decision)


def _in_the_way(queue: Queue) -> Value:
    containers: list[Value] = list(dict.fromkeys(each.connection.container_id for each in queue.links.consumers))
    return {"containers": containers[: entity_states.MAX_CONTAINERS], "depth": queue.depth}


def _delete_queue(broker: Broker, name: str, wanted: management.Deletion) -> Response:
    node = broker.topology.queues.get(name)
    if node is None:
        return _GONE
    if wanted.if_unused and node.queue.links.consumers:
        told = Refuse(Reason.CONSUMERS_ACTIVE, f"The queue {name!r} has consuming links; stop them first.")
        return refusal(told, _in_the_way(node.queue))
    if wanted.if_empty and node.queue.depth:
        told = Refuse(Reason.NOT_EMPTY, f"The queue {name!r} holds {node.queue.depth} message(s); consume them first.")
        return refusal(told, _in_the_way(node.queue))
    if node.temporary is not None:
        temporary.delete(broker, node)
    else:
        close.end_queue(broker, node, Refuse(Reason.NODE_DELETED, f"The queue {name!r} was deleted."))
    return _GONE


def _close_connection(broker: Broker, name: str) -> Response:
    connection = broker.clients.connections.get(int(name)) if name.isdigit() else None
    if connection is not None:
        open.close(broker, connection, AmqpError("amqp:connection:forced", "Closed by the administrator."))
    return _GONE
