"""What the API server refused, and what a person can do about it: from its answer to a reason and a message.

An answer that waiting cures is no refusal: a conflict with another client, an overload, a namespace that is being
deleted. Its request is repeated, and no condition says so. Source: docs/decisions/098-refusals-of-the-api-server.md;
Kubernetes API conventions ("HTTP Status codes", "Status").
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock_api import resources
from penstock_operator.plans import conditions
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition

__all__ = ["Refusal", "ServerAnswer", "not_applied", "refusal_in", "refused_conditions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAnswer:
    """An answer of the API server that is not a success."""

    status: int
    """The HTTP status code; 0: there was no answer."""
    said: str
    """The request, and the server's own words."""
    causes: frozenset[str] = frozenset()
    """The reasons in `details.causes` of the answer, such as FieldValueForbidden."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the API server does not take what the operator asked for, in the words of a condition."""

    reason: ConditionReason
    message: str


_TRANSIENT: Final = frozenset({0, 401, 404, 408, 409, 410, 429})
"""Also 404: the object or its namespace was deleted meanwhile, and 401: the token is renewed."""
_NAMESPACE_TERMINATING: Final = "NamespaceTerminating"
_QUOTA: Final = re.compile("(exceeded|failed|insufficient) quota")
_ADMISSION: Final = re.compile("admission webhook .* denied|denied (the )?request|failed calling webhook")
_NO_RIGHT: Final = re.compile('[Uu]ser "[^"]*" cannot ')
_IMMUTABLE: Final = re.compile("immutable|updates to statefulset spec for fields other than|may not change once set")

_CURES: Final[dict[ConditionReason, str]] = {
    ConditionReason.QUOTA_EXCEEDED: (
        "Raise the ResourceQuota of the namespace, or delete what uses it up. The operator then goes on by itself."
    ),
    ConditionReason.DENIED_BY_ADMISSION: (
        "Change in the spec what the policy or the webhook objects to, or have whoever runs it let the operator's "
        "objects pass (they have the label app.kubernetes.io/managed-by=penstock-operator). The operator then goes on "
        "by itself."
    ),
    ConditionReason.OPERATOR_NOT_ALLOWED: (
        "Give the operator's ServiceAccount this right: upgrade the chart penstock-operator to the operator's version, "
        "with this namespace in `watchNamespaces` if that is set."
    ),
    ConditionReason.FIELD_IMMUTABLE: (
        "Delete the object that the request names, and the operator makes it again; a StatefulSet with "
        "`kubectl delete --cascade=orphan`, so that its pod and its volumes stay."
    ),
    ConditionReason.REFUSED_BY_API_SERVER: (
        "Correct the spec if the server names one of its values. If it does not, this is a fault of the operator: "
        "report this message."
    ),
}


def refusal_in(answer: ServerAnswer) -> Refusal | None:
    """The refusal that an answer is; None if waiting cures it, and the request is to be repeated."""
    reason = _reason(answer)
    if reason is None:
        return None
    said = answer.said.rstrip().removesuffix(".")
    return Refusal(reason, f"The Kubernetes API server refused: {said}. {_CURES[reason]}")


def _reason(answer: ServerAnswer) -> ConditionReason | None:
    if answer.status in _TRANSIENT or _NAMESPACE_TERMINATING in answer.causes:
        return None
    if _ADMISSION.search(answer.said):
        return ConditionReason.DENIED_BY_ADMISSION
    if answer.status >= 500:
        return None
    if answer.status == 403:
        if _QUOTA.search(answer.said):
            return ConditionReason.QUOTA_EXCEEDED
        # What else is forbidden was so by an admission plugin of the API server, such as LimitRanger.
        is_right = _NO_RIGHT.search(answer.said) is not None
        return ConditionReason.OPERATOR_NOT_ALLOWED if is_right else ConditionReason.DENIED_BY_ADMISSION
    if answer.status == 422 and _IMMUTABLE.search(answer.said):
        return ConditionReason.FIELD_IMMUTABLE
    return ConditionReason.REFUSED_BY_API_SERVER


def not_applied(refusal: Refusal) -> StatusCondition:
    """Condition Accepted=False: the spec can't be put into force, because the API server refuses a part of it."""
    return StatusCondition("Accepted", ConditionStatus.FALSE, refusal.reason, refusal.message)


def refused_conditions(before: Iterable[resources.Condition], refusal: Refusal) -> tuple[StatusCondition, ...]:
    """The conditions of a resource whose pass ended with a refusal: what it has said of its other conditions stays."""
    decided = conditions.ready_from((not_applied(refusal),), "")
    replaced = {condition.type for condition in decided} | {"Stalled"} | conditions.OF_LAG
    kept = (
        StatusCondition(one.type, ConditionStatus(one.status), one.reason, one.message)
        for one in before
        if one.type not in replaced
    )
    return (*decided, *kept)
