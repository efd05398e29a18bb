"""What to do for a resource that is being deleted: ask the broker, wait, or remove the finalizer.

Two rules must both hold. No message is lost unless the `deletionPolicy` allows it; and no deletion waits for ever for a
broker or a namespace that is gone. If the finalizer is removed before the broker has deleted the entity, the entity
keeps its owner mark, and `orphans` finds and deletes it under the same policy when the broker is back.

The grace for a broker counts from the later of two moments: the deletion's request, and the one since which the broker
does not answer. A deletion may have waited for hours for consumers of a broker that works; that this broker is not
there for five seconds, or that the operator has just started and is not connected yet, must not end the wait. Source:
docs/decisions/055-deletion.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, assert_never, cast

from penstock_api import declaration
from penstock_api.management import EntityType
from penstock_api.resources import Declaring, Exchange, Queue, Subscription
from penstock_core.reason import Reason as BrokerReason
from penstock_operator import names
from penstock_operator.manifest import Manifest
from penstock_operator.plans import rights
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition, condition_reason
from penstock_operator.plans.decisions import (
    BrokerReply,
    BrokerView,
    DeleteEntity,
    KeepStatus,
    Reach,
    RemoveFinalizer,
    Report,
    Retry,
)

__all__ = ["GRACE_SECONDS", "DeletionView", "plan_deletion", "seconds_since", "view_of", "was_left_too_long"]

GRACE_SECONDS: Final = 30
"""Seconds for which a deletion waits in a terminating namespace, or for a broker that does not answer."""

_LEFT_SECONDS: Final = 120
"""Seconds after which an operator that manages the Broker would have released what has to be released: it waits for at
most the grace, and looks at everything every two minutes.
"""

_NOT_REACHED: Final[Mapping[Reach, ConditionReason]] = {
    Reach.UNREADABLE: ConditionReason.REFERENCE_UNREADABLE,
    Reach.NOT_ASKED: ConditionReason.BROKER_NOT_ASKED,
    Reach.UNREACHABLE: ConditionReason.BROKER_UNREACHABLE,
    Reach.NOT_UNDERSTOOD: ConditionReason.OPERATOR_TOO_OLD,
}
"""Why a deletion waits for a Broker that may be asked later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionView:
    """Everything on which the decision depends."""

    entity: EntityType
    name: str
    """The name of the exchange or queue on the broker."""
    uid: str
    policy: str
    is_protected: bool
    is_forced: bool
    broker: BrokerView
    is_duplicate: bool
    """An older resource declares the same entity; this one has declared nothing."""
    namespace_terminating: bool
    seconds: float
    """Seconds since the deletion was requested."""
    unanswered_seconds: float = 0
    """Seconds of these for which the broker has not answered until now; 0 if it did a moment ago."""
    reply: BrokerReply | None = None


def view_of(
    resource: Declaring,
    *,
    broker: BrokerView,
    is_duplicate: bool,
    namespace_terminating: bool,
    now: datetime,
    reply: BrokerReply | None,
) -> DeletionView:
    """The view of a resource that has a deletionTimestamp."""
    metadata = resource.metadata
    assert metadata.deletion_timestamp is not None
    requested = _requested_at(metadata.deletion_timestamp, now)
    since = max(requested, broker.unreachable_since or now)
    match resource:
        case Exchange():
            entity, name = EntityType.EXCHANGE, declaration.exchange_name(resource)
        case Subscription():
            entity, name = EntityType.SUBSCRIPTION, declaration.queue_name(resource)
        case Queue():
            entity, name = EntityType.QUEUE, declaration.queue_name(resource)
        case _:
            assert_never(resource)
    return DeletionView(
        entity=entity,
        name=name,
        uid=metadata.uid,
        policy=resource.spec.deletion_policy,
        is_protected=metadata.annotations.get(names.DELETE_PROTECTION) == "true",
        is_forced=metadata.annotations.get(names.FORCE_DELETE) == "true",
        broker=broker,
        is_duplicate=is_duplicate,
        namespace_terminating=namespace_terminating,
        seconds=(now - requested).total_seconds(),
        unanswered_seconds=(now - since).total_seconds(),
        reply=reply,
    )


def _requested_at(timestamp: datetime, now: datetime) -> datetime:
    """When a deletion was requested, by the operator's clock. If that is behind the API server's by more than the
    grace, the timestamp says nothing, and the deletion must not wait until it has passed.
    """
    grace = timedelta(seconds=GRACE_SECONDS)
    return timestamp if timestamp <= now + grace else now - grace


def seconds_since(requested: datetime, now: datetime) -> float:
    """Seconds since a deletion was requested, by the operator's clock."""
    return (now - _requested_at(requested, now)).total_seconds()


