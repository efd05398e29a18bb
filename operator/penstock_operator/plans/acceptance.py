"""Whether an Exchange, a Subscription or a Queue may be declared on its Broker: references, duplicates, and the
annotation that pauses it.

A message must not show a user of one namespace what exists in another one, so "does not exist" and "is not allowed"
have the same message. Source: docs/decisions/052-namespaces-and-duplicates.md, docs/decisions/056-conditions.md,
docs/decisions/061-different-releases.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, TypeVar, assert_never

from penstock_api import declaration, release_terms
from penstock_api.management import ManagementDocument
from penstock_api.resources import Broker, Declaring, Exchange, Queue, Subscription
from penstock_core.reason import Reason as BrokerReason
from penstock_operator import names
from penstock_operator.plans import conditions
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.decisions import BrokerReply, BrokerView, Reach, Retry

__all__ = [
    "ACCEPTED",
    "broker_not_usable",
    "declaration_refused",
    "duplicate",
    "is_allowed",
    "not_accepted",
    "not_connected",
    "not_lent",
    "not_visible",
    "oldest",
    "paused_conditions",
    "retry_of",
    "terms_not_known",
    "unreadable",
]


_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OF_A_SPEC: Final = frozenset({"Ready", "Accepted", "Stalled"})
"""Conditions that are anew with each spec."""

DeclaringT = TypeVar("DeclaringT", Exchange, Subscription, Queue)


def is_allowed(namespace: str, target: Broker | Exchange) -> bool:
    """Whether resources of `namespace` may refer to `target`; those of its own namespace always may."""
    allowed = target.spec.allowed_namespaces
    return namespace == target.metadata.namespace or "*" in allowed or namespace in allowed


def oldest(candidates: Iterable[DeclaringT]) -> DeclaringT | None:
    """The resource that has the entity, of those that declare it: the oldest one; if two were created in the same
    second, the one with the lower uid.
    """
    return min(
        candidates, key=lambda it: (it.metadata.creation_timestamp or _BEGINNING, it.metadata.uid, it.key), default=None
    )


ACCEPTED: Final = StatusCondition(
    "Accepted", ConditionStatus.TRUE, ConditionReason.ACCEPTED, "The spec is valid and its references may be followed."
)


def not_accepted(reason: ConditionReason, message: str) -> StatusCondition:
    """Condition Accepted=False: the spec can't be declared as it is."""
    return StatusCondition("Accepted", ConditionStatus.FALSE, reason, message)


def broker_not_usable(namespace: str, key: tuple[str, str], view: BrokerView) -> StatusCondition | None:
    """Why a resource of `namespace` may not use the Broker `key` (namespace, name); None if it may.

    For a Broker of another namespace, the condition does not show whether it does not exist, is not allowed or can't be
    read.
    """
    home, name = key
    if view.broker is not None and is_allowed(namespace, view.broker):
        return being_deleted(name) if view.reach is Reach.DELETING else None
    if home != namespace:
        return not_visible("Broker", key, namespace)
    if view.reach is Reach.UNREADABLE:
        return unreadable("Broker", name)
    return not_accepted(ConditionReason.BROKER_NOT_FOUND, f"There is no Broker {name} in this namespace. Create it.")


def being_deleted(name: str) -> StatusCondition:
    """Condition Accepted=False: the Broker of this name takes no declarations any more."""
    return not_accepted(
        ConditionReason.BROKER_DELETING,
        f"Broker {name} is being deleted, so nothing is declared on it any more; what it has goes with it. This "
        "resource is declared when there is a Broker of this name again.",
    )


def not_visible(kind: str, key: tuple[str, str], namespace: str) -> StatusCondition:
    """Condition Accepted=False: a resource of another namespace that resources of `namespace` may not use."""
    return not_accepted(
        ConditionReason.NAMESPACE_NOT_ALLOWED,
        f"{kind} {'/'.join(key)} does not exist, its `allowedNamespaces` does not contain {namespace}, or this "
        "operator can't read it.",
    )


def not_lent(name: str) -> StatusCondition:
    """Condition Accepted=False: the Exchange of this name declares nothing, because a resource of another namespace has
    declared the same exchange before, and that one must not be used from here.
    """
    return not_accepted(
        ConditionReason.NAMESPACE_NOT_ALLOWED,
        f"Exchange {name} declares nothing: an older one of another namespace has declared an exchange of the same "
        "name, and does not let this namespace use it. Name an Exchange with another `exchangeName`.",
    )


def unreadable(kind: str, name: str) -> StatusCondition:
    """Condition Accepted=False: what the resource refers to exists in its namespace and can't be parsed."""
    return not_accepted(
        ConditionReason.REFERENCE_UNREADABLE,
        f"This operator can't read {kind} {name}; its condition Ready says why. The broker keeps what it has.",
    )


def terms_not_known(view: BrokerView, wanted: ManagementDocument) -> str | None:
    """Why a broker of this release can't be sent this declaration, None if it can.

    Fields with their default values are not sent, so a broker older than the operator is affected only if the resource
    uses a newer feature.
    """
    unknown = release_terms.missing(wanted, view.understands)
    if not unknown or view.broker is None:
        return None
    terms = ", ".join(f"`{term}`" for term in unknown)
    return (
        f"The broker, version {view.version}, does not know {terms}. Upgrade it by "
        f"`spec.image` of Broker {view.broker.metadata.name}, or leave out what it does not know; until then "
        "it keeps what it has."
    )


