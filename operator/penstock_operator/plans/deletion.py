"""What becomes of an Exchange or a Subscription that is being deleted: ask the broker, wait, or let it go.

Two promises pull here. No message is lost unless the policy says so; and no deletion hangs on a broker or a namespace
that is gone. Where the finalizer is released without the broker's word, its owner mark is left, and the removal is
owed: the collector of orphans does the rest when the broker is back, under the same policy. Source: section 5 of the
design.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, assert_never, cast

from penstock_api import declaration
from penstock_api.management import EntityType
from penstock_api.resources import Exchange, Subscription
from penstock_core.reason import Reason as BrokerReason
from penstock_operator import names
from penstock_operator.manifest import Manifest
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition, condition_reason
from penstock_operator.plans.decisions import (
    BrokerReply,
    BrokerView,
    DeleteEntity,
    Reach,
    RemoveFinalizer,
    Report,
    Retry,
)

__all__ = ["GRACE_SECONDS", "DeletionView", "plan_deletion", "view_of"]

GRACE_SECONDS: Final = 30
"""How long a terminating namespace, or a broker that doesn't answer, can hold a deletion up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionView:
    """What the decision looks at."""

    entity: EntityType
    name: str
    """Name on the broker."""
    uid: str
    policy: str
    is_protected: bool
    is_forced: bool
    broker: BrokerView
    is_duplicate: bool
    """Another resource has the entity; this one never declared anything."""
    namespace_terminating: bool
    seconds: float
    """Since the deletion was asked for."""
    reply: BrokerReply | None = None


def view_of(
    resource: Exchange | Subscription,
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
    match resource:
        case Exchange():
            entity, name = EntityType.EXCHANGE, declaration.exchange_name(resource)
        case Subscription():
            entity, name = EntityType.SUBSCRIPTION, declaration.queue_name(resource)
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
        seconds=(now - metadata.deletion_timestamp).total_seconds(),
        reply=reply,
    )


def plan_deletion(view: DeletionView) -> DeleteEntity | RemoveFinalizer | Report:
    """The next thing to do for a resource that has our finalizer and a deletionTimestamp."""
    if view.is_protected and not view.namespace_terminating:
        return _blocked(
            ConditionReason.PROTECTED_BY_ANNOTATION,
            f"Deletion waits: the annotation `{names.DELETE_PROTECTION}` is set. Remove it to let the deletion go on.",
            Retry.RESYNC,
        )
    if view.is_duplicate:
        return RemoveFinalizer("another resource has declared the same entity")
    if view.broker.reach in (Reach.ABSENT, Reach.DELETING):
        return RemoveFinalizer("its Broker is gone")
    if view.policy == "Retain":
        return RemoveFinalizer("its deletionPolicy is Retain")
    if view.broker.reach is Reach.STOPPED:
        return RemoveFinalizer("its Broker is scaled to zero", is_removal_pending=True)
    if view.reply is not None and view.reply.is_success:
        return RemoveFinalizer("the broker has removed it")
    if view.seconds >= GRACE_SECONDS and view.namespace_terminating:
        return RemoveFinalizer("its namespace is terminating", is_removal_pending=True)
    if view.broker.reach in (Reach.UNREACHABLE, Reach.NOT_UNDERSTOOD):
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
    """A subscription is never taken from its consumers; an exchange waits for its subscriptions if the policy says
    so.
    """
    return view.entity is EntityType.SUBSCRIPTION or view.policy == "DeleteWhenUnused"


def _unreachable(view: DeletionView) -> RemoveFinalizer | Report:
    if view.is_forced or view.seconds >= GRACE_SECONDS:
        return RemoveFinalizer(
            "its broker does not answer; what is left there is collected when it is back", is_removal_pending=True
        )
    return _blocked(
        ConditionReason.BROKER_UNREACHABLE,
        f"Deletion waits for the broker: {view.broker.problem} Annotate with `{names.FORCE_DELETE}=true` not to wait.",
        Retry.BACKOFF,
    )


def _refused(view: DeletionView, reply: BrokerReply) -> RemoveFinalizer | Report:
    match reply.reason:
        case BrokerReason.MANAGED.value:
            return RemoveFinalizer("the broker says that another resource declares it by now")
        case BrokerReason.CONSUMERS_ACTIVE.value:
            containers = _words(reply.body.get("containers"))
            who = f"consumers in {', '.join(containers)}" if containers else "consumers"
            message = f"Deletion waits: {who} still use it. Stop them"
        case BrokerReason.NOT_EMPTY.value:
            message = f"Deletion waits: {reply.body.get('depth', 'some')} message(s) are in it. Consume them"
        case BrokerReason.BINDINGS_EXIST.value:
            message = "Deletion waits: subscriptions are bound to it. Delete them"
        case _:
            return _blocked(condition_reason(reply.reason), f"The broker refused: {reply.description}", Retry.BACKOFF)
    lost = " and lose the messages" if view.entity is EntityType.SUBSCRIPTION else ""
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
