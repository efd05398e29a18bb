"""`penstock export`: what of a broker is exported, under which names, and what is left out and why.

Exchanges come first, because a Subscription that the operator sees before its Exchange has to wait. What a resource has
declared already is left out; a Subscription may name such an Exchange. An exchange that every broker has (`amq.topic`)
is exported only if a Subscription needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock_amqp.client.management import ManagementClient
from penstock_api import management
from penstock_api.declaration import alternates_first
from penstock_api.failure import Failure
from penstock_api.management import EntityType, ExchangeDeclaration, Owner, QueueDeclaration, SubscriptionDeclaration
from penstock_api.manifest_export import (
    Manifest,
    NotExported,
    ResourcePlace,
    exchange_manifest,
    queue_manifest,
    resource_name,
    subscription_manifest,
)
from penstock_cli.progress import Follow, silent
from penstock_core.address import PREDEFINED

__all__ = ["Export", "Found", "exported", "found_on"]

AT_ONCE: Final = 100
"""Requests that are under way at the same time."""
_PLURALS: Final = {
    EntityType.EXCHANGE: "exchanges",
    EntityType.SUBSCRIPTION: "subscriptions",
    EntityType.QUEUE: "queues",
}


@dataclass(frozen=True, slots=True)
class Found:
    """What a broker has: declarations of exchanges and queues by name, and of subscriptions."""

    exchanges: dict[str, ExchangeDeclaration]
    subscriptions: tuple[SubscriptionDeclaration, ...]
    unreadable: tuple[str, ...] = ()
    """What the broker can't tell as a declaration."""
    queues: dict[str, QueueDeclaration] = field(default_factory=dict[str, QueueDeclaration])


@dataclass(slots=True)
class Export:
    """Manifests in the order in which they can be applied, and a sentence for each thing that has none."""

    manifests: list[Manifest] = field(default_factory=list[Manifest])
    left_out: list[str] = field(default_factory=list[str])
    fleeting: int = 0
    """Subscriptions that end with their client, so that there is nothing to adopt."""


async def found_on(client: ManagementClient, follow: Follow = silent) -> Found:
    """Everything that the broker has; `follow` tells how far it is.

    Raises `Failure` if the broker is of a release that tells no declarations.
    """
    exchanges = await _names(client, EntityType.EXCHANGE, "name", follow)
    subscriptions = await _names(client, EntityType.SUBSCRIPTION, "queueName", follow)
    of_exchanges = await _declarations(client, EntityType.EXCHANGE, exchanges, follow)
    of_subscriptions = await _declarations(client, EntityType.SUBSCRIPTION, subscriptions, follow)
    if (of_exchanges or of_subscriptions) and not any((*of_exchanges.values(), *of_subscriptions.values())):
        raise Failure("this broker can't tell what its exchanges are declared as.", "Give it a newer image.")
    queues = await _names(client, EntityType.QUEUE, "name", follow)
    of_queues = await _declarations(client, EntityType.QUEUE, queues, follow)
    # An exchange or a queue without a declaration is temporary, or the broker is too old to tell that of a queue.
    unreadable = [f"subscription {name!r}" for name, body in of_subscriptions.items() if body is None]
    return Found(
        {name: ExchangeDeclaration.read(body) for name, body in of_exchanges.items() if body is not None},
        tuple(SubscriptionDeclaration.read(body) for body in of_subscriptions.values() if body is not None),
        tuple(unreadable),
        {name: QueueDeclaration.read(body) for name, body in of_queues.items() if body is not None},
    )


def exported(found: Found, place: ResourcePlace) -> Export:
    """The manifests of everything that no resource has declared."""
    export = Export(left_out=[f"{each}: its values fit no declaration." for each in found.unreadable])
    used = {each.exchange for each in found.subscriptions if each.owner is None and not _is_fleeting(each)}
    unmanaged = {
        name: each
        for name, each in sorted(found.exchanges.items())
        if each.owner is None and (name not in PREDEFINED or name in used)
    }
    names: dict[str, str] = {}
    taken: set[str] = set()
    for name in unmanaged:
        names[name] = resource_name(name, taken)
        taken.add(names[name])
    written: set[str] = set()
    for name in alternates_first({name: each.alternate_exchange for name, each in unmanaged.items()}):
        try:
            export.manifests.append(exchange_manifest(name, unmanaged[name], names[name], place, names))
            written.add(name)
        except NotExported as reason:
            export.left_out.append(f"exchange {name!r}: {reason}")
    taken = set()
    for each in sorted(found.subscriptions, key=lambda each: (each.subscription_name, each.client_id or "")):
        if each.owner is not None:
            continue
        if _is_fleeting(each):
            export.fleeting += 1
            continue
        try:
            exchange = _exchange_ref(each.exchange, found.exchanges, names, written, place)
            resource = resource_name(each.subscription_name, taken)
            export.manifests.append(subscription_manifest(each, resource, place, exchange))
            taken.add(resource)
        except NotExported as reason:
            export.left_out.append(f"subscription {each.subscription_name!r}: {reason}")
    names_of_queues: set[str] = set()
    for name, queue in sorted(found.queues.items()):
        if queue.owner is not None:
            continue
        try:
            resource = resource_name(name, names_of_queues)
            export.manifests.append(queue_manifest(name, queue, resource, place))
            names_of_queues.add(resource)
        except NotExported as reason:
            export.left_out.append(f"queue {name!r}: {reason}")
    return export


def _is_fleeting(subscription: SubscriptionDeclaration) -> bool:
    return not subscription.durable and subscription.expiry_policy != "Never"


def _exchange_ref(
    name: str,
    exchanges: dict[str, ExchangeDeclaration],
    names: dict[str, str],
    written: set[str],
    place: ResourcePlace,
) -> dict[str, str]:
    """The reference to the Exchange: one that is exported too, or the resource that has declared it."""
    if name in written:
        return {"name": names[name]}
    declared = exchanges.get(name)
    owner: Owner | None = None if declared is None else declared.owner
    if owner is None:
        raise NotExported(f"Its exchange {name!r} is not exported.")
    return (
        {"name": owner.name}
        if owner.namespace == place.namespace
        else {
            "name": owner.name,
            "namespace": owner.namespace,
        }
    )


async def _names(client: ManagementClient, kind: EntityType, key: str, follow: Follow) -> list[str]:
    told = follow(f"listing the {_PLURALS[kind]}")
    return [str(row[key]) for row in await client.query_all(kind, attributes=(key,), told=told)]


async def _declarations(
    client: ManagementClient, kind: EntityType, names: Sequence[str], follow: Follow
) -> dict[str, object]:
    """By name; None: the broker has none to tell. What has ended since it was listed is not among them.

    Raises ManagementError if the broker refuses to tell one: a file without it would be taken for the whole.
    """
    found: dict[str, object] = {}
    told = follow(f"reading the {_PLURALS[kind]}")
    asked = 0
    for part in _parts(names):
        replies = await asyncio.gather(*(client.request(management.Operation.READ, kind, name) for name in part))
        for name, reply in zip(part, replies, strict=True):
            if reply.status != management.StatusCode.NOT_FOUND:
                found[name] = reply.check().attributes.get(management.DECLARATION)
        asked += len(part)
        told(asked, len(names))
    return found


def _parts(names: Sequence[str]) -> Iterable[Sequence[str]]:
    return (names[at : at + AT_ONCE] for at in range(0, len(names), AT_ONCE))
