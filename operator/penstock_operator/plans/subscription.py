"""What to do next for a Subscription: its finalizer, its declaration on the broker, its deletion.

The checks have the order of their conditions: Accepted (whether it may be declared), Bound (whether the broker has it),
Matched (whether the broker has it as declared). Source: docs/decisions/014-managed-subscriptions.md,
docs/decisions/052-namespaces-and-duplicates.md, docs/decisions/053-rebind-policy.md,
docs/decisions/056-conditions.md, docs/reference/operator.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast

from penstock_api import declaration
from penstock_api.management import DeclarationOutcome, EntityType, SubscriptionDeclaration
from penstock_api.resources import Exchange, Subscription
from penstock_api.resources.header_bindings import as_text
from penstock_operator import names
from penstock_operator.children.scale_secret import ScaleAccess
from penstock_operator.manifest import Manifest, items_of
from penstock_operator.plans import acceptance, binding, rights
from penstock_operator.plans.acceptance import ACCEPTED, not_accepted, not_lent, not_visible, unreadable
from penstock_operator.plans.acceptance_step import acceptance_step
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.decisions import (
    ApplyChild,
    BrokerReply,
    BrokerView,
    ChildState,
    Decision,
    DeleteChild,
    Report,
    Retry,
)
from penstock_operator.plans.declaration_step import declaration_report, declaration_step, declared_as
from penstock_operator.plans.refusals import Refusal
from penstock_operator.plans.scale_token import with_known_scale_token, with_scale_token
from penstock_operator.plans.wanted_secret import with_secret_condition

__all__ = ["SubscriptionView", "plan_subscription"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionView:
    """Everything on which the plan for a Subscription depends."""

    resource: Subscription
    broker: BrokerView
    exchange: Exchange | None
    """The Exchange that `exchangeRef` names, None if there is no such resource, or it can't be parsed."""
    exchange_winner: Exchange | None = None
    """The oldest Exchange that declares the same exchange as that one, and so has it; it can be that one."""
    is_exchange_held_elsewhere: bool = False
    """Whether a resource of another namespace that is not seen has declared that exchange."""
    is_exchange_unreadable: bool = False
    """Whether there is such an Exchange and it can't be parsed."""
    winner: Subscription | None
    """The oldest Subscription with the same identity on the same Broker; it can be this one."""
    cluster_id: str
    namespace_terminating: bool = False
    now: datetime
    reply: BrokerReply | None = None
    """The broker's reply to the declaration or deletion of this reconcile."""
    scale: ScaleAccess | None = None
    """What the token of a subscription is made with; None if the Broker's observer may not know such tokens."""
    scale_secret: ChildState = ChildState.UNKNOWN
    """The Secret with the token of this Subscription."""
    scale_refusal: Refusal | None = None
    """Why the API server does not take that Secret."""
    trusted: bytes | None = None
    """What clients of the Broker trust, PEM; None: it is not known yet."""
    binding_secret: ChildState = ChildState.UNKNOWN
    """The Secret of `spec.binding`."""
    binding_refusal: Refusal | None = None
    """Why the API server does not take that Secret."""


def plan_subscription(view: SubscriptionView) -> Decision:
    """The next thing to do for a Subscription."""
    details = _details(view)
    name = declaration.queue_name(view.resource)
    step = acceptance_step(view, EntityType.SUBSCRIPTION, name, details, lambda: _problem_of_exchange(view))
    if step is not None:
        return with_known_scale_token(view.resource, step)
    taken = declaration_step(view, "Bound", EntityType.SUBSCRIPTION, None, details, lambda: wanted(view))
    if not isinstance(taken, BrokerReply):
        return with_known_scale_token(view.resource, taken)
    decision = with_scale_token(view, _conclude(view, taken, details))
    return _with_binding(view, decision) if isinstance(decision, Report) else decision


def _with_binding(view: SubscriptionView, report: Report) -> ApplyChild | DeleteChild | Report:
    """As `with_scale_token`, for the Secret of `spec.binding`. Ready does not depend on it."""
    broker, exchange = view.broker.broker, view.exchange
    assert broker is not None and exchange is not None
    step = binding.next_step(broker, exchange, view.resource, view.trusted, view.binding_secret)
    if step is not None:
        return step
    if view.resource.spec.binding is None:
        return report
    return with_secret_condition(report, binding.condition(view.resource, view.binding_secret, view.binding_refusal))


def wanted(view: SubscriptionView) -> SubscriptionDeclaration:
    """The declaration that is sent to the broker. The references must have been found."""
    assert view.exchange is not None
    return declaration.subscription_declaration(
        view.resource,
        exchange=declaration.exchange_name(view.exchange),
        consumers=rights.given(view.broker, view.resource).users,
        cluster_id=view.cluster_id,
        adoption=declaration.adoption_of(view.broker.broker),
    )


