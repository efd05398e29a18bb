"""From what is declared on a broker to manifests: the way back of `penstock_api.declaration`. Pure.

A resource made from such a manifest declares exactly what is there, so the broker marks it with its owner and changes
nothing else (outcome `Adopted`). What no resource can declare is refused with the reason.
Source: docs/decisions/102-adoption.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock_api.management import (
    DeliveryPolicy,
    ExchangeDeclaration,
    HeaderBindingDocument,
    QueueDeclaration,
    QueueLimits,
    SubscriptionDeclaration,
)
from penstock_api.resources import InvalidManifest, parse
from penstock_api.resources.base import API_VERSION

__all__ = [
    "Manifest",
    "NotExported",
    "ResourcePlace",
    "exchange_manifest",
    "queue_manifest",
    "resource_name",
    "subscription_manifest",
]

Manifest: TypeAlias = dict[str, object]

_FOREIGN: Final = re.compile("[^a-z0-9]+")
_LONGEST: Final = 61
_SERVICE_ACCOUNTS: Final = re.compile(r"system:serviceaccount:([^:*]+):(\*|[^:*]+)")
"""The user of one ServiceAccount, or of all of a namespace (`penstock_api.delegation`)."""
_NAMED_TOGETHER: Final = 32
"""Users, or ServiceAccounts, that one entry of a spec names at most."""


class NotExported(Exception):
    """No resource can declare this; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class ResourcePlace:
    """Where the new resources belong."""

    namespace: str
    broker: str
    """Name of the Broker, in the same namespace."""


def resource_name(name: str, taken: Sequence[str] | set[str]) -> str:
    """A name for the resource: that of the entity as far as Kubernetes allows it, and different from those taken."""
    base = _FOREIGN.sub("-", name.lower()).strip("-")[: _LONGEST - 4].strip("-") or "unnamed"
    if not base[0].isalpha():
        base = f"x-{base}"
    found, number = base, 2
    while found in taken:
        found, number = f"{base}-{number}", number + 1
    return found


def exchange_manifest(
    name: str, declared: ExchangeDeclaration, resource: str, place: ResourcePlace, resources: Mapping[str, str]
) -> Manifest:
    """The Exchange `resource` for the exchange `name`; `resources`: names of Exchange resources by exchange.

    Raises:
        NotExported: no Exchange can declare it.
    """
    spec: dict[str, object] = {"brokerRef": {"name": place.broker}, "type": declared.exchange_type}
    if resource != name:
        spec["exchangeName"] = name
    if not declared.durable:
        spec["durability"] = "NonDurable"
    if declared.unroutable != "Accept":
        spec["unroutable"] = declared.unroutable
    if declared.alternate_exchange is not None:
        if declared.alternate_exchange not in resources:
            raise NotExported(f"Its alternate exchange {declared.alternate_exchange!r} has no resource beside it.")
        spec["alternateExchangeRef"] = {"name": resources[declared.alternate_exchange]}
    if declared.persistence == "AsSent":
        spec["persistence"] = "AsSent"
    if declared.publishers:
        spec["publishers"] = _grantees(declared.publishers, place)
    return _checked("Exchange", resource, place, spec)


def subscription_manifest(
    declared: SubscriptionDeclaration, resource: str, place: ResourcePlace, exchange: Mapping[str, str]
) -> Manifest:
    """The Subscription `resource`; `exchange` is its `exchangeRef`.

    Raises:
        NotExported: no Subscription can declare it.
    """
    spec: dict[str, object] = {"brokerRef": {"name": place.broker}, "exchangeRef": dict(exchange)}
    if resource != declared.subscription_name:
        spec["subscriptionName"] = declared.subscription_name
    if declared.client_id is not None:
        spec |= {"scope": declared.scope, "clientId": declared.client_id}
    for key, value, usual in (
        ("sharing", declared.sharing, "Shared"),
        ("durability", "Durable" if declared.durable else "NonDurable", "Durable"),
        ("expiryPolicy", declared.expiry_policy, "Never"),
        ("rebindPolicy", declared.rebind_policy, "InPlace"),
        ("clientOverrides", declared.client_overrides, "Refuse"),
        ("persistence", declared.persistence or "Always", "Always"),
    ):
        if value != usual:
            spec[key] = value
    if declared.binding_keys:
        spec["bindingKeys"] = sorted(declared.binding_keys)
    if declared.header_bindings:
        spec["headerBindings"] = [_header_binding(binding) for binding in declared.header_bindings]
    if declared.consumers:
        spec["consumers"] = _grantees(declared.consumers, place)
    chosen = {"selector": declared.selector, "noLocal": declared.no_local or None}
    spec["filter"] = {key: value for key, value in chosen.items() if value is not None}
    spec["limits"] = _limits(declared.limits)
    spec["delivery"] = _delivery(declared.delivery)
    return _checked("Subscription", resource, place, {key: value for key, value in spec.items() if value != {}})


