"""What to do next for an Exchange: its finalizer, its Service, its declaration on the broker, its deletion.

Source: docs/decisions/050-names-of-children.md (the Service), docs/decisions/052-namespaces-and-duplicates.md,
docs/decisions/056-conditions.md, docs/reference/operator.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from penstock_api import declaration
from penstock_api.management import EntityType, ExchangeDeclaration
from penstock_api.resources import Exchange
from penstock_operator import names
from penstock_operator.children.services import exchange_service
from penstock_operator.manifest import Manifest
from penstock_operator.plans import acceptance, rights
from penstock_operator.plans.acceptance import ACCEPTED, not_accepted, not_lent, unreadable
from penstock_operator.plans.acceptance_step import acceptance_step
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.decisions import ApplyChild, BrokerReply, BrokerView, ChildState, Decision, Reach, Retry
from penstock_operator.plans.declaration_step import declaration_report, declaration_step, declared_as

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
    alternate_winner: Exchange | None = None
    """The oldest Exchange that declares the same exchange as that one, and so has it; it can be that one."""
    is_alternate_held_elsewhere: bool = False
    """Whether a resource of another namespace that is not seen has declared that exchange."""
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


def plan_exchange(view: ExchangeView) -> Decision:
    """The next thing to do for an Exchange."""
    name, details = declaration.exchange_name(view.resource), _details(view, None)
    step = acceptance_step(view, EntityType.EXCHANGE, name, details, lambda: _problem_of_alternate(view))
    if step is not None:
        return step
    broker = view.broker.broker
    assert broker is not None
    if view.service is ChildState.UNKNOWN:
        return ApplyChild(exchange_service(broker, view.resource, view.cluster_domain))
    if view.service is ChildState.TAKEN:
        return declaration_report((_name_taken(view),), details)
    if view.service is ChildState.PREDECESSOR:
        return declaration_report((_leaving(view),), details, Retry.BACKOFF)
    taken = declaration_step(view, "Declared", EntityType.EXCHANGE, name, details, lambda: wanted(view))
    if not isinstance(taken, BrokerReply):
        return taken
    declared = StatusCondition("Declared", ConditionStatus.TRUE, declared_as(taken), "The broker has the exchange.")
    found = (ACCEPTED, declared, *rights.permitted(view.broker, view.resource))
    return declaration_report(found, _details(view, taken))


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


def _problem_of_alternate(view: ExchangeView) -> StatusCondition | None:
    """Why `alternateExchangeRef` can't be followed."""
    alternate = view.resource.spec.alternate_exchange_ref
    if alternate is None:
        return None
    if view.is_alternate_unreadable:
        return unreadable("Exchange", alternate.name)
    if view.alternate is None:
        return not_accepted(
            ConditionReason.EXCHANGE_NOT_FOUND,
            f"There is no Exchange {alternate.name} in this namespace. Create it.",
        )
    if declaration.broker_key(view.alternate) != declaration.broker_key(view.resource):
        return not_accepted(
            ConditionReason.EXCHANGE_ON_OTHER_BROKER, f"Exchange {alternate.name} is on another Broker."
        )
    winner, namespace = view.alternate_winner, view.resource.metadata.namespace
    if view.is_alternate_held_elsewhere or (winner is not None and winner.metadata.namespace != namespace):
        return not_lent(alternate.name)
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


def _details(view: ExchangeView, reply: BrokerReply | None) -> Manifest:
    details: Manifest = {"exchangeName": declaration.exchange_name(view.resource)}
    broker = view.broker.broker
    if broker is not None and acceptance.is_allowed(view.resource.metadata.namespace, broker):
        details["address"] = names.address(broker, view.resource)
    # A figure of a broker that is deleted says nothing; that of a silent one helps whoever mends it.
    is_gone = view.broker.reach in (Reach.ABSENT, Reach.DELETING)
    known = None if is_gone else view.resource.status.bound_subscriptions
    bound = reply.body.get("boundSubscriptions") if reply is not None else known
    if isinstance(bound, int):
        details["boundSubscriptions"] = bound
    return details
