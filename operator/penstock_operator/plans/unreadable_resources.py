"""What to do for a resource that the API server has accepted and this operator can't parse: its CRD is of another
release.

Nothing of it is changed, and its status says why. Its deletion waits, because the fields that can't be read may say
what becomes of its messages; it waits neither for a Broker that is gone nor if a person forces it, and in a namespace
that is being deleted only if what the broker would do without it differs from what can be read. Pure. Source:
docs/decisions/096-unreadable-resources.md, docs/decisions/170-unreadable-in-a-deleted-namespace.md.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from penstock_operator import names
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.decisions import RemoveFinalizer, Report, Retry
from penstock_operator.plans.deletion import GRACE_SECONDS

__all__ = ["UnreadableView", "plan_unreadable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableView:
    """Everything on which the decision depends."""

    problem: str
    """Why it can't be parsed, without a full stop."""
    is_deleting: bool
    has_finalizer: bool
    is_forced: bool
    """It has the annotation that makes a deletion wait for nothing."""
    is_broker_gone: bool
    """Its Broker is known by name and does not exist, or is being deleted."""
    namespace_terminating: bool = False
    """Its namespace is being deleted, too."""
    seconds: float = 0
    """Seconds since its deletion was requested."""
    policy: str | None = None
    """The `deletionPolicy` in its manifest; None if there is none, or another thing than a word."""
    marked_policies: Collection[str] | None = None
    """The deletionPolicies in its marks on the broker, none if it has none; None: the broker could not be asked."""


def plan_unreadable(view: UnreadableView) -> RemoveFinalizer | Report:
    """The next thing to do for a resource that can't be parsed."""
    if not view.is_deleting:
        message = f"{view.problem}. Install the CRDs and the operator of the same version."
        return Report(_invalid(message), {}, Retry.RESYNC)
    if not view.has_finalizer:
        return RemoveFinalizer("it does not have the operator's finalizer")
    if view.is_forced:
        return RemoveFinalizer("this operator can't parse it, and its deletion is forced")
    if view.is_broker_gone:
        return RemoveFinalizer("this operator can't parse it, and its Broker is gone")
    if view.namespace_terminating and view.seconds < GRACE_SECONDS:
        retry = Retry.BACKOFF
    elif view.namespace_terminating and _is_policy_kept(view):
        return RemoveFinalizer("this operator can't parse it, and its namespace is terminating")
    else:
        retry = Retry.RESYNC
    message = (
        f"Deletion waits, because this operator can't read what it may do with the messages: {view.problem}. Install "
        f"the operator of the version that the CRDs have. Or annotate with `{names.FORCE_DELETE}=true` to delete the "
        "resource now; what it declared is then collected as an orphan, by the deletionPolicy that was declared last."
    )
    blocked = StatusCondition("DeletionBlocked", ConditionStatus.TRUE, ConditionReason.INVALID_SPEC, message)
    return Report((*_invalid(message), blocked), {}, retry)


def _is_policy_kept(view: UnreadableView) -> bool:
    """Whether the broker, without the resource, does with what it declared just what its manifest says, as far as that
    can be read: the marks there have the same deletionPolicy, or one that keeps everything.
    """
    return view.marked_policies is not None and all(it in ("Retain", view.policy) for it in view.marked_policies)


def _invalid(message: str) -> tuple[StatusCondition, ...]:
    reason = ConditionReason.INVALID_SPEC
    return (
        StatusCondition("Ready", ConditionStatus.FALSE, reason, message),
        StatusCondition("Stalled", ConditionStatus.TRUE, reason, message),
    )
