"""What stands between a resource and its declaration, the same for every kind that is declared: its deletion, the
annotation that pauses it, a reference that may not be followed, an older resource that declares the same, and the
operator's finalizer.

Source: docs/decisions/052-namespaces-and-duplicates.md, docs/decisions/055-deletion.md,
docs/decisions/056-conditions.md, docs/decisions/110-rights-given-by-resources.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from penstock_api import declaration
from penstock_api.management import EntityType
from penstock_api.resources import Declaring
from penstock_operator import names
from penstock_operator.manifest import Manifest
from penstock_operator.plans import deletion, rights
from penstock_operator.plans.acceptance import broker_not_usable, duplicate, paused_conditions
from penstock_operator.plans.conditions import ConditionReason, StatusCondition
from penstock_operator.plans.decisions import AddFinalizer, Decision, RemoveFinalizer, Report
from penstock_operator.plans.declaration_step import DeclaringView, declaration_report

__all__ = ["AcceptanceView", "acceptance_step"]


class AcceptanceView(DeclaringView, Protocol):
    """What of a view the step depends on."""

    @property
    def winner(self) -> Declaring | None:
        """The oldest resource that declares the same entity; it can be this one."""
        ...

    @property
    def namespace_terminating(self) -> bool:
        """Whether the namespace is being deleted, too."""
        ...

    @property
    def now(self) -> datetime:
        """The time of this pass."""
        ...


def acceptance_step(
    view: AcceptanceView,
    entity: EntityType,
    name: str,
    details: Manifest,
    problem_of_references: Callable[[], StatusCondition | None] = lambda: None,
) -> Decision | None:
    """What to do before a resource may be declared; None: it may be, and has the operator's finalizer.

    `name`: of the entity on the broker. `details`: of the status. `problem_of_references`: why those references can't
    be followed that only this kind has, as condition Accepted; it is asked once the Broker may be used.
    """
    metadata = view.resource.metadata
    if metadata.deletion_timestamp is not None:
        if names.FINALIZER not in metadata.finalizers:
            return RemoveFinalizer("it does not have the operator's finalizer")
        return _deletion(view, details)
    if metadata.annotations.get(names.PAUSED) == "true":
        return Report(paused_conditions(view.resource), details)
    key = declaration.broker_key(view.resource)
    obstacle = (
        broker_not_usable(metadata.namespace, key, view.broker) or problem_of_references() or _twin(view, broker=key[1])
    )
    if obstacle is not None:
        ending = None
        if obstacle.reason == ConditionReason.NAMESPACE_NOT_ALLOWED:
            ending = rights.withdrawal(view.broker, entity, name, metadata.uid, view.reply)
        return ending or declaration_report((obstacle,), details)
    return AddFinalizer() if names.FINALIZER not in metadata.finalizers else None


def _deletion(view: AcceptanceView, details: Manifest) -> Decision:
    decision = deletion.plan_deletion(
        deletion.view_of(
            view.resource,
            broker=view.broker,
            is_duplicate=_older(view) is not None,
            namespace_terminating=view.namespace_terminating,
            now=view.now,
            reply=view.reply,
        )
    )
    return replace(decision, details={**details, **decision.details}) if isinstance(decision, Report) else decision


def _older(view: AcceptanceView) -> Declaring | None:
    """The older resource that declares the same entity; None if this one has it."""
    winner = view.winner
    return None if winner is None or winner.metadata.uid == view.resource.metadata.uid else winner


def _twin(view: AcceptanceView, *, broker: str) -> StatusCondition | None:
    """Condition Accepted=False if an older resource declares the same entity on this Broker."""
    older = _older(view)
    return None if older is None else duplicate(view.resource, older, broker)
