"""CREATE and UPDATE of a subscription: lets the rules decide, and applies the decision. Idempotent.

Source: docs/reference/management.md, docs/decisions/014-managed-subscriptions.md, docs/decisions/053-rebind-policy.md.
"""

from __future__ import annotations

from typing import assert_never

from penstock_api.management import DeclarationOutcome, SubscriptionDeclaration
from penstock_broker.attach import permission_review
from penstock_broker.management import entity_states
from penstock_broker.management.declaration_replies import declaration_reply, without_ages
from penstock_broker.management.declared_persistence import declared_persistence
from penstock_broker.management.owner_marks import adoption_asked
from penstock_broker.management.replies import ManagementReply, refusal
from penstock_broker.messages import due_times
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_broker.topology.auto_creation import make_destinations
from penstock_broker.topology.document_lengths import check_document
from penstock_broker.topology.documents import managed_of
from penstock_broker.topology.records import Subscription
from penstock_core.binding import Filter, binding_declared
from penstock_core.declaration_rules import (
    DeclaredSubscription,
    DropAndRebind,
    Keep,
    Make,
    RebindInPlace,
    SameBinding,
    Wait,
    decide_declaration,
)
from penstock_core.header_bindings import HeaderMatch, header_binding
from penstock_core.identity import GLOBAL, Identity, Scope, queue_name
from penstock_core.reason import Reason, Refuse
from penstock_core.selector import compile_selector
from penstock_core.subscription_lifetime import outlives_process
from penstock_core.terms import Exclusivity, Lifetime, RebindPolicy

__all__ = ["declare_subscription"]


def declare_subscription(
    broker: Broker,
    name: str | None,
    wanted: SubscriptionDeclaration,
    *,
    update: bool,
    attributes: frozenset[str] | None = None,
) -> ManagementReply:
    """CREATE or UPDATE a subscription; with ``update`` it has to be there. `attributes`: the only keys of its state
    that the reply is to have; None: all.
    """
    declared = _declared(broker, name, wanted)
    if isinstance(declared, Refuse):
        return refusal(declared)
    subscription = broker.topology.subscriptions.get(declared.identity)
    if subscription is None and update:
        return refusal(Refuse(Reason.SUBSCRIPTION_NOT_FOUND, f"There is no {declared.identity}; create it."))
    existing = subscription.existing() if subscription is not None else None
    decision = decide_declaration(declared, existing, subscription.queue.depth if subscription is not None else 0)
    lasts = outlives_process(declared.identity.durable, declared.lifetime)
    if isinstance(decision, Make) and lasts and not broker.log.takes_topology():
        decision = broker.storage_refuse()
    if isinstance(decision, Refuse):
        return refusal(decision)
    refused = _check_length(broker, declared, wanted, subscription) if lasts else None
    refused = refused or make_destinations(broker.topology, wanted.delivery, broker.clock.now_us)
    if refused is not None:
        return refusal(refused)
    match decision:
        case Make():
            made = _make(broker, declared, wanted)
            return declaration_reply(DeclarationOutcome.CREATED, _state(made, attributes))
        case Keep():
            assert subscription is not None
            return _keep(broker, subscription, declared, wanted, decision, attributes)
        case _:
            assert_never(decision)


def _declared(broker: Broker, name: str | None, wanted: SubscriptionDeclaration) -> DeclaredSubscription | Refuse:
    if (wanted.scope == "Container") != (wanted.client_id is not None):
        return Refuse(Reason.INVALID_REQUEST, "clientId goes with scope Container, and only with it.")
    scope = GLOBAL if wanted.client_id is None else Scope(wanted.client_id)
    identity = Identity(scope, wanted.subscription_name, wanted.durable)
    if name and name != queue_name(identity):
        return Refuse(
            Reason.INVALID_NAME, f"The name is not that of its queue, {queue_name(identity)!r}; leave it out."
        )
    exchange = broker.topology.exchanges.get(wanted.exchange)
    if exchange is None:
        return Refuse(Reason.EXCHANGE_NOT_FOUND, f"There is no exchange {wanted.exchange!r}; declare it first.")
    if exchange.temporary is not None:
        return Refuse(Reason.NOT_ALLOWED, f"The topic {wanted.exchange!r} is temporary; declare on one that lasts.")
    selector = compile_selector(wanted.selector or "")
    if isinstance(selector, Refuse):
        return selector
    binding = binding_declared(
        exchange.name,
        exchange.type,
        frozenset(wanted.binding_keys),
        frozenset(header_binding(HeaderMatch(each.match), each.headers) for each in wanted.header_bindings),
        Filter(selector.text if selector is not None else None, wanted.no_local),
    )
    if isinstance(binding, Refuse):
        return binding
    return DeclaredSubscription(
        identity=identity,
        exclusivity=Exclusivity(wanted.sharing),
        lifetime=Lifetime(wanted.expiry_policy),
        binding=binding,
        rebind_policy=RebindPolicy(wanted.rebind_policy),
        managed=managed_of(wanted.owner, wanted.client_overrides),
        adoption=adoption_asked(wanted.adoption),
    )


