"""CREATE and UPDATE: reads the document, lets the rules decide, and applies the decision.

Idempotent. The response is returned; the node sends it once the change is synced. Source: docs/reference/management.md,
docs/decisions/014-managed-subscriptions.md, docs/decisions/047-management-node.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, assert_never

from pydantic import ValidationError

from penstock_amqp.types.values import Value
from penstock_api import management
from penstock_api.management import DeclarationOutcome, EntityType, StatusCode
from penstock_api.validation_messages import validation_messages
from penstock_broker.attach import permission_review
from penstock_broker.management import entity_states
from penstock_broker.management.responses import ManagementResponse, invalid_request, refusal
from penstock_broker.messages import due_times
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_broker.topology.auto_creation import make_destinations
from penstock_broker.topology.documents import managed_of
from penstock_broker.topology.records import Exchange, PointToPointQueue, Subscription, new_router
from penstock_core.address import check_queue_name
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
    decide_exchange_declaration,
)
from penstock_core.header_bindings import HeaderMatch, header_binding
from penstock_core.identity import GLOBAL, Identity, Scope, queue_name
from penstock_core.reason import Reason, Refuse
from penstock_core.selector import compile_selector
from penstock_core.subscription_lifetime import outlives_process
from penstock_core.terms import Adoption, ExchangeType, Exclusivity, Lifetime, Persistence, RebindPolicy, Unroutable

__all__ = ["declare"]

_OF_THE_OUTCOME: Final = frozenset({"outcome", "blockedBy"})


def declare(
    broker: Broker,
    kind: EntityType,
    name: str | None,
    body: Value,
    *,
    update: bool,
    attributes: frozenset[str] | None = None,
) -> ManagementResponse:
    """CREATE or UPDATE one entity. `attributes`: the only keys of its state that the response is to have; None: all."""
    response = _declare(broker, kind, name, body, update, attributes)
    return response if attributes is None or response.refuse is not None else _shortened(response, attributes)


def _declare(
    broker: Broker, kind: EntityType, name: str | None, body: Value, update: bool, attributes: frozenset[str] | None
) -> ManagementResponse:
    try:
        match kind:
            case EntityType.EXCHANGE:
                return _exchange(broker, name, management.ExchangeDeclaration.model_validate(body), update)
            case EntityType.SUBSCRIPTION:
                wanted = management.SubscriptionDeclaration.model_validate(body)
                return _subscription(broker, name, wanted, update, attributes)
            case EntityType.QUEUE:
                return _queue(broker, name, management.QueueDeclaration.model_validate(body), update)
            case EntityType.BROKER | EntityType.CONNECTION | EntityType.LINK:
                return refusal(Refuse(Reason.NOT_IMPLEMENTED, f"A {kind.value} can't be made or changed."))
            case _:
                assert_never(kind)
    except ValidationError as error:
        return invalid_request(
            f"The body does not fit {kind.value}: {'; '.join(validation_messages(error, whole='body'))}."
        )


def _shortened(response: ManagementResponse, attributes: frozenset[str]) -> ManagementResponse:
    """The response with these keys of the state, and what the declaration led to."""
    assert isinstance(response.body, dict)
    kept: dict[Value, Value] = {
        key: value for key, value in response.body.items() if key in attributes or key in _OF_THE_OUTCOME
    }
    return replace(response, body=kept)


def _subscription_state(subscription: Subscription, attributes: frozenset[str] | None) -> entity_states.StateDocument:
    """The state for a response; without the figures if none of them was asked for."""
    if attributes is not None and attributes <= entity_states.DECLARED:
        return entity_states.declared(subscription)
    return _without_ages(entity_states.subscription_state(subscription, {}), subscription.queue)


def _response(
    outcome: DeclarationOutcome, state: entity_states.StateDocument, blocked_by: str | None = None
) -> ManagementResponse:
    body: dict[Value, Value] = {**state, "outcome": outcome.value}
    if blocked_by is not None:
        body["blockedBy"] = blocked_by
    made = outcome is DeclarationOutcome.CREATED
    return ManagementResponse(
        status=int(StatusCode.CREATED if made else StatusCode.OK),
        description=outcome.value,
        body={key: value for key, value in body.items() if value is not None},
    )


# -- exchanges ------------------------------------------------------------------------------------------------------


def _exchange(
    broker: Broker, name: str | None, wanted: management.ExchangeDeclaration, update: bool
) -> ManagementResponse:
    if not name:
        return invalid_request("The request names no exchange.")
    topology = broker.topology
    existing = topology.exchanges.get(name)
    if existing is None and update:
        return refusal(Refuse(Reason.EXCHANGE_NOT_FOUND, f"There is no exchange {name!r}; create it."))
    kind = ExchangeType(wanted.exchange_type)
    refused = decide_exchange_declaration(name, kind, existing.type if existing is not None else None)
    if refused is None and existing is not None:
        refused = _other_owner(existing.owner, wanted, f"exchange {name!r}")
    if refused is not None:
        return refusal(refused)
    exchange = existing if existing is not None else Exchange(name=name, type=kind, router=new_router(kind))
    before = None if existing is None else _exchange_policies(existing)
    adopted = existing is not None and wanted.owner is not None and not _is_same(existing.owner, wanted.owner)
    exchange.unroutable = Unroutable(wanted.unroutable)
    exchange.alternate = wanted.alternate_exchange
    exchange.persistence = _persistence(wanted.persistence, wanted.owner)
    exchange.owner = wanted.owner
    if not set(exchange.publishers) <= set(wanted.publishers):
        permission_review.check_links_soon(broker)
    exchange.publishers = wanted.publishers
    exchange.made_by_name = False
    if before == _exchange_policies(exchange):
        return _response(DeclarationOutcome.UNCHANGED, entity_states.exchange_state(exchange))
    topology.put_exchange(exchange)
    broker.routes.forget()
    outcome = (
        DeclarationOutcome.CREATED
        if existing is None
        else DeclarationOutcome.ADOPTED
        if adopted
        else DeclarationOutcome.UPDATED
    )
    return _response(outcome, entity_states.exchange_state(exchange))


def _exchange_policies(exchange: Exchange) -> tuple[object, ...]:
    return (
        exchange.unroutable,
        exchange.alternate,
        exchange.persistence,
        exchange.owner,
        exchange.publishers,
        exchange.made_by_name,
    )


def _persistence(asked: str | None, owner: management.Owner | None) -> Persistence | None:
    if asked is not None:
        return Persistence(asked)
    return Persistence.ALWAYS if owner is not None else None


def _adoption(asked: management.Adoption | None) -> Adoption:
    return Adoption.UNMARKED if asked is None else Adoption(asked)


def _is_same(one: management.Owner | None, other: management.Owner) -> bool:
    """Whether both marks name one resource, whatever its uid."""
    if one is None:
        return False
    mark, others = managed_of(one, "Refuse"), managed_of(other, "Refuse")
    return one.kind == other.kind and mark is not None and others is not None and mark.is_same_resource(others)


def _other_owner(
    existing: management.Owner | None,
    declaration: management.ExchangeDeclaration | management.QueueDeclaration,
    what: str,
) -> Refuse | None:
    """None if the declaration has the same owner as the existing one, may take it over, or none exists."""
    if existing is None:
        return None
    wanted = declaration.owner
    if wanted is None:
        resource = f"{existing.namespace}/{existing.name}"
        return Refuse(Reason.MANAGED, f"The {what} is declared by {existing.kind} {resource}; change the resource.")
    if _is_same(existing, wanted):
        return None
    there, mark = managed_of(existing, "Refuse"), managed_of(wanted, "Refuse")
    assert there is not None and mark is not None
    if existing.kind == wanted.kind and mark.may_take_over(there, _adoption(declaration.adoption)):
        return None
    if existing.kind == wanted.kind and mark.may_take_over(there, Adoption.OTHER_CLUSTER):
        return Refuse(
            Reason.DUPLICATE_SUBSCRIPTION,
            f"The {what} was declared in another cluster; allow the adoption of OtherCluster to take it over.",
        )
    return Refuse(Reason.DUPLICATE_SUBSCRIPTION, f"Another resource declared the {what} before; choose another name.")


# -- subscriptions --------------------------------------------------------------------------------------------------


def _subscription(
    broker: Broker,
    name: str | None,
    wanted: management.SubscriptionDeclaration,
    update: bool,
    attributes: frozenset[str] | None,
) -> ManagementResponse:
    declared = _declared(broker, name, wanted)
    if isinstance(declared, Refuse):
        return refusal(declared)
    subscription = broker.topology.subscriptions.get(declared.identity)
    if subscription is None and update:
        return refusal(Refuse(Reason.SUBSCRIPTION_NOT_FOUND, f"There is no {declared.identity}; create it."))
    existing = subscription.existing() if subscription is not None else None
    decision = decide_declaration(declared, existing, subscription.queue.depth if subscription is not None else 0)
    refused = (
        None
        if isinstance(decision, Refuse)
        else make_destinations(broker.topology, wanted.delivery, broker.clock.now_us)
    )
    if refused is not None:
        return refusal(refused)
    match decision:
        case Refuse():
            return refusal(decision)
        case Make():
            made = _make(broker, declared, wanted)
            return _response(DeclarationOutcome.CREATED, _subscription_state(made, attributes))
        case Keep():
            assert subscription is not None
            return _keep(broker, subscription, declared, wanted, decision, attributes)
        case _:
            assert_never(decision)


def _declared(
    broker: Broker, name: str | None, wanted: management.SubscriptionDeclaration
) -> DeclaredSubscription | Refuse:
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
        adoption=_adoption(wanted.adoption),
    )


def _make(broker: Broker, declared: DeclaredSubscription, wanted: management.SubscriptionDeclaration) -> Subscription:
    logged = outlives_process(declared.identity.durable, declared.lifetime)
    subscription = Subscription(
        identity=declared.identity,
        exclusivity=declared.exclusivity,
        lifetime=declared.lifetime,
        binding=declared.binding,
        exchange_type=broker.topology.exchanges[declared.binding.exchange].type,
        queue=Queue("", broker.log.next_incarnation(), is_logged=logged, now_us=broker.clock.now_us),
    )
    _put_policies(subscription, declared, wanted)
    broker.topology.add(subscription)
    broker.routes.forget()
    return subscription


def _keep(
    broker: Broker,
    subscription: Subscription,
    declared: DeclaredSubscription,
    wanted: management.SubscriptionDeclaration,
    decision: Keep,
    attributes: frozenset[str] | None,
) -> ManagementResponse:
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
    return _response(outcome, _subscription_state(subscription, attributes), blocked_by)


def _without_ages(state: entity_states.StateDocument, queue: Queue) -> entity_states.StateDocument:
    """The state without the two times that only a look at all deliveries in flight could tell, if there are any: an
    operator declares thousands of subscriptions again and again, and READ tells them.
    """
    return {**state, "oldestAvailableMs": None, "oldestHoldMs": None} if queue.in_flight else state


def _put_policies(
    subscription: Subscription, declared: DeclaredSubscription, wanted: management.SubscriptionDeclaration
) -> None:
    subscription.lifetime = declared.lifetime
    subscription.queue.is_logged = subscription.is_logged
    subscription.persistence = Persistence(wanted.persistence) if wanted.persistence is not None else None
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


# -- queues ---------------------------------------------------------------------------------------------------------


def _queue(broker: Broker, name: str | None, wanted: management.QueueDeclaration, update: bool) -> ManagementResponse:
    if not name:
        return invalid_request("The request names no queue.")
    refused = check_queue_name(name)
    existing = broker.topology.queues.get(name)
    if refused is None and existing is None and update:
        refused = Refuse(Reason.QUEUE_NOT_FOUND, f"There is no queue {name!r}; create it.")
    if refused is None and existing is not None and existing.durable != wanted.durable:
        refused = Refuse(
            Reason.IMMUTABLE, f"The queue {name!r} is there with durable={existing.durable}; delete it first."
        )
    if refused is None and existing is not None:
        refused = _other_owner(existing.owner, wanted, f"queue {name!r}")
    if refused is None and name in (wanted.delivery.dead_letter, wanted.delivery.expiry):
        refused = Refuse(Reason.INVALID_REQUEST, f"The queue {name!r} can't be its own destination; name another.")
    refused = refused or make_destinations(broker.topology, wanted.delivery, broker.clock.now_us)
    if refused is not None:
        return refusal(refused)
    persistence = Persistence(wanted.persistence) if wanted.persistence is not None else None
    policies = (persistence, wanted.limits, wanted.delivery, wanted.owner, False)
    if existing is not None and _queue_policies(existing) == policies:
        return _response(
            DeclarationOutcome.UNCHANGED, _without_ages(entity_states.queue_state(existing, {}), existing.queue)
        )
    node = existing
    adopted = existing is not None and wanted.owner is not None and not _is_same(existing.owner, wanted.owner)
    if node is None:
        queue = Queue(name, broker.log.next_incarnation(), is_logged=wanted.durable, now_us=broker.clock.now_us)
        node = PointToPointQueue(name=name, durable=wanted.durable, queue=queue)
    node.persistence, node.limits, node.delivery = persistence, wanted.limits, wanted.delivery
    node.owner, node.made_by_name = wanted.owner, False
    broker.topology.put_queue(node)
    broker.routes.forget()
    due_times.recheck_expiry(broker, node.queue)
    broker.work.schedule(node.queue)  # others may get what waits now
    outcome = (
        DeclarationOutcome.CREATED
        if existing is None
        else DeclarationOutcome.ADOPTED
        if adopted
        else DeclarationOutcome.UPDATED
    )
    return _response(outcome, _without_ages(entity_states.queue_state(node, {}), node.queue))


def _queue_policies(node: PointToPointQueue) -> tuple[object, ...]:
    return (node.persistence, node.limits, node.delivery, node.owner, node.made_by_name)
