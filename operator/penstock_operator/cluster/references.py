"""What a Broker, Exchange, Subscription or Queue refers to, read from its raw manifest.

The operator must know this also of a resource that it can't parse, because the CRD is of a later release: what such a
resource has declared is still its own. So each value is read for itself, with the CRD's default where it is left out,
and a value that has another form than this release knows counts as "not known", never as "none". For a resource that
can be parsed, the values are those of `penstock_api.declaration`. Pure. Source:
docs/decisions/096-unreadable-resources.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from penstock_core import identity
from penstock_operator.manifest import Manifest, dig, text_at

__all__ = ["References", "references_of"]

_DURABILITY: Final = {None: True, "Durable": True, "NonDurable": False}


@dataclass(frozen=True, slots=True)
class References:
    """What a resource refers to, and what it declares."""

    broker: tuple[str, str] | None = None
    """(namespace, name) of its Broker; None if that can't be read, so that it may be any."""
    exchange: tuple[str, str] | None = None
    """(namespace, name) of the Exchange to which it is bound, or which is its alternate; None if there is none, or it
    can't be read.
    """
    entity: str | None = None
    """The name of its exchange or queue on the broker; None if it can't be read."""


def references_of(manifest: Manifest) -> References:
    """The references of an Exchange, a Subscription or a Queue; a Broker has none."""
    namespace = text_at(manifest, "metadata", "namespace") or ""
    match manifest.get("kind"):
        case "Exchange":
            return References(
                broker=_reference(manifest, "brokerRef", namespace),
                exchange=_reference(manifest, "alternateExchangeRef", namespace),
                entity=_name(manifest, "exchangeName"),
            )
        case "Subscription":
            return References(
                broker=_reference(manifest, "brokerRef", namespace),
                exchange=_reference(manifest, "exchangeRef", namespace),
                entity=_queue_name(manifest),
            )
        case "Queue":
            return References(broker=_reference(manifest, "brokerRef", namespace), entity=_name(manifest, "queueName"))
        case _:
            return References()


def _reference(manifest: Manifest, field: str, home: str) -> tuple[str, str] | None:
    """A reference that has a name and perhaps a namespace. With anything else in it, it may mean another object."""
    found = dig(manifest, "spec", field)
    if not isinstance(found, Mapping):
        return None
    reference = cast(Mapping[str, object], found)
    name, namespace = reference.get("name"), reference.get("namespace")
    if not isinstance(name, str) or not (namespace is None or isinstance(namespace, str)):
        return None
    return None if reference.keys() - {"name", "namespace"} else (namespace or home, name)


def _name(manifest: Manifest, field: str) -> str | None:
    """The name that clients use: that in the spec, else the resource's."""
    found = dig(manifest, "spec", field)
    if found is None:
        return text_at(manifest, "metadata", "name")
    return found if isinstance(found, str) else None


def _queue_name(manifest: Manifest) -> str | None:
    """The name of the queue of a Subscription."""
    name, scope = _name(manifest, "subscriptionName"), _scope(manifest)
    durability = dig(manifest, "spec", "durability")
    durable = _DURABILITY.get(durability) if durability is None or isinstance(durability, str) else None
    if name is None or scope is None or durable is None:
        return None
    return identity.queue_name(identity.Identity(scope, name, durable))


def _scope(manifest: Manifest) -> identity.Scope | None:
    match dig(manifest, "spec", "scope"), dig(manifest, "spec", "clientId"):
        case ((None | "Global"), None):
            return identity.GLOBAL
        case "Container", str(client_id):
            return identity.Scope(client_id)
        case _:
            return None
