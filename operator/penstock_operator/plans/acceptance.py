"""Who may use what of another namespace, and which of two resources that want the same thing has it. Pure.

A message must not tell a person of one namespace what is in another: "not there" and "not allowed" read the same.
Source: section 5 of the design (allow lists, duplicates).

What Exchanges and Subscriptions have in common before they are declared: Accepted, and the pause. Pure.

`exchanges` and `subscriptions` decide with it. Source: docs/operator.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, TypeVar, assert_never

from penstock_api import declaration, resources, understanding
from penstock_api.management import Document
from penstock_api.resources import Broker, Exchange, Subscription
from penstock_core.reason import Reason as BrokerReason
from penstock_operator import names
from penstock_operator.plans import conditions
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.decisions import BrokerReply, BrokerView, Reach, Retry

__all__ = [
    "ACCEPTED",
    "broker_problem",
    "duplicate",
    "is_allowed",
    "not_understood",
    "oldest",
    "paused",
    "refuse",
    "refused",
    "retry_of",
    "unasked",
]


_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)

DeclaringT = TypeVar("DeclaringT", Exchange, Subscription)


def is_allowed(namespace: str, target: Broker | Exchange) -> bool:
    """Whether resources in `namespace` may refer to `target`: its own namespace always may."""
    allowed = target.spec.allowed_namespaces
    return namespace == target.metadata.namespace or "*" in allowed or namespace in allowed


def oldest(candidates: Iterable[DeclaringT]) -> DeclaringT | None:
    """The one that wins: made first; of the same second, the lower uid, so that all operators agree."""
    return min(
        candidates, key=lambda it: (it.metadata.creation_timestamp or _BEGINNING, it.metadata.uid, it.key), default=None
    )


ACCEPTED: Final = StatusCondition(
    "Accepted", ConditionStatus.TRUE, ConditionReason.ACCEPTED, "The spec is valid and its references may be followed."
)


def refuse(reason: ConditionReason, message: str) -> StatusCondition:
    """The spec can't be declared as it stands."""
    return StatusCondition("Accepted", ConditionStatus.FALSE, reason, message)


def broker_problem(namespace: str, key: tuple[str, str], broker: Broker | None) -> StatusCondition | None:
    """Why a resource of `namespace` may not use the Broker that it names by (namespace, name); None if it may.

    A Broker elsewhere that allows nothing looks like one that is not there: its reader may not see which.
    """
    if broker is not None and is_allowed(namespace, broker):
        return None
    home, name = key
    if home != namespace:
        return refuse(
            ConditionReason.NAMESPACE_NOT_ALLOWED,
            f"Broker {home}/{name} is not there, or its `allowedNamespaces` does not name {namespace}.",
        )
    return refuse(ConditionReason.BROKER_NOT_FOUND, f"There is no Broker {name} in this namespace; make it.")


def not_understood(view: BrokerView, wanted: Document) -> str | None:
    """Why the broker's release can't be asked for this declaration, None if it can. What is at its default is never
    asked for, so a newer operator only meets this where a resource uses something new.
    """
    unknown = understanding.missing(wanted, view.understands)
    if not unknown or view.broker is None:
        return None
    terms = ", ".join(f"`{term}`" for term in unknown)
    return (
        f"The broker, version {view.version}, does not know {terms}. Upgrade it by "
        f"`spec.image` of Broker {view.broker.metadata.name}, or leave that out; until then it keeps what it has."
    )


def unasked(view: BrokerView, kind: str) -> StatusCondition | None:
    """The condition `kind` of a resource whose broker can't be asked now; None if it can."""
    match view.reach:
        case Reach.CONNECTED:
            return None
        case Reach.STOPPED:
            message = "The Broker is scaled to zero; it is declared when the Broker runs again."
            return StatusCondition(kind, ConditionStatus.FALSE, ConditionReason.BROKER_STOPPED, message)
        case Reach.NOT_UNDERSTOOD:
            return StatusCondition(kind, ConditionStatus.UNKNOWN, ConditionReason.OPERATOR_TOO_OLD, view.problem)
        case Reach.ABSENT | Reach.DELETING | Reach.UNREACHABLE:
            return StatusCondition(kind, ConditionStatus.UNKNOWN, ConditionReason.BROKER_UNREACHABLE, view.problem)
        case _:
            assert_never(view.reach)


def refused(view: BrokerView, kind: str, reply: BrokerReply) -> StatusCondition:
    """The condition `kind` after the broker has refused a declaration.

    What it calls an invalid request is valid to this operator, which sends no other: a broker that doesn't tell what it
    understands is of an earlier release then.
    """
    said = f"The broker refused with {reply.condition or reply.status}: {reply.description}"
    is_earlier = reply.reason == BrokerReason.INVALID_REQUEST.value and view.understands is None
    if not is_earlier or view.broker is None:
        return StatusCondition(kind, ConditionStatus.FALSE, conditions.condition_reason(reply.reason), said)
    message = (
        f"{said} It is of an earlier release (version {view.version or 'unknown'}): upgrade it by `spec.image` of "
        f"Broker {view.broker.metadata.name}, or leave out what it names; until then it keeps what it has."
    )
    return StatusCondition(kind, ConditionStatus.FALSE, ConditionReason.BROKER_TOO_OLD, message)


def retry_of(condition: StatusCondition) -> Retry:
    """When a resource with this failure is looked at again."""
    return Retry.RESYNC if conditions.needs_a_person(condition.reason) else Retry.BACKOFF


def duplicate(resource: Exchange | Subscription, winner: Exchange | Subscription, broker: str) -> StatusCondition:
    """An older resource, `winner`, has what this one wants to be. One in another namespace isn't named: its name is
    not for every reader of this one.
    """
    match resource:
        case Exchange():
            reason, field = ConditionReason.DUPLICATE_EXCHANGE, "exchangeName"
            what = repr(declaration.exchange_name(resource))
        case Subscription():
            reason, field = ConditionReason.DUPLICATE_SUBSCRIPTION, "subscriptionName"
            what = str(declaration.subscription_identity(resource))
        case _:
            assert_never(resource)
    is_visible = winner.metadata.namespace == resource.metadata.namespace
    who = f"{winner.kind} {winner.metadata.name}" if is_visible else "One of another namespace"
    return refuse(
        reason,
        f"{who} is older and declares {what} on Broker {broker}. Choose another `{field}`, or delete one of the two.",
    )


def paused(before: Iterable[resources.Condition], *, but: frozenset[str] = frozenset()) -> tuple[StatusCondition, ...]:
    """The conditions as they were, without the types in `but`, and the one that says that nothing is changed."""
    kept = (
        StatusCondition(one.type, ConditionStatus(one.status), one.reason, one.message)
        for one in before
        if one.type != "ReconciliationPaused" and one.type not in but
    )
    said = f"Nothing is changed on the broker while the annotation `{names.PAUSED}` is set."
    return (
        *kept,
        StatusCondition("ReconciliationPaused", ConditionStatus.TRUE, ConditionReason.PAUSED_BY_ANNOTATION, said),
    )
