"""What to do next for a Queue: its finalizer, its declaration on the broker, its deletion.

The checks have the order of their conditions: Accepted (whether it may be declared), Declared (whether the broker has
it as declared). It has no exchange and no binding, so there is nothing to rebind. Source: docs/decisions/109-queues.md,
docs/decisions/052-namespaces-and-duplicates.md, docs/decisions/056-conditions.md, docs/reference/operator.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from penstock_api import declaration
from penstock_api.management import DeclarationOutcome, EntityType, QueueDeclaration
from penstock_api.resources import Queue
from penstock_operator import names
from penstock_operator.children.scale_secret import ScaleAccess
from penstock_operator.manifest import Manifest
from penstock_operator.plans import acceptance, conditions, deletion
from penstock_operator.plans.acceptance import (
    ACCEPTED,
    broker_not_usable,
    declaration_refused,
    duplicate,
    paused_conditions,
    retry_of,
)
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.decisions import (
    AddFinalizer,
    BrokerReply,
    BrokerView,
    ChildState,
    Decision,
    RemoveFinalizer,
    Report,
    Retry,
)
from penstock_operator.plans.declaration_step import declaration_step
from penstock_operator.plans.refusals import Refusal
from penstock_operator.plans.scale_token import with_scale_token

__all__ = ["QueueView", "plan_queue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """Everything on which the plan for a Queue depends."""

    resource: Queue
    broker: BrokerView
    winner: Queue | None
    """The oldest Queue with the same name on the same Broker; it can be this one."""
    cluster_id: str
    namespace_terminating: bool = False
    now: datetime
    reply: BrokerReply | None = None
    """The broker's reply to the declaration or deletion of this reconcile."""
    scale: ScaleAccess | None = None
    """What the token of a queue is made with; None if the Broker's observer may not know such tokens."""
    scale_secret: ChildState = ChildState.UNKNOWN
    """The Secret with the token of this Queue."""
    scale_refusal: Refusal | None = None
    """Why the API server does not take that Secret."""

    @property
    def is_duplicate(self) -> bool:
        """Whether another, older Queue has the same name."""
        return self.winner is not None and self.winner.metadata.uid != self.resource.metadata.uid


def plan_queue(view: QueueView) -> Decision:
    """The next thing to do for a Queue."""
    metadata = view.resource.metadata
    if metadata.deletion_timestamp is not None:
        return (
            _delete(view)
            if names.FINALIZER in metadata.finalizers
            else RemoveFinalizer("it does not have the operator's finalizer")
        )
    if metadata.annotations.get(names.PAUSED) == "true":
        kept = paused_conditions(view.resource.status.conditions, but=conditions.OF_LAG)
        return Report(kept, _details(view))
    obstacle = _obstacle(view)
    if obstacle is not None:
        return _report(view, obstacle)
    if names.FINALIZER not in metadata.finalizers:
        return AddFinalizer()
    name = declaration.queue_name(view.resource)
    step = declaration_step(view, "Declared", EntityType.QUEUE, name, lambda: wanted(view))
    if step is not None:
        return _report(view, ACCEPTED, step) if isinstance(step, StatusCondition) else step
    assert view.reply is not None
    report = _conclude(view, view.reply)
    return with_scale_token(view, report) if view.reply.is_success else report


def wanted(view: QueueView) -> QueueDeclaration:
    """The declaration that is sent to the broker."""
    return declaration.queue_declaration(
        view.resource, cluster_id=view.cluster_id, adoption=declaration.adoption_of(view.broker.broker)
    )


def _delete(view: QueueView) -> Decision:
    decision = deletion.plan_deletion(
        deletion.view_of(
            view.resource,
            broker=view.broker,
            is_duplicate=view.is_duplicate,
            namespace_terminating=view.namespace_terminating,
            now=view.now,
            reply=view.reply,
        )
    )
    if isinstance(decision, Report):
        return Report(decision.conditions, {**_details(view), **decision.details}, decision.retry)
    return decision


def _obstacle(view: QueueView) -> StatusCondition | None:
    """Why the spec can't be declared, as condition Accepted; None if it can."""
    key = declaration.broker_key(view.resource)
    problem = broker_not_usable(view.resource.metadata.namespace, key, view.broker)
    if problem is not None:
        return problem
    if view.winner is not None and view.is_duplicate:
        return duplicate(view.resource, view.winner, key[1])
    return None


def _conclude(view: QueueView, reply: BrokerReply) -> Report:
    """The report after the broker's reply to the declaration."""
    if not reply.is_success:
        condition = declaration_refused(view.broker, "Declared", reply)
        return _report(view, ACCEPTED, condition, retry=retry_of(condition))
    is_adopted = reply.body.get("outcome") == DeclarationOutcome.ADOPTED.value
    reason = ConditionReason.ADOPTED if is_adopted else ConditionReason.DECLARED
    return _report(
        view, ACCEPTED, StatusCondition("Declared", ConditionStatus.TRUE, reason, "The broker has the queue.")
    )


def _report(view: QueueView, *found: StatusCondition, retry: Retry = Retry.RESYNC) -> Report:
    return Report(conditions.ready_from(found, "Declared on the broker."), _details(view), retry)


def _details(view: QueueView) -> Manifest:
    details: Manifest = {"queueName": declaration.queue_name(view.resource)}
    broker = view.broker.broker
    if broker is not None and acceptance.is_allowed(view.resource.metadata.namespace, broker):
        details["address"] = f"{names.broker_address(broker)}/{declaration.queue_name(view.resource)}"
    return details
