"""CREATE and UPDATE: reads the document, and lets the module of its kind do what it says.

Idempotent. The reply is returned; the node sends it once the change is synced. Source: docs/reference/management.md,
docs/decisions/014-managed-subscriptions.md, docs/decisions/047-management-node.md.
"""

from __future__ import annotations

from typing import assert_never

from pydantic import ValidationError

from penstock_amqp.types.values import Value
from penstock_api import management
from penstock_api.management import EntityType
from penstock_api.validation_messages import validation_messages
from penstock_broker.management.declaration_replies import shortened
from penstock_broker.management.declare_exchange import declare_exchange
from penstock_broker.management.declare_queue import declare_queue
from penstock_broker.management.declare_subscription import declare_subscription
from penstock_broker.management.replies import ManagementReply, invalid_request, refusal
from penstock_broker.state.broker import Broker
from penstock_core.reason import Reason, Refuse

__all__ = ["declare"]


def declare(
    broker: Broker,
    kind: EntityType,
    name: str | None,
    body: Value,
    *,
    update: bool,
    attributes: frozenset[str] | None = None,
) -> ManagementReply:
    """CREATE or UPDATE one entity. `attributes`: the only keys of its state that the reply is to have; None: all."""
    reply = _declare(broker, kind, name, body, update, attributes)
    return reply if attributes is None or reply.refuse is not None else shortened(reply, attributes)


def _declare(
    broker: Broker, kind: EntityType, name: str | None, body: Value, update: bool, attributes: frozenset[str] | None
) -> ManagementReply:
    try:
        match kind:
            case EntityType.EXCHANGE:
                exchange = management.ExchangeDeclaration.model_validate(body)
                return declare_exchange(broker, name, exchange, update=update)
            case EntityType.SUBSCRIPTION:
                subscription = management.SubscriptionDeclaration.model_validate(body)
                return declare_subscription(broker, name, subscription, update=update, attributes=attributes)
            case EntityType.QUEUE:
                queue = management.QueueDeclaration.model_validate(body)
                return declare_queue(broker, name, queue, update=update)
            case EntityType.BROKER | EntityType.CONNECTION | EntityType.LINK:
                return refusal(Refuse(Reason.NOT_IMPLEMENTED, f"A {kind.value} can't be made or changed."))
            case _:
                assert_never(kind)
    except ValidationError as error:
        return invalid_request(
            f"The body does not fit {kind.value}: {'; '.join(validation_messages(error, whole='body'))}."
        )
