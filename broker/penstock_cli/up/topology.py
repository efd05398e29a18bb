"""What a folder of manifests declares on the broker, ordered so that each declaration succeeds at once. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from penstock_api import declaration
from penstock_api.delegation import rights_of
from penstock_api.management import EntityType, ExchangeDeclaration, QueueDeclaration, SubscriptionDeclaration
from penstock_cli.up.manifest_folder import Manifests

__all__ = ["DeclaredEntity", "declared"]


@dataclass(frozen=True, slots=True)
class DeclaredEntity:
    """One CREATE: type and name of the entity, its name in messages for people, and the body."""

    type: EntityType
    name: str
    resource: str
    body: ExchangeDeclaration | SubscriptionDeclaration | QueueDeclaration


def declared(manifests: Manifests) -> tuple[DeclaredEntity, ...]:
    """Exchanges first, each after its alternate exchange; then queues, then subscriptions."""
    names = {exchange.key: declaration.exchange_name(exchange) for exchange in manifests.exchanges}
    exchanges: dict[str, DeclaredEntity] = {}
    alternates: dict[str, str | None] = {}
    for exchange in manifests.exchanges:
        ref = exchange.spec.alternate_exchange_ref
        alternate = None if ref is None else names.get(f"{exchange.metadata.namespace}/{ref.name}", ref.name)
        publishers = rights_of(manifests.broker, exchange).users
        body = declaration.exchange_declaration(exchange, alternate=alternate, publishers=publishers)
        name = names[exchange.key]
        exchanges[name] = DeclaredEntity(EntityType.EXCHANGE, name, f"Exchange {exchange.key}", body)
        alternates[name] = body.alternate_exchange
    queues = (
        DeclaredEntity(
            EntityType.QUEUE,
            declaration.queue_name(queue),
            f"Queue {queue.key}",
            declaration.queue_declaration(queue),
        )
        for queue in manifests.queues
    )
    subscriptions = (
        DeclaredEntity(
            EntityType.SUBSCRIPTION,
            declaration.queue_name(subscription),
            f"Subscription {subscription.key}",
            declaration.subscription_declaration(
                subscription,
                exchange=names[exchange.key],
                consumers=rights_of(manifests.broker, subscription).users,
            ),
        )
        for subscription, exchange in manifests.subscriptions
    )
    return (*(exchanges[name] for name in declaration.alternates_first(alternates)), *queues, *subscriptions)