def not_connected(view: BrokerView, kind: str) -> StatusCondition | None:
    """The condition `kind` (Bound or Declared) while the broker's management can't be used; None if it can."""
    match view.reach:
        case Reach.CONNECTED:
            return None
        case Reach.STOPPED:
            message = "The Broker is scaled to zero. This resource is declared on it when the Broker runs again."
            return StatusCondition(kind, ConditionStatus.FALSE, ConditionReason.BROKER_STOPPED, message)
        case Reach.NOT_UNDERSTOOD:
            return StatusCondition(kind, ConditionStatus.UNKNOWN, ConditionReason.OPERATOR_TOO_OLD, view.problem)
        case Reach.NOT_ASKED:
            assert view.broker is not None, "there is nobody to ask"
            message = (
                f"The operator has not asked Broker {view.broker.metadata.name} yet; its condition Ready says what it "
                "waits for. This resource is declared on it when it answers."
            )
            return StatusCondition(kind, ConditionStatus.UNKNOWN, ConditionReason.BROKER_NOT_ASKED, message)
        case Reach.UNREACHABLE if view.broker is not None:
            # The sentence does not change with the error of each attempt, which would be a write for each resource.
            message = (
                f"Broker {view.broker.metadata.name} does not answer; its condition Available says why. This resource "
                "is declared on it when it answers."
            )
            return StatusCondition(kind, ConditionStatus.UNKNOWN, ConditionReason.BROKER_UNREACHABLE, message)
        case Reach.ABSENT | Reach.UNREADABLE | Reach.DELETING | Reach.UNREACHABLE:
            return StatusCondition(kind, ConditionStatus.UNKNOWN, ConditionReason.BROKER_UNREACHABLE, view.problem)
        case _:
            assert_never(view.reach)


def declaration_refused(view: BrokerView, kind: str, reply: BrokerReply) -> StatusCondition:
    """The condition `kind` (Bound or Declared) after the broker refused a declaration.

    The operator sends only valid requests. So a broker that calls one invalid, and does not report what it understands,
    is of an earlier release.
    """
    said = f"The broker refused with {reply.condition or reply.status}: {reply.description}"
    is_earlier = reply.reason == BrokerReason.INVALID_REQUEST.value and view.understands is None
    if not is_earlier or view.broker is None:
        return StatusCondition(kind, ConditionStatus.FALSE, conditions.condition_reason(reply.reason), said)
    message = (
        f"{said} The broker is of an earlier release (version {view.version or 'unknown'}): upgrade it by "
        f"`spec.image` of Broker {view.broker.metadata.name}, or leave out what it refused; until then it "
        "keeps what it has."
    )
    return StatusCondition(kind, ConditionStatus.FALSE, ConditionReason.BROKER_TOO_OLD, message)


def retry_of(condition: StatusCondition) -> Retry:
    """When a resource with this failure is reconciled again."""
    return Retry.RESYNC if conditions.needs_a_person(condition.reason) else Retry.BACKOFF


def duplicate(resource: Declaring, winner: Declaring, broker: str) -> StatusCondition:
    """Condition Accepted=False: an older resource, `winner`, declares the same entity.

    A winner of another namespace is not named, because readers of this resource may not be allowed to see it.
    """
    match resource:
        case Exchange():
            reason, field = ConditionReason.DUPLICATE_EXCHANGE, "exchangeName"
            what = repr(declaration.exchange_name(resource))
        case Subscription():
            reason, field = ConditionReason.DUPLICATE_SUBSCRIPTION, "subscriptionName"
            what = str(declaration.subscription_identity(resource))
        case Queue():
            reason, field = ConditionReason.DUPLICATE_QUEUE, "queueName"
            what = repr(declaration.queue_name(resource))
        case _:
            assert_never(resource)
    is_visible = winner.metadata.namespace == resource.metadata.namespace
    who = f"{winner.kind} {winner.metadata.name}" if is_visible else "A resource of another namespace"
    return not_accepted(
        reason,
        (
            f"{who} is older and already declares {what} on Broker {broker}. Choose another `{field}`, or delete one "
            "of the two."
        ),
    )


def paused_conditions(resource: Declaring) -> tuple[StatusCondition, ...]:
    """The conditions of a paused resource: those that it has, except what the lag says, and ReconciliationPaused.

    If they are about an earlier spec, it is not Ready: the broker does not have the new one.
    """
    kept = tuple(
        StatusCondition(one.type, ConditionStatus(one.status), one.reason, one.message)
        for one in resource.status.conditions
        if one.type != "ReconciliationPaused" and one.type not in conditions.OF_LAG
    )
    if _has_undeclared_spec(resource):
        why = (
            f"The broker was not told of this spec, because the annotation `{names.PAUSED}` is set. Remove the "
            "annotation to put the spec into force."
        )
        accepted = StatusCondition("Accepted", ConditionStatus.UNKNOWN, ConditionReason.PAUSED_BY_ANNOTATION, why)
        kept = conditions.ready_from((accepted, *(one for one in kept if one.type not in _OF_A_SPEC)), "")
    said = f"Nothing is changed on the broker while the annotation `{names.PAUSED}` is set."
    return (
        *kept,
        StatusCondition("ReconciliationPaused", ConditionStatus.TRUE, ConditionReason.PAUSED_BY_ANNOTATION, said),
    )


def _has_undeclared_spec(resource: Declaring) -> bool:
    """Whether the broker was not told of a paused resource's spec: its conditions are about another generation, or said
    so already. Of a Broker, whose pods have to be seen too, `broker_acceptance` says it by a rule of its own.
    """
    if resource.status.observed_generation != resource.metadata.generation:
        return True
    return any(
        one.type == "Accepted" and one.reason == ConditionReason.PAUSED_BY_ANNOTATION
        for one in resource.status.conditions
    )
