"""What the status says of a Secret that a Subscription or a Queue asks for. Ready does not depend on it.

Source: docs/decisions/070-observer-tokens.md, docs/decisions/111-binding-secrets.md.
"""

from __future__ import annotations

from dataclasses import replace

from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.decisions import ChildState, Report, Retry
from penstock_operator.plans.refusals import Refusal

__all__ = ["secret_condition", "with_secret_condition"]


def secret_condition(
    type: str, name: str, kind: str, state: ChildState, refusal: Refusal | None, *, written: str, pending: str
) -> StatusCondition:
    """The condition `type` about the Secret `name` of a resource of `kind`.

    `written` and `pending`: what it says if the Secret is there, and if the operator can't write it yet.
    """
    match state:
        case ChildState.APPLIED:
            return StatusCondition(type, ConditionStatus.TRUE, ConditionReason.WRITTEN, written)
        case ChildState.TAKEN:
            said = f"There is a Secret {name} that is not the operator's. Rename or delete it."
            return StatusCondition(type, ConditionStatus.FALSE, ConditionReason.NAME_TAKEN, said)
        case ChildState.PREDECESSOR:
            said = f"The Secret {name} of a deleted {kind} is being removed."
            return StatusCondition(type, ConditionStatus.FALSE, ConditionReason.PREDECESSOR_LEAVING, said)
        case ChildState.REFUSED:
            assert refusal is not None
            return StatusCondition(type, ConditionStatus.FALSE, refusal.reason, refusal.message)
        case ChildState.UNKNOWN | ChildState.GONE:
            return StatusCondition(type, ConditionStatus.UNKNOWN, ConditionReason.PENDING, pending)


def with_secret_condition(report: Report, found: StatusCondition) -> Report:
    """The report with this condition; the resource is looked at again soon while the Secret is not there."""
    retry = report.retry if found.status is ConditionStatus.TRUE else Retry.BACKOFF
    return replace(report, conditions=(*report.conditions, found), retry=retry)
