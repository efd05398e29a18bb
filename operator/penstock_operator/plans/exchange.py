"""What to do next for an Exchange: its finalizer, its Service, its declaration on the broker, its deletion.

Source: docs/decisions/050-names-of-children.md (the Service), docs/decisions/052-namespaces-and-duplicates.md,
docs/decisions/056-conditions.md, docs/reference/operator.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from penstock_api import declaration
from penstock_api.management import DeclarationOutcome, EntityType, ExchangeDeclaration
from penstock_api.resources import Exchange
from penstock_operator import names
from penstock_operator.children.services import exchange_service
from penstock_operator.manifest import Manifest
from penstock_operator.plans import acceptance, conditions, deletion, rights
from penstock_operator.plans.acceptance import (
    ACCEPTED,
    broker_not_usable,
    declaration_refused,
    duplicate,
    not_accepted,
    paused_conditions,
    retry_of,
    unreadable,
)
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.decisions import (
    AddFinalizer,
    ApplyChild,
    BrokerReply,
    BrokerView,
    ChildState,
    Decision,
    RemoveFinalizer,
    Report,
    Retry,
)
from penstock_operator.plans.declaration_step import declaration_step

__all__ = ["ExchangeView", "plan_exchange"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeView:
    """Everything on which the plan for an Exchange depends."""

    resource: Exchange
    broker: BrokerView
    alternate: Exchange | None
    """The Exchange that `alternateExchangeRef` names; None if there is no reference, no such Exchange, or it can't be
    parsed.
    """
    is_alternate_unreadable: bool = False
    """Whether there is such an Exchange and it can't be parsed."""
    winner: Exchange | None
    """The oldest Exchange that declares the same name on the same Broker; it can be this one."""
    cluster_id: str
    cluster_domain: str
    namespace_terminating: bool = False
    now: datetime
    service: ChildState = ChildState.UNKNOWN
    """The Service of the Exchange."""
    reply: BrokerReply | None = None
    """The broker's reply to the declaration or deletion of this reconcile."""

    @property
    def is_duplicate(self) -> bool:
        """Whether another, older Exchange declares the same name."""
        return self.winner is not None and self.winner.metadata.uid != self.resource.metadata.uid


def plan_exchange(view: ExchangeView) -> Decision:
    """The next thing to do for an Exchange."""
    metadata = view.resource.metadata
    if metadata.deletion_timestamp is not None:
        return (
            _delete(view)
            if names.FINALIZER in metadata.finalizers
            else RemoveFinalizer("it does not have the operator's finalizer")
        )
    if metadata.annotations.get(names.PAUSED) == "true":
        return _paused(view)
    obstacle = _obstacle(view)
    if obstacle is not None:
        ending = None
        if obstacle.reason == ConditionReason.NAMESPACE_NOT_ALLOWED:
            name = declaration.exchange_name(view.resource)
            ending = rights.withdrawal(view.broker, EntityType.EXCHANGE, name, metadata.uid, view.reply)
        return ending or _report(view, obstacle)
    broker = view.broker.broker
    assert broker is not None
    if names.FINALIZER not in metadata.finalizers:
        return AddFinalizer()
    if view.service is ChildState.UNKNOWN:
        return ApplyChild(exchange_service(broker, view.resource, view.cluster_domain))
    if view.service is ChildState.TAKEN:
        return _report(view, _name_taken(view))
    if view.service is ChildState.PREDECESSOR:
        return _report(view, _leaving(view), retry=Retry.BACKOFF)
    name = declaration.exchange_name(view.resource)
    step = declaration_step(view, "Declared", EntityType.EXCHANGE, name, lambda: wanted(view))
    if step is not None:
        return _report(view, ACCEPTED, step) if isinstance(step, StatusCondition) else step
    assert view.reply is not None
    return _conclude(view, view.reply)


def wanted(view: ExchangeView) -> ExchangeDeclaration:
    """The declaration that is sent to the broker."""
    alternate = None if view.alternate is None else declaration.exchange_name(view.alternate)
    adoption = declaration.adoption_of(view.broker.broker)
    return declaration.exchange_declaration(
        view.resource,
        alternate=alternate,
        publishers=rights.given(view.broker, view.resource).users,
        cluster_id=view.cluster_id,
        adoption=adoption,
    )


def _delete(view: ExchangeView) -> Decision:
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
        return Report(decision.conditions, {**_details(view, None), **decision.details}, decision.retry)
    return decision


def _paused(view: ExchangeView) -> Report:
    return Report(paused_conditions(view.resource.status.conditions), _details(view, None))


def _obstacle(view: ExchangeView) -> StatusCondition | None:
    namespace = view.resource.metadata.namespace
    home, broker_name = declaration.broker_key(view.resource)
    problem = broker_not_usable(namespace, (home, broker_name), view.broker)
    if problem is not None:
        return problem
    alternate = view.resource.spec.alternate_exchange_ref
    if alternate is not None:
        if view.is_alternate_unreadable:
            return unreadable("Exchange", alternate.name)
        if view.alternate is None:
            return not_accepted(
                ConditionReason.EXCHANGE_NOT_FOUND,
                f"There is no Exchange {alternate.name} in this namespace. Create it.",
            )
        if declaration.broker_key(view.alternate) != (home, broker_name):
            return not_accepted(
                ConditionReason.EXCHANGE_ON_OTHER_BROKER, f"Exchange {alternate.name} is on another Broker."
            )
    if view.winner is not None and view.is_duplicate:
        return duplicate(view.resource, view.winner, broker_name)
    return None


def _name_taken(view: ExchangeView) -> StatusCondition:
    service = names.exchange_service(view.resource)
    message = f"A Service {service} of another owner already exists. Delete it, or give the Exchange another name."
    return not_accepted(ConditionReason.NAME_TAKEN, message)


def _leaving(view: ExchangeView) -> StatusCondition:
    service = names.exchange_service(view.resource)
    message = (
        f"An Exchange of this name was deleted, and the cluster has not yet deleted its Service {service}. This "
        "Exchange is declared after that."
    )
    return not_accepted(ConditionReason.PREDECESSOR_LEAVING, message)


def _conclude(view: ExchangeView, reply: BrokerReply) -> Report:
    if not reply.is_success:
        condition = declaration_refused(view.broker, "Declared", reply)
        return _report(view, ACCEPTED, condition, retry=retry_of(condition))
    declared_as = (
        ConditionReason.ADOPTED
        if reply.body.get("outcome") == DeclarationOutcome.ADOPTED.value
        else ConditionReason.DECLARED
    )
    declared = StatusCondition("Declared", ConditionStatus.TRUE, declared_as, "The broker has the exchange.")
    return _report(view, ACCEPTED, declared, *rights.permitted(view.broker, view.resource), reply=reply)


def _report(
    view: ExchangeView, *found: StatusCondition, retry: Retry = Retry.RESYNC, reply: BrokerReply | None = None
) -> Report:
    return Report(conditions.ready_from(found, "Declared on the broker."), _details(view, reply), retry)


def _details(view: ExchangeView, reply: BrokerReply | None) -> Manifest:
    details: Manifest = {"exchangeName": declaration.exchange_name(view.resource)}
    broker = view.broker.broker
    if broker is not None and acceptance.is_allowed(view.resource.metadata.namespace, broker):
        details["address"] = names.address(broker, view.resource)
    bound = reply.body.get("boundSubscriptions") if reply is not None else view.resource.status.bound_subscriptions
    if isinstance(bound, int):
        details["boundSubscriptions"] = bound
    return details