def queue_manifest(name: str, declared: QueueDeclaration, resource: str, place: ResourcePlace) -> Manifest:
    """The Queue `resource` for the queue `name`. If the policy of clients' queues names the queue itself as a
    destination, nothing goes there from it, and the manifest does not say so.

    Raises:
        NotExported: no Queue can declare it.
    """
    spec: dict[str, object] = {"brokerRef": {"name": place.broker}}
    if resource != name:
        spec["queueName"] = name
    if not declared.durable:
        spec["durability"] = "NonDurable"
    if declared.persistence == "AsSent":
        spec["persistence"] = "AsSent"
    policy = declared.delivery
    own = {field: None for field in ("dead_letter", "expiry") if getattr(policy, field) == name}
    spec["limits"] = _limits(declared.limits)
    spec["delivery"] = _delivery(policy.model_copy(update=own))
    return _checked("Queue", resource, place, {key: value for key, value in spec.items() if value != {}})


def _limits(limits: QueueLimits) -> dict[str, object]:
    if limits.max_bytes is None and limits.max_messages is None:
        return {}
    size = None if limits.max_bytes is None else _quantity(limits.max_bytes)
    found = {"maxBytes": size, "maxMessages": limits.max_messages, "overflow": limits.overflow}
    return {key: value for key, value in found.items() if value is not None}


def _quantity(octets: int) -> str:
    for unit, size in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if octets % size == 0:
            return f"{octets // size}{unit}"
    return str(octets)


def _delivery(policy: DeliveryPolicy) -> dict[str, object]:
    seconds, rest = divmod(policy.max_ttl_ms or 0, 1000)
    if rest:
        raise NotExported(f"Its longest time to live, {policy.max_ttl_ms} ms, is no number of whole seconds.")
    found = {
        "maxDeliveries": policy.max_deliveries if policy.dead_letter is not None else None,
        "deadLetter": policy.dead_letter,
        "expiry": policy.expiry,
        "maxTtlSeconds": seconds or None,
        "exclusiveConsumer": policy.exclusive_consumer or None,
    }
    return {key: value for key, value in found.items() if value is not None}


def _grantees(patterns: Sequence[str], place: ResourcePlace) -> list[dict[str, object]]:
    """Who is given a right, as a spec says it: a declaration without them would take the right away."""
    accounts: dict[str, list[str]] = {}
    users: list[str] = []
    for pattern in sorted(patterns):
        account = _SERVICE_ACCOUNTS.fullmatch(pattern)
        if account is not None:
            accounts.setdefault(account[1], []).append(account[2])
        elif "*" in pattern:
            raise NotExported(f"It gives a right to the users {pattern!r}, and a resource names each user in full.")
        else:
            users.append(pattern)
    found: list[dict[str, object]] = []
    for namespace, names in accounts.items():
        elsewhere = {} if namespace == place.namespace else {"namespace": namespace}
        for part in _parts(names):
            found.append({"serviceAccounts": part, **elsewhere})
    for part in _parts(users):
        found.append({"users": part})
    return found


def _parts(names: list[str]) -> list[list[str]]:
    return [names[at : at + _NAMED_TOGETHER] for at in range(0, len(names), _NAMED_TOGETHER)]


def _header_binding(binding: HeaderBindingDocument) -> dict[str, object]:
    headers: list[dict[str, object]] = []
    for name, value in binding.headers.items():
        match value:
            case None:
                headers.append({"name": name})
            case bool():
                headers.append({"name": name, "boolean": value})
            case int():
                headers.append({"name": name, "integer": value})
            case str():
                headers.append({"name": name, "string": value})
            case float():
                raise NotExported(f"It binds by the header {name!r} with a fraction, which a Subscription can't.")
    return {"match": binding.match, "headers": headers}


def _checked(kind: str, name: str, place: ResourcePlace, spec: dict[str, object]) -> Manifest:
    metadata = {"name": name, "namespace": place.namespace}
    manifest: Manifest = {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
    try:
        parse(manifest)
    except InvalidManifest as error:
        raise NotExported(f"{error}.".replace("\n", "; ")) from error
    return manifest