def _problem_of_exchange(view: SubscriptionView) -> StatusCondition | None:
    """Why `exchangeRef` can't be followed."""
    namespace, exchange = view.resource.metadata.namespace, view.exchange
    home, name = declaration.exchange_key(view.resource)
    if exchange is None or not acceptance.is_allowed(namespace, exchange):
        if home != namespace:
            return not_visible("Exchange", (home, name), namespace)
        if view.is_exchange_unreadable:
            return unreadable("Exchange", name)
        return not_accepted(
            ConditionReason.EXCHANGE_NOT_FOUND, f"There is no Exchange {name} in this namespace. Create it."
        )
    broker = declaration.broker_key(view.resource)
    if declaration.broker_key(exchange) != broker:
        return not_accepted(
            ConditionReason.EXCHANGE_ON_OTHER_BROKER,
            f"Exchange {name} is not on Broker {broker[1]}; `exchangeRef` must name one that is.",
        )
    winner = view.exchange_winner
    is_anothers = winner is not None and winner.key != exchange.key and not acceptance.is_allowed(namespace, winner)
    return not_lent(name) if is_anothers or view.is_exchange_held_elsewhere else None


def _conclude(view: SubscriptionView, reply: BrokerReply, details: Manifest) -> Report:
    """The report after the broker has taken the declaration.

    Ready does not depend on SourceModified: the subscription works, and the reply shows what is there
    (docs/decisions/007-reply-shows-the-truth.md). It does depend on a binding that is not the declared one.
    """
    bound = StatusCondition("Bound", ConditionStatus.TRUE, declared_as(reply), "The broker has the subscription.")
    matched = _matched(view, reply)
    is_modified = matched.reason == ConditionReason.SOURCE_MODIFIED
    is_blocked = matched.reason == ConditionReason.REBIND_BLOCKED
    found = (ACCEPTED, bound, *(() if is_modified else (matched,)), *rights.permitted(view.broker, view.resource))
    report = declaration_report(
        found, {**details, "applied": _applied(reply)}, Retry.BACKOFF if is_blocked else Retry.RESYNC
    )
    return replace(report, conditions=(*report.conditions, matched)) if is_modified else report


def _matched(view: SubscriptionView, reply: BrokerReply) -> StatusCondition:
    if reply.body.get("outcome") == DeclarationOutcome.REBIND_BLOCKED.value:
        blocked_by = reply.body.get("blockedBy", "its rebindPolicy")
        message = (
            f"The old binding is still in force: {blocked_by} prevents the change under `rebindPolicy: "
            f"{view.resource.spec.rebind_policy}`. Stop the consumers or empty the queue, or choose `InPlace`."
        )
        return StatusCondition("Matched", ConditionStatus.FALSE, ConditionReason.REBIND_BLOCKED, message)
    wanted_policy = view.resource.spec.expiry_policy
    kept_policy = reply.body.get("expiryPolicy", wanted_policy)
    if kept_policy != wanted_policy:
        message = f"The broker keeps `expiryPolicy: {kept_policy}` of the subscription that existed before."
        return StatusCondition("Matched", ConditionStatus.FALSE, ConditionReason.SOURCE_MODIFIED, message)
    return StatusCondition("Matched", ConditionStatus.TRUE, ConditionReason.IN_SYNC, "The broker has what is declared.")


def _details(view: SubscriptionView) -> Manifest:
    details: Manifest = {
        "subscriptionName": declaration.subscription_name(view.resource),
        "queueName": declaration.queue_name(view.resource),
    }
    if view.broker.broker is not None and view.exchange is not None and _may_see(view):
        details["address"] = names.address(view.broker.broker, view.exchange)
    secret = binding.shown(view.resource, view.binding_secret)
    if secret is not None:
        details["binding"] = {"name": secret}
    applied = view.resource.status.applied
    if applied is not None:
        details["applied"] = applied.model_dump(mode="json", by_alias=True, exclude_none=True)
    return details


def _may_see(view: SubscriptionView) -> bool:
    namespace = view.resource.metadata.namespace
    assert view.broker.broker is not None
    assert view.exchange is not None
    return acceptance.is_allowed(namespace, view.broker.broker) and acceptance.is_allowed(namespace, view.exchange)


def _applied(reply: BrokerReply) -> Manifest:
    keys = reply.body.get("bindingKeys")
    applied: Manifest = {
        "exchange": reply.body.get("exchange", ""),
        "bindingKeys": [str(key) for key in cast(list[object], keys)] if isinstance(keys, (list, tuple)) else [],
        "expiryPolicy": reply.body.get("expiryPolicy", ""),
        "sharing": reply.body.get("sharing", ""),
    }
    bindings = items_of(reply.body, "headerBindings")
    if bindings:
        applied["headerBindings"] = [as_text(binding) for binding in bindings]
    selector = reply.body.get("selector")
    return {**applied, "selector": selector} if selector is not None else applied
