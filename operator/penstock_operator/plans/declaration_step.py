"""What stands between a resource that may be declared and the broker's reply, the same for every kind that is declared:
a broker that does not answer, or one that is too old for what the resource uses; else the declaration is sent.

Source: docs/decisions/061-different-releases.md, docs/decisions/097-outages.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from penstock_api.management import EntityType, ExchangeDeclaration, QueueDeclaration, SubscriptionDeclaration
from penstock_api.resources import Declaring
from penstock_operator.plans import outage
from penstock_operator.plans.acceptance import not_connected, terms_not_known
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.decisions import BrokerReply, BrokerView, DeclareEntity, KeepStatus

__all__ = ["DeclaringView", "declaration_step"]

Declaration: TypeAlias = ExchangeDeclaration | SubscriptionDeclaration | QueueDeclaration


class DeclaringView(Protocol):
    """What of a view the step depends on."""

    @property
    def resource(self) -> Declaring:
        """What is to be declared."""
        ...

    @property
    def broker(self) -> BrokerView:
        """The Broker on which it is declared."""
        ...

    @property
    def reply(self) -> BrokerReply | None:
        """The broker's reply to the declaration of this reconcile."""
        ...


def declaration_step(
    view: DeclaringView, kind: str, entity: EntityType, name: str | None, wanted: Callable[[], Declaration]
) -> DeclareEntity | KeepStatus | StatusCondition | None:
    """What to do before the broker's reply can be judged: send the declaration, keep the status, or say why it can't be
    sent, as the condition `kind` (Bound or Declared). None: the reply is there.

    `name`: how the broker is to call the entity, None if the declaration says it.
    """
    unknown = not_connected(view.broker, kind)
    if unknown is not None:
        return KeepStatus() if outage.keeps_status(view.broker, view.resource, kind) else unknown
    if view.reply is not None:
        return None
    body = wanted()
    problem = terms_not_known(view.broker, body)
    if problem is not None:
        return StatusCondition(kind, ConditionStatus.FALSE, ConditionReason.BROKER_TOO_OLD, problem)
    return DeclareEntity(entity, name, body)
