"""When it shows in the Exchanges, Subscriptions and Queues of a Broker that the broker does not answer.

A restart of a broker or of the operator is over within a grace of two minutes. Until then the Broker alone says that it
does not answer, and what is declared on it keeps the conditions that it has: otherwise every restart would cost two
writes for each resource. After the grace they would be a lie, so all of them say BrokerUnreachable; of a broker that
nobody could ask, they say BrokerNotAsked. Pure. Source: docs/decisions/097-outages.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from penstock_api.resources import Broker, Condition, Declaring
from penstock_operator.plans.broker_contact import BrokerContact
from penstock_operator.plans.conditions import ConditionReason
from penstock_operator.plans.decisions import BrokerView, Reach

__all__ = ["CLOCKS_DIFFER", "GRACE", "OF_THE_BROKER", "began", "is_over_grace", "keeps_status", "ready_reason"]

GRACE: Final = timedelta(minutes=2)
"""So long a broker may not answer before its resources say so; the alert PenstockBrokerUnreachable waits as long."""

CLOCKS_DIFFER: Final = timedelta(minutes=1)
"""The clocks of two machines may differ by so much: the time in a status is that of the operator which wrote it."""

OF_THE_BROKER: Final = frozenset(
    {
        ConditionReason.BROKER_DELETING,
        ConditionReason.BROKER_NOT_ASKED,
        ConditionReason.BROKER_NOT_FOUND,
        ConditionReason.BROKER_UNREACHABLE,
        ConditionReason.BROKER_STOPPED,
        ConditionReason.OPERATOR_TOO_OLD,
    }
)
"""The reasons that all resources of a Broker get at the same time, and lose at the same time."""


def began(broker: Broker, now: datetime) -> datetime:
    """Since when a broker certainly does not answer that has not done so since this operator started: as its status
    says, which outlives the operator, but a minute later; else now.
    """
    for condition in broker.status.conditions:
        is_away = condition.status != "True" and condition.reason != ConditionReason.SCALED_TO_ZERO
        if condition.type == "Available" and is_away:
            return min(condition.last_transition_time + CLOCKS_DIFFER, now)
    return now


def is_over_grace(contact: BrokerContact, now: datetime) -> bool:
    """Whether a broker has been silent for so long that it must show in its resources."""
    return contact.silent_since is not None and now - contact.silent_since >= GRACE


def keeps_status(view: BrokerView, resource: Declaring, kind: str) -> bool:
    """Whether a resource keeps the conditions that it has, because its broker may answer soon.

    `kind`: the condition that says whether it is declared, Bound or Declared. If the resource has none about this
    generation, there is nothing to keep.
    """
    if view.reach not in (Reach.NOT_ASKED, Reach.UNREACHABLE) or view.is_out:
        return False
    stored = {condition.type: condition for condition in resource.status.conditions}
    declared = stored.get(kind)
    is_current = declared is not None and declared.observed_generation == resource.metadata.generation
    return is_current and "ReconciliationPaused" not in stored


def ready_reason(conditions: Iterable[Condition]) -> str:
    """The reason of condition Ready, empty if there is none."""
    return next((condition.reason for condition in conditions if condition.type == "Ready"), "")
