"""How many resources of each kind and namespace use each Broker, counted as they come and go.

A Broker's reconcile asks for this several times, and must not walk its ten thousand Subscriptions each time.
Synchronous.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock_operator.cluster.references import References
from penstock_operator.cluster.resource_key import KindName, ResourceKey

__all__ = ["BrokerUsers"]


class _Place(NamedTuple):
    kind: KindName
    namespace: str


@dataclass(slots=True)
class BrokerUsers:
    """The numbers of the resources that name each Broker and can be read."""

    _counts: dict[ResourceKey, Counter[_Place]] = field(default_factory=dict[ResourceKey, Counter[_Place]])

    def add(self, key: ResourceKey, references: References) -> None:
        """A resource has these references now."""
        if references.broker is not None:
            broker = ResourceKey("Broker", *references.broker)
            self._counts.setdefault(broker, Counter())[_Place(key.kind, key.namespace)] += 1

    def discard(self, key: ResourceKey, references: References) -> None:
        """A resource has these references no longer; it had them."""
        if references.broker is None:
            return
        broker, place = ResourceKey("Broker", *references.broker), _Place(key.kind, key.namespace)
        counts = self._counts[broker]
        counts[place] -= 1
        if not counts[place]:
            del counts[place]
        if not counts:
            del self._counts[broker]

    def count(self, broker: ResourceKey, kind: KindName) -> int:
        """How many resources of a kind use the Broker."""
        return sum(count for place, count in self._counts.get(broker, Counter()).items() if place.kind == kind)

    def brokers(self, kinds: Collection[KindName]) -> frozenset[ResourceKey]:
        """The Brokers that resources of these kinds use."""
        return frozenset(key for key, counts in self._counts.items() if any(place.kind in kinds for place in counts))

    def namespaces(self, broker: ResourceKey) -> frozenset[str]:
        """The namespaces of all that use it."""
        return frozenset(place.namespace for place in self._counts.get(broker, ()))
