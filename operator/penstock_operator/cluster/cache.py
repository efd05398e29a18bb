"""The resources as last seen, by events and by our own lists, with the look-ups that the planners need. Synchronous.

Events are hints: a list is the truth, and what a complete list lacks is gone. But a list takes a while; what changed
since it began is newer than it. So each entry, and each removal, remembers at which tick it came. Source: section 5
of the design.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, NamedTuple, TypeVar, cast

from penstock_api import declaration
from penstock_api.resources import AnyResource, Broker, Exchange, InvalidManifest, Subscription, parse
from penstock_operator.manifest import Manifest, dig, text_at
from penstock_operator.plans import acceptance

__all__ = ["Cache", "CachedResource", "KindName", "ResourceChange", "ResourceKey", "key_of"]

KindName = Literal["Broker", "Exchange", "Subscription"]
KIND_NAMES: Final[tuple[KindName, ...]] = ("Broker", "Exchange", "Subscription")


class ResourceChange(Enum):
    """What is new about a resource."""

    NOTHING = "Nothing"
    STATUS = "Status"
    """Only what the operator itself writes; no reason to look at it again."""
    SPEC = "Spec"
    """It is new, or a person or another program changed it."""


class ResourceKey(NamedTuple):
    """Names one resource."""

    kind: KindName
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class CachedResource:
    """One resource as last seen."""

    manifest: Manifest
    resource: AnyResource | None
    """None if this version of the operator can't read it."""
    problem: str
    """Why."""
    tick: int

    @property
    def version(self) -> str | None:
        """Its resourceVersion."""
        return text_at(self.manifest, "metadata", "resourceVersion")


def key_of(manifest: Manifest) -> ResourceKey:
    """The key of a resource of ours."""
    kind = cast(KindName, manifest["kind"])
    return ResourceKey(
        kind, text_at(manifest, "metadata", "namespace") or "", text_at(manifest, "metadata", "name") or ""
    )


class _Claim(NamedTuple):
    """An entity on a broker that a resource wants to be."""

    broker: ResourceKey
    kind: str
    name: str


