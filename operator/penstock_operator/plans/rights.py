"""The rights that an Exchange or a Subscription gives: the condition Permitted, and how they end.

Rights are part of the declaration, so they end with it. A resource that may not be declared any more, or is gone and
keeps what it declared, would leave them behind; they are then ended without it. Source:
docs/decisions/110-rights-given-by-resources.md.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from penstock_api.delegation import Rights, rights_of
from penstock_api.management import EntityType
from penstock_api.resources import Exchange, Subscription
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.decisions import BrokerReply, BrokerView, DeleteEntity, Reach

__all__ = ["are_known", "given", "permitted", "withdrawal"]

_TERMS: Final = {
    EntityType.EXCHANGE: "exchange.publishers",
    EntityType.SUBSCRIPTION: "subscription.consumers",
}
"""What a broker understands that knows rights."""


def given(view: BrokerView, resource: Exchange | Subscription) -> Rights:
    """The rights that are declared with a resource."""
    return Rights() if view.broker is None else rights_of(view.broker, resource)


def permitted(view: BrokerView, resource: Exchange | Subscription) -> tuple[StatusCondition, ...]:
    """Whether the broker has all rights that the spec gives; no condition if it gives none."""
    rights = given(view, resource)
    if rights.problem:
        found = StatusCondition("Permitted", ConditionStatus.FALSE, ConditionReason.NOT_DELEGATED, rights.problem)
        return (found,)
    if not rights.users:
        return ()
    what = "publish to" if isinstance(resource, Exchange) else "consume from"
    said = f"Those whom the spec names may {what} it."
    return (StatusCondition("Permitted", ConditionStatus.TRUE, ConditionReason.GRANTED, said),)


def are_known(understands: Set[str], entity: EntityType) -> bool:
    """Whether a broker that understands these terms knows rights of this type of entity."""
    return entity in _TERMS and _TERMS[entity] in understands


def withdrawal(
    view: BrokerView, entity: EntityType, name: str, uid: str, reply: BrokerReply | None
) -> DeleteEntity | None:
    """The request that ends the rights which this resource gave; None if the broker has answered it, can't be asked, or
    does not know rights.
    """
    is_known = are_known(view.understands or frozenset(), entity)
    if reply is not None or view.reach is not Reach.CONNECTED or not is_known:
        return None
    return DeleteEntity(entity=entity, name=name, if_unused=False, if_empty=False, owner_uid=uid, rights_only=True)