def _check_length(
    broker: Broker, declared: DeclaredSubscription, wanted: SubscriptionDeclaration, existing: Subscription | None
) -> Refuse | None:
    """None if the log can hold what is declared."""
    if existing is not None and existing.binding == declared.binding and _policies(existing) == _wanted(wanted):
        return None
    draft = _described(broker, declared, wanted, 0)
    draft.owner_link = existing.owner_link if existing is not None else None
    return check_document(broker.log, draft)


def _described(
    broker: Broker, declared: DeclaredSubscription, wanted: SubscriptionDeclaration, incarnation: int
) -> Subscription:
    logged = outlives_process(declared.identity.durable, declared.lifetime)
    subscription = Subscription(
        identity=declared.identity,
        exclusivity=declared.exclusivity,
        lifetime=declared.lifetime,
        binding=declared.binding,
        exchange_type=broker.topology.exchanges[declared.binding.exchange].type,
        queue=Queue("", incarnation, is_logged=logged, now_us=broker.clock.now_us),
    )
    _put_policies(subscription, declared, wanted)
    return subscription


def _make(broker: Broker, declared: DeclaredSubscription, wanted: SubscriptionDeclaration) -> Subscription:
    subscription = _described(broker, declared, wanted, broker.log.next_incarnation())
    broker.topology.add(subscription)
    broker.routes.forget()
    return subscription


def _keep(
    broker: Broker,
    subscription: Subscription,
    declared: DeclaredSubscription,
    wanted: SubscriptionDeclaration,
    decision: Keep,
    attributes: frozenset[str] | None,
) -> ManagementReply:
    before = _policies(subscription)
    if not set(subscription.declared_consumers) <= set(wanted.consumers):
        permission_review.check_links_soon(broker)
    _put_policies(subscription, declared, wanted)
    if decision.adopts:
        subscription.user = None
    outcome = DeclarationOutcome.UNCHANGED if _policies(subscription) == before else DeclarationOutcome.UPDATED
    if decision.adopts:
        outcome = DeclarationOutcome.ADOPTED
    blocked_by: str | None = None
    topology = broker.topology
    match decision.rebinding:
        case SameBinding():
            if outcome is not DeclarationOutcome.UNCHANGED:
                topology.changed(subscription)
        case RebindInPlace():
            topology.rebind_in_place(subscription, declared.binding)
            outcome = DeclarationOutcome.REBOUND
        case DropAndRebind():
            topology.drop_and_rebind(subscription, declared.binding, broker.clock.now_us)
            outcome = DeclarationOutcome.REBOUND
        case Wait(reason):
            topology.changed(subscription)
            outcome, blocked_by = DeclarationOutcome.REBIND_BLOCKED, reason.value
        case _:
            assert_never(decision.rebinding)
    if outcome is not DeclarationOutcome.UNCHANGED:
        broker.routes.forget()
        due_times.recheck_expiry(broker, subscription.queue)
        broker.work.schedule(subscription.queue)  # others may get what waits now
    return declaration_reply(outcome, _state(subscription, attributes), blocked_by)


def _put_policies(subscription: Subscription, declared: DeclaredSubscription, wanted: SubscriptionDeclaration) -> None:
    subscription.lifetime = declared.lifetime
    subscription.queue.is_logged = subscription.is_logged
    subscription.persistence = declared_persistence(wanted.persistence)
    subscription.limits = wanted.limits
    subscription.delivery = wanted.delivery
    subscription.rebind_policy = wanted.rebind_policy
    subscription.client_overrides = wanted.client_overrides
    subscription.owner = wanted.owner
    subscription.declared_consumers = wanted.consumers
    subscription.managed = declared.managed


def _policies(subscription: Subscription) -> tuple[object, ...]:
    return (
        subscription.lifetime,
        subscription.persistence,
        subscription.limits,
        subscription.delivery,
        subscription.rebind_policy,
        subscription.client_overrides,
        subscription.owner,
        subscription.declared_consumers,
    )


def _wanted(wanted: SubscriptionDeclaration) -> tuple[object, ...]:
    """The same of a subscription that has what is declared."""
    return (
        Lifetime(wanted.expiry_policy),
        declared_persistence(wanted.persistence),
        wanted.limits,
        wanted.delivery,
        wanted.rebind_policy,
        wanted.client_overrides,
        wanted.owner,
        wanted.consumers,
    )


def _state(subscription: Subscription, attributes: frozenset[str] | None) -> entity_states.StateDocument:
    """The state for a reply; without the figures if none of them was asked for."""
    if attributes is not None and attributes <= entity_states.DECLARED:
        return entity_states.declared(subscription)
    return without_ages(entity_states.subscription_state(subscription, {}), subscription.queue)