@dataclass(slots=True)
class Cache:
    """Every Broker, Exchange and Subscription."""

    _entries: dict[ResourceKey, CachedResource] = field(default_factory=dict[ResourceKey, CachedResource])
    _removed: dict[ResourceKey, int] = field(default_factory=dict[ResourceKey, int])
    _tick: int = 0
    _by_broker: defaultdict[ResourceKey, set[ResourceKey]] = field(
        default_factory=lambda: defaultdict[ResourceKey, set[ResourceKey]](set)
    )
    _by_exchange: defaultdict[ResourceKey, set[ResourceKey]] = field(
        default_factory=lambda: defaultdict[ResourceKey, set[ResourceKey]](set)
    )
    _by_claim: defaultdict[_Claim, set[ResourceKey]] = field(
        default_factory=lambda: defaultdict[_Claim, set[ResourceKey]](set)
    )
    is_complete: bool = False
    """All kinds were listed once; before that nothing may be concluded from what is missing."""

    def get(self, key: ResourceKey) -> CachedResource | None:
        """The resource, None if there is none."""
        return self._entries.get(key)

    def all(self, kind: KindName | None = None) -> list[ResourceKey]:
        """Every resource, or every one of a kind."""
        return [key for key in self._entries if kind is None or key.kind == kind]

    def put(self, manifest: Manifest) -> ResourceChange:
        """Take over a resource as it is now."""
        key = key_of(manifest)
        before = self._entries.get(key)
        self._tick += 1
        self._removed.pop(key, None)
        if before is not None and before.version == text_at(manifest, "metadata", "resourceVersion"):
            self._entries[key] = CachedResource(before.manifest, before.resource, before.problem, self._tick)
            return ResourceChange.NOTHING
        self._unindex(key)
        resource, problem = _read(manifest)
        self._entries[key] = CachedResource(manifest, resource, problem, self._tick)
        self._index(key, resource)
        same = before is not None and _essence(before.manifest) == _essence(manifest)
        return ResourceChange.STATUS if same else ResourceChange.SPEC

    def remove(self, key: ResourceKey) -> bool:
        """Forget a resource; whether it was known."""
        self._tick += 1
        self._removed[key] = self._tick
        self._unindex(key)
        return self._entries.pop(key, None) is not None

    def begin_list(self) -> int:
        """Call before listing; pass the result to `end_list`."""
        return self._tick

    def end_list(
        self, kind: KindName, began: int, manifests: Iterable[Manifest], namespaces: Iterable[str]
    ) -> set[ResourceKey]:
        """Take over a complete list of a kind in `namespaces` (none: all); the keys that changed or are gone."""
        changed: set[ResourceKey] = set()
        listed: set[ResourceKey] = set()
        for manifest in manifests:
            key = key_of(manifest)
            listed.add(key)
            before = self._entries.get(key)
            newer = (before is not None and before.tick > began) or self._removed.get(key, -1) > began
            if not newer and self.put(manifest) is ResourceChange.SPEC:
                changed.add(key)
        within = set(namespaces)
        for key, entry in tuple(self._entries.items()):
            seen = key in listed or entry.tick > began
            if key.kind == kind and not seen and (not within or key.namespace in within):
                self.remove(key)
                changed.add(key)
        self._removed = {key: tick for key, tick in self._removed.items() if tick > began}
        return changed

    def broker(self, namespace: str, name: str) -> Broker | None:
        """The Broker of that name."""
        return _as(Broker, self._entries.get(ResourceKey("Broker", namespace, name)))

    def exchange(self, namespace: str, name: str) -> Exchange | None:
        """The Exchange of that name."""
        return _as(Exchange, self._entries.get(ResourceKey("Exchange", namespace, name)))

    def oldest_exchange(self, key: ResourceKey) -> Exchange | None:
        """Of those that claim the same name on the same Broker as this one, and may, the one that has it."""
        rivals = (_as(Exchange, self._entries.get(rival)) for rival in self.rivals(key))
        return acceptance.oldest(rival for rival in rivals if rival is not None and self._may_use_broker(rival))

    def oldest_subscription(self, key: ResourceKey) -> Subscription | None:
        """The same for a subscription's identity."""
        rivals = (_as(Subscription, self._entries.get(rival)) for rival in self.rivals(key))
        return acceptance.oldest(rival for rival in rivals if rival is not None and self._may_use_broker(rival))

    def _may_use_broker(self, resource: Exchange | Subscription) -> bool:
        broker = self.broker(*declaration.broker_key(resource))
        return broker is not None and acceptance.is_allowed(resource.metadata.namespace, broker)

    def exchanges_of(self, broker: ResourceKey) -> list[Exchange]:
        """Exchanges that name the Broker."""
        found = (_as(Exchange, self._entries.get(key)) for key in self._by_broker.get(broker, ()))
        return [exchange for exchange in found if exchange is not None]

    def subscriptions_of(self, broker: ResourceKey) -> list[Subscription]:
        """Subscriptions that name the Broker."""
        found = (_as(Subscription, self._entries.get(key)) for key in self._by_broker.get(broker, ()))
        return [subscription for subscription in found if subscription is not None]

    def rivals(self, key: ResourceKey) -> list[ResourceKey]:
        """Every resource that claims the same entity of the same Broker as this one, itself included."""
        entry = self._entries.get(key)
        claim = None if entry is None else _claim(entry.resource)
        return [] if claim is None else sorted(self._by_claim.get(claim, ()))

    def dependents(self, key: ResourceKey) -> list[ResourceKey]:
        """What refers to this one."""
        index = self._by_broker if key.kind == "Broker" else self._by_exchange
        return sorted(index.get(key, ()))

    def affected(self, key: ResourceKey) -> set[ResourceKey]:
        """What has to be looked at again when this one changes or goes; ask before it is removed."""
        found = {*self.dependents(key), *self.rivals(key)}
        entry = self._entries.get(key)
        if entry is not None and isinstance(entry.resource, Subscription):
            # An Exchange that is being deleted may wait for its last subscription.
            exchange = self.exchange(*declaration.exchange_key(entry.resource))
            if exchange is not None and exchange.metadata.deletion_timestamp is not None:
                found.add(ResourceKey("Exchange", exchange.metadata.namespace, exchange.metadata.name))
        return found - {key}

    def _index(self, key: ResourceKey, resource: AnyResource | None) -> None:
        for index in self._indexes_of(resource):
            index.add(key)

    def _unindex(self, key: ResourceKey) -> None:
        entry = self._entries.get(key)
        if entry is not None:
            for index in self._indexes_of(entry.resource):
                index.discard(key)

    def _indexes_of(self, resource: AnyResource | None) -> Iterator[set[ResourceKey]]:
        claim = _claim(resource)
        if claim is not None:
            yield self._by_claim[claim]
            yield self._by_broker[claim.broker]
        if isinstance(resource, Subscription):
            yield self._by_exchange[ResourceKey("Exchange", *declaration.exchange_key(resource))]
        if isinstance(resource, Exchange) and resource.spec.alternate_exchange_ref is not None:
            alternate = resource.spec.alternate_exchange_ref.name
            yield self._by_exchange[ResourceKey("Exchange", resource.metadata.namespace, alternate)]


def _claim(resource: AnyResource | None) -> _Claim | None:
    match resource:
        case Exchange():
            name = declaration.exchange_name(resource)
        case Subscription():
            name = declaration.queue_name(resource)
        case _:
            return None
    return _Claim(ResourceKey("Broker", *declaration.broker_key(resource)), resource.kind, name)


ResourceT = TypeVar("ResourceT", Broker, Exchange, Subscription)


def _as(kind: type[ResourceT], entry: CachedResource | None) -> ResourceT | None:
    resource = None if entry is None else entry.resource
    return resource if isinstance(resource, kind) else None


def _read(manifest: Manifest) -> tuple[AnyResource | None, str]:
    try:
        return parse(manifest), ""
    except InvalidManifest as error:
        return None, str(error)


def _essence(manifest: Manifest) -> tuple[object, ...]:
    """What a person decides: another one of these means work."""
    fields = ("uid", "generation", "deletionTimestamp", "annotations")
    return tuple(dig(manifest, "metadata", field) for field in fields)
