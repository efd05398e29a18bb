"""What to do next for a Queue: its finalizer, its declaration on the broker, its deletion.

The checks have the order of their conditions: Accepted (whether it may be declared), Declared (whether the broker has
it as declared). It has no exchange and no binding, so there is nothing to rebind. Source: docs/decisions/109-queues.md,
docs/decisions/052-namespaces-and-duplicates.md, docs/decisions/056-conditions.md, docs/reference/operator.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from penstock_api import declaration
from penstock_api.management import EntityType, QueueDeclaration
from penstock_api.resources import Queue
from penstock_operator import names
from penstock_operator.children.scale_secret import ScaleAccess
from penstock_operator.manifest import Manifest
from penstock_operator.plans import acceptance
from penstock_operator.plans.acceptance import ACCEPTED
from penstock_operator.plans.acceptance_step import acceptance_step
from penstock_operator.plans.conditions import ConditionStatus, StatusCondition
from penstock_operator.plans.decisions import BrokerReply, BrokerView, ChildState, Decision
from penstock_operator.plans.declaration_step import declaration_report, declaration_step, declared_as
from penstock_operator.plans.refusals import Refusal
from penstock_operator.plans.scale_token import with_known_scale_token, with_scale_token

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


def plan_queue(view: QueueView) -> Decision:
    """The next thing to do for a Queue."""
    name, details = declaration.queue_name(view.resource), _details(view)
    step = acceptance_step(view, EntityType.QUEUE, name, details)
    if step is not None:
        return with_known_scale_token(view.resource, step)
    taken = declaration_step(view, "Declared", EntityType.QUEUE, name, details, lambda: wanted(view))
    if not isinstance(taken, BrokerReply):
        return with_known_scale_token(view.resource, taken)
    declared = StatusCondition("Declared", ConditionStatus.TRUE, declared_as(taken), "The broker has the queue.")
    return with_scale_token(view, declaration_report((ACCEPTED, declared), details))


def wanted(view: QueueView) -> QueueDeclaration:
    """The declaration that is sent to the broker."""
    return declaration.queue_declaration(
        view.resource, cluster_id=view.cluster_id, adoption=declaration.adoption_of(view.broker.broker)
    )


def _details(view: QueueView) -> Manifest:
    details: Manifest = {"queueName": declaration.queue_name(view.resource)}
    broker = view.broker.broker
    if broker is not None and acceptance.is_allowed(view.resource.metadata.namespace, broker):
        details["address"] = f"{names.broker_address(broker)}/{declaration.queue_name(view.resource)}"
    return details
