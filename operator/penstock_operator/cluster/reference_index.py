"""Who refers to what: indexes from a Broker, an Exchange and an entity on a broker to the resources that name it.

They have what the raw manifests say, so they also find resources that can't be parsed. A place that nobody refers to
any more is removed. Synchronous. Source: docs/decisions/096-unreadable-resources.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock_operator.cluster.references import References
from penstock_operator.cluster.resource_key import ResourceKey

__all__ = ["ReferenceIndex"]


class _DeclaredEntity(NamedTuple):
    """An exchange or a queue on a broker, as a resource declares it."""

    broker: ResourceKey
    kind: str
    name: str


@dataclass(slots=True)
class ReferenceIndex:
    """The keys of resources, by what they refer to."""

    _by_broker: dict[ResourceKey, set[ResourceKey]] = field(default_factory=dict[ResourceKey, set[ResourceKey]])
    _by_exchange: dict[ResourceKey, set[ResourceKey]] = field(default_factory=dict[ResourceKey, set[ResourceKey]])
    _by_entity: dict[_DeclaredEntity, set[ResourceKey]] = field(default_factory=dict[_DeclaredEntity, set[ResourceKey]])

    def add(self, key: ResourceKey, references: References) -> None:
        """A resource has these references now."""
        for index, at in self._places(key, references):
            index.setdefault(at, set()).add(key)

    def discard(self, key: ResourceKey, references: References) -> None:
        """A resource has these references no longer; it had them."""
        for index, at in self._places(key, references):
            index[at].discard(key)
            if not index[at]:
                del index[at]

    def naming(self, key: ResourceKey) -> set[ResourceKey]:
        """The resources that refer to this Broker or Exchange."""
        index = self._by_broker if key.kind == "Broker" else self._by_exchange
        return index.get(key, set())

    def declaring_same(self, key: ResourceKey, references: References) -> set[ResourceKey]:
        """The resources that declare the same entity on the same Broker as this one, itself included."""
        entity = _declared_entity(key, references)
        return set() if entity is None else self._by_entity.get(entity, set())

    def _places(self, key: ResourceKey, references: References) -> Iterator[tuple[dict[Any, set[ResourceKey]], object]]:
        """The indexes that must have a resource, and where in each."""
        entity = _declared_entity(key, references)
        if entity is not None:
            yield self._by_entity, entity
        if references.broker is not None:
            yield self._by_broker, ResourceKey("Broker", *references.broker)
        if references.exchange is not None:
            yield self._by_exchange, ResourceKey("Exchange", *references.exchange)


def _declared_entity(key: ResourceKey, references: References) -> _DeclaredEntity | None:
    if references.broker is None or references.entity is None:
        return None
    return _DeclaredEntity(ResourceKey("Broker", *references.broker), key.kind, references.entity)