def was_left_too_long(requested: datetime, now: datetime) -> bool:
    """Whether another operator, to which the deletion of a resource is left, seems not to see it."""
    return seconds_since(requested, now) >= GRACE_SECONDS + _LEFT_SECONDS


def plan_deletion(view: DeletionView) -> DeleteEntity | KeepStatus | RemoveFinalizer | Report:
    """The next thing to do for a resource that has the operator's finalizer and a deletionTimestamp."""
    if view.is_protected and not view.namespace_terminating:
        return _blocked(
            ConditionReason.PROTECTED_BY_ANNOTATION,
            f"Deletion waits: the annotation `{names.DELETE_PROTECTION}` is set. Remove the annotation to continue.",
            Retry.RESYNC,
        )
    if view.is_duplicate:
        return RemoveFinalizer("another resource has declared the same entity")
    if view.broker.reach in (Reach.ABSENT, Reach.DELETING):
        return RemoveFinalizer("its Broker is gone")
    if view.policy == "Retain":
        ending = rights.withdrawal(view.broker, view.entity, view.name, view.uid, view.reply)
        return ending or RemoveFinalizer("its deletionPolicy is Retain")
    if view.broker.reach is Reach.STOPPED:
        return RemoveFinalizer("its Broker is scaled to zero", is_removal_pending=True)
    if view.reply is not None and view.reply.is_success:
        return RemoveFinalizer("the broker has deleted the entity")
    if view.seconds >= GRACE_SECONDS and view.namespace_terminating:
        return RemoveFinalizer("its namespace is terminating", is_removal_pending=True)
    if view.broker.reach in _NOT_REACHED:
        return _unreachable(view)
    if view.reply is None:
        return DeleteEntity(
            entity=view.entity,
            name=view.name,
            if_unused=not view.is_forced and _waits_for_users(view),
            if_empty=not view.is_forced and view.policy == "DeleteWhenEmpty",
            owner_uid=view.uid,
        )
    return _refused(view, view.reply)


def _waits_for_users(view: DeletionView) -> bool:
    """Whether the broker must keep an entity that is in use: a subscription or a queue with consumers always, an
    exchange with subscriptions if the policy is DeleteWhenUnused.
    """
    return view.entity is not EntityType.EXCHANGE or view.policy == "DeleteWhenUnused"


def _unreachable(view: DeletionView) -> KeepStatus | RemoveFinalizer | Report:
    if view.broker.is_awaited and not view.is_forced:
        return KeepStatus(Retry.BACKOFF)
    if view.is_forced or view.unanswered_seconds >= GRACE_SECONDS:
        return RemoveFinalizer(
            "its broker does not answer; the entity is deleted when the broker is back", is_removal_pending=True
        )
    return _blocked(
        _NOT_REACHED[view.broker.reach],
        (
            f"Deletion waits for the broker: {view.broker.problem} Annotate with `{names.FORCE_DELETE}=true` to "
            "delete without waiting."
        ),
        Retry.BACKOFF,
    )


def _refused(view: DeletionView, reply: BrokerReply) -> RemoveFinalizer | Report:
    match reply.reason:
        case BrokerReason.MANAGED.value:
            return RemoveFinalizer("another resource declares the entity now")
        case BrokerReason.CONSUMERS_ACTIVE.value:
            containers = _words(reply.body.get("containers"))
            who = f"consumers in {', '.join(containers)}" if containers else "consumers"
            message = f"Deletion waits: it is still used by {who}. Stop them"
        case BrokerReason.NOT_EMPTY.value:
            message = f"Deletion waits: {reply.body.get('depth', 'some')} message(s) are in its queue. Consume them"
        case BrokerReason.BINDINGS_EXIST.value:
            message = "Deletion waits: subscriptions are bound to it. Delete them"
        case _ if view.is_forced:
            return RemoveFinalizer("its deletion is forced, and the broker refused it", is_removal_pending=True)
        case _:
            message = (
                f"The broker refused the deletion: {reply.description} Annotate with `{names.FORCE_DELETE}=true` to "
                "delete the resource without waiting; its entity is then deleted as soon as the broker allows it."
            )
            return _blocked(condition_reason(reply.reason), message, Retry.BACKOFF)
    lost = " and lose the messages" if view.entity is not EntityType.EXCHANGE else ""
    message = f"{message}, or annotate with `{names.FORCE_DELETE}=true` to delete it at once{lost}."
    return _blocked(str(reply.reason), message, Retry.BACKOFF)


def _words(value: object) -> Sequence[str]:
    return [str(item) for item in cast(Sequence[object], value)] if isinstance(value, (list, tuple)) else []


def _blocked(reason: str, message: str, retry: Retry) -> Report:
    details: Manifest = {}
    conditions = (
        StatusCondition("Ready", ConditionStatus.FALSE, reason, message),
        StatusCondition("DeletionBlocked", ConditionStatus.TRUE, reason, message),
    )
    return Report(conditions, details, retry)
