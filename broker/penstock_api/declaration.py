"""From a resource to what is declared on the broker: names, owner mark, body of CREATE. Pure; the operator and
`penstock up` share it.

It must not know whether a reference may be followed: callers have resolved `exchangeRef` and checked permissions
before. Source: docs/decisions/054-owner-mark.md; docs/reference/management.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock_api.management import (
    Adoption,
    ExchangeDeclaration,
    Owner,
    QueueDeclaration,
    QueueLimits,
    SubscriptionDeclaration,
)
from penstock_api.resources import Broker, Declaring, Exchange, Holding, Queue, Subscription, quantity_bytes
from penstock_api.resources.delivery import delivery_policy
from penstock_api.resources.header_bindings import as_declared
from penstock_api.resources.subscription import SubscriptionLimits
from penstock_core import identity

__all__ = [
    "ADOPTION",
    "LOCAL_CLUSTER",
    "adoption_of",
    "alternates_first",
    "broker_key",
    "exchange_declaration",
    "exchange_key",
    "exchange_name",
    "owner_of",
    "queue_declaration",
    "queue_name",
    "subscription_declaration",
    "subscription_identity",
    "subscription_name",
]

ADOPTION: Final = "penstock.dev/adoption"
"""Annotation of a Broker: what its resources may take over (docs/decisions/102-adoption.md)."""
LOCAL_CLUSTER: Final = "local"
"""`clusterId` of owner marks made without Kubernetes."""


def exchange_name(exchange: Exchange) -> str:
    """The name that clients use: `spec.exchangeName`, else the resource's."""
    return exchange.spec.exchange_name or exchange.metadata.name


def subscription_name(subscription: Subscription) -> str:
    """The name that clients subscribe with: `spec.subscriptionName`, else the resource's."""
    return subscription.spec.subscription_name or subscription.metadata.name


def subscription_identity(subscription: Subscription) -> identity.Identity:
    """(scope, name, durable): what makes two Subscriptions of one Broker the same one."""
    spec = subscription.spec
    scope = identity.GLOBAL if spec.client_id is None else identity.Scope(spec.client_id)
    return identity.Identity(scope, subscription_name(subscription), spec.durability == "Durable")


def queue_name(holding: Holding) -> str:
    """The name on the broker of the queue that a Subscription has or a Queue is, for status and for DELETE."""
    if isinstance(holding, Queue):
        return holding.spec.queue_name or holding.metadata.name
    return identity.queue_name(subscription_identity(holding))


def broker_key(resource: Declaring) -> tuple[str, str]:
    """(namespace, name) of the Broker that a resource names."""
    ref = resource.spec.broker_ref
    return ref.namespace or resource.metadata.namespace, ref.name


def exchange_key(subscription: Subscription) -> tuple[str, str]:
    """(namespace, name) of the Exchange resource that a Subscription names."""
    ref = subscription.spec.exchange_ref
    return ref.namespace or subscription.metadata.namespace, ref.name


def owner_of(resource: Declaring, cluster_id: str = LOCAL_CLUSTER) -> Owner:
    """The owner mark that the broker keeps with what a resource declares.

    A manifest in a file has no uid; then namespace/name is used instead.
    """
    metadata = resource.metadata
    return Owner(
        cluster_id=cluster_id,
        kind=resource.kind,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid or resource.key,
        deletion_policy=resource.spec.deletion_policy,
    )


def adoption_of(broker: Broker | None) -> Adoption | None:
    """What the resources of a Broker may take over, by its annotation; a word that is not known allows nothing."""
    match None if broker is None else broker.metadata.annotations.get(ADOPTION):
        case "OtherCluster":
            return "OtherCluster"
        case "Orphans":
            return "Orphans"
        case _:
            return None


def alternates_first(exchanges: Mapping[str, str | None]) -> list[str]:
    """The names of exchanges in an order in which they can be declared: each behind its alternate exchange, which
    stands beside its name. Of alternates that lead in a circle, one comes before its own.
    """
    ordered: dict[str, None] = {}
    for each in exchanges:
        behind: dict[str, None] = {}  # each name with all that have to come before it
        name: str | None = each
        while name is not None and name in exchanges and name not in ordered and name not in behind:
            behind[name] = None
            name = exchanges[name]
        ordered |= dict.fromkeys(reversed(behind))
    return list(ordered)


def exchange_declaration(
    exchange: Exchange,
    *,
    alternate: str | None = None,
    publishers: tuple[str, ...] = (),
    cluster_id: str = LOCAL_CLUSTER,
    adoption: Adoption | None = None,
) -> ExchangeDeclaration:
    """Body of CREATE; `alternate` is the name on the broker of the Exchange that `alternateExchangeRef` names,
    `publishers` what the Broker allows of the spec's (`penstock_api.delegation`).
    """
    spec = exchange.spec
    return ExchangeDeclaration(
        exchange_type=spec.type,
        durable=spec.durability == "Durable",
        unroutable=spec.unroutable,
        alternate_exchange=alternate,
        publishers=publishers,
        persistence=spec.persistence,
        owner=owner_of(exchange, cluster_id),
        adoption=adoption,
    )


def subscription_declaration(
    subscription: Subscription,
    *,
    exchange: str,
    consumers: tuple[str, ...] = (),
    cluster_id: str = LOCAL_CLUSTER,
    adoption: Adoption | None = None,
) -> SubscriptionDeclaration:
    """Body of CREATE; `exchange` is the name on the broker of the Exchange that `exchangeRef` names, `consumers` what
    the Broker allows of the spec's (`penstock_api.delegation`).
    """
    spec = subscription.spec
    return SubscriptionDeclaration(
        subscription_name=subscription_name(subscription),
        scope=spec.scope,
        client_id=spec.client_id,
        sharing=spec.sharing,
        durable=spec.durability == "Durable",
        expiry_policy=spec.expiry_policy,
        exchange=exchange,
        binding_keys=tuple(sorted(set(spec.binding_keys))),
        header_bindings=tuple(as_declared(binding) for binding in spec.header_bindings),
        selector=spec.filter.selector,
        no_local=spec.filter.no_local,
        rebind_policy=spec.rebind_policy,
        client_overrides=spec.client_overrides,
        consumers=consumers,
        persistence=spec.persistence,
        limits=_limits(spec.limits),
        delivery=delivery_policy(spec.delivery),
        owner=owner_of(subscription, cluster_id),
        adoption=adoption,
    )


def queue_declaration(
    queue: Queue, *, cluster_id: str = LOCAL_CLUSTER, adoption: Adoption | None = None
) -> QueueDeclaration:
    """Body of CREATE."""
    spec = queue.spec
    return QueueDeclaration(
        durable=spec.durability == "Durable",
        persistence=spec.persistence,
        limits=_limits(spec.limits),
        delivery=delivery_policy(spec.delivery),
        owner=owner_of(queue, cluster_id),
        adoption=adoption,
    )


def _limits(limits: SubscriptionLimits) -> QueueLimits:
    """The limits as they are declared. Without a limit `overflow` says nothing, and is left at its default on the wire:
    a broker of an earlier release, which has limits of its own, does with the subscription what it did before.
    """
    if limits.max_bytes is None and limits.max_messages is None:
        return QueueLimits()
    return QueueLimits(
        max_bytes=None if limits.max_bytes is None else quantity_bytes(limits.max_bytes),
        max_messages=limits.max_messages,
        overflow=limits.overflow,
    )
