"""What an exchange, a subscription or a queue is declared as: the body of the CREATE that would make it as it is now.

A READ tells it, so that `penstock export` can write manifests of what clients or people have made. A QUERY does not:
polls would pay for it. Source: docs/reference/management.md, "Requests".
"""

from __future__ import annotations

from typing import cast

from pydantic import ValidationError

from penstock_api.management import (
    DeliveryPolicy,
    ExchangeDeclaration,
    Owner,
    QueueDeclaration,
    SubscriptionDeclaration,
)
from penstock_broker.management.entity_states import StateDocument, declared
from penstock_broker.topology.records import Exchange, PointToPointQueue, Subscription

__all__ = ["exchange_declaration", "queue_declaration", "subscription_declaration"]

_OF_STATE = (
    "subscriptionName",
    "scope",
    "clientId",
    "sharing",
    "durable",
    "expiryPolicy",
    "exchange",
    "bindingKeys",
    "headerBindings",
    "selector",
    "noLocal",
)
"""What a state tells in the words of a declaration."""


def subscription_declaration(subscription: Subscription, of_clients: DeliveryPolicy) -> StateDocument | None:
    """None if it can't be declared so, because a client gave it values that a declaration does not have.

    `of_clients`: the delivery policy of subscriptions that nobody declared.
    """
    state = declared(subscription)
    document: dict[str, object] = {
        **{key: state[key] for key in _OF_STATE if state[key] is not None},
        "rebindPolicy": subscription.rebind_policy,
        "clientOverrides": subscription.client_overrides,
        "consumers": list(subscription.declared_consumers),
        "persistence": _persistence(subscription),
        "limits": subscription.limits.to_wire(),
        "delivery": _delivery(subscription.delivery, of_clients),
    }
    return _checked(SubscriptionDeclaration, document, subscription.owner)


def queue_declaration(node: PointToPointQueue, of_clients: DeliveryPolicy) -> StateDocument | None:
    """The same of a point-to-point queue that lasts."""
    document: dict[str, object] = {
        "durable": node.durable,
        "persistence": _persistence(node),
        "limits": node.limits.to_wire(),
        "delivery": _delivery(node.delivery, of_clients),
    }
    return _checked(QueueDeclaration, document, node.owner)


def exchange_declaration(exchange: Exchange) -> StateDocument | None:
    """The same of an exchange."""
    document: dict[str, object] = {
        "exchangeType": exchange.type.value,
        "durable": exchange.durable,
        "unroutable": exchange.unroutable.value,
        "alternateExchange": exchange.alternate,
        "publishers": list(exchange.publishers),
        "persistence": _persistence(exchange),
    }
    return _checked(ExchangeDeclaration, document, exchange.owner)


_POLICY = frozenset(field.alias for field in DeliveryPolicy.model_fields.values())


def _delivery(declared: DeliveryPolicy | None, of_clients: DeliveryPolicy) -> dict[str, object]:
    policy = declared if declared is not None else of_clients
    return {key: value for key, value in policy.to_wire().items() if key in _POLICY}


def _persistence(of: Exchange | Subscription | PointToPointQueue) -> str | None:
    """As it is in force: what was left out means Always for what a resource owns, else AsSent."""
    if of.persistence is not None:
        return of.persistence.value
    return "AsSent" if of.owner is None else "Always"


def _checked(
    model: type[SubscriptionDeclaration | ExchangeDeclaration | QueueDeclaration],
    document: dict[str, object],
    owner: Owner | None,
) -> StateDocument | None:
    try:
        declaration = model.model_validate(document).to_wire()
    except ValidationError:
        return None
    if owner is not None:
        declaration["owner"] = owner.to_wire()
    return cast(StateDocument, declaration)
