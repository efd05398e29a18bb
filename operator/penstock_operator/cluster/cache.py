"""All resources of Penstock's kinds as last seen, by watch events and by lists, with look-ups for the plans.

A complete list is the truth: a resource that it does not contain was deleted. But a list takes a while, and a watch
event that arrives meanwhile may be newer than the list. So each entry and each deletion has a tick, the number of the
change that brought it, and `end_list` knows what changed after the list began. Apart from that, what arrives is ordered
by `versions`: an older state never replaces a newer one, and what was removed does not come back. Synchronous. Source:
docs/decisions/057-lists-are-the-truth.md.

Look-ups by reference use what the raw manifests say, so that they also find resources that can't be parsed. Source:
docs/decisions/096-unreadable-resources.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar

from penstock_api import declaration
from penstock_api.resources import (
    AnyResource,
    Broker,
    Declaring,
    Exchange,
    Holding,
    InvalidManifest,
    Queue,
    Subscription,
    parse,
)
from penstock_operator.cluster.broker_users import BrokerUsers
from penstock_operator.cluster.reference_index import ReferenceIndex
from penstock_operator.cluster.references import References, references_of
from penstock_operator.cluster.resource_key import KIND_NAMES, KindName, ResourceKey, key_of
from penstock_operator.cluster.versions import Version, is_older, version_of
from penstock_operator.manifest import Manifest, dig, sharing_texts, trimmed
from penstock_operator.plans.acceptance import is_allowed, oldest

__all__ = ["KIND_NAMES", "Cache", "CachedResource", "KindName", "ResourceChange", "ResourceKey", "key_of"]

REMEMBERED_REMOVALS: Final = 10_000
"""So many resources that were removed last do not come back by a watch event that is late; later ones are seen by the
next list.
"""


class ResourceChange(Enum):
    """What has changed about a resource."""

    NOTHING = "Nothing"
    STATUS = "Status"
    """Only what the operator itself writes, such as the status; the resource need not be reconciled."""
    SPEC = "Spec"
    """The resource is new, or another client changed it; it must be reconciled."""


@dataclass(frozen=True, slots=True)
class CachedResource:
    """One resource as last seen."""

    manifest: Manifest
    resource: AnyResource | None
    """None if this version of the operator can't parse it."""
    problem: str
    """Why it can't be parsed; else empty."""
    references: References
    """What its raw manifest refers to."""
    version: Version
    """Which state of it this is."""
    tick: int
    """The number of the change that brought it."""


@dataclass(frozen=True, slots=True)
class _Removal:
    """A resource that is gone."""

    version: Version
    """Its last known state."""
    tick: int
    """The number of the change that removed it."""


@dataclass(slots=True)
class Cache:
    """Every Broker, Exchange, Subscription and Queue of the watched namespaces."""

    _entries: dict[ResourceKey, CachedResource] = field(default_factory=dict[ResourceKey, CachedResource])
    _removed: dict[ResourceKey, _Removal] = field(default_factory=dict[ResourceKey, _Removal])
    """The resources that were removed last, in that order."""
    _listed_until: dict[KindName, int] = field(default_factory=dict[KindName, int])
    """The highest resource version in the newest list of a kind in all namespaces: what is not here and has a lower one
    was deleted before.
    """
    _tick: int = 0
    _index: ReferenceIndex = field(default_factory=ReferenceIndex)
    _users: BrokerUsers = field(default_factory=BrokerUsers)
    _unreadable: set[ResourceKey] = field(default_factory=set[ResourceKey])
    is_complete: bool = False
    """Whether all kinds were listed once; before that, a resource that is not here may still exist."""

    def get(self, key: ResourceKey) -> CachedResource | None:
        """The resource, None if there is none."""
        return self._entries.get(key)

    def all(self, kind: KindName | None = None) -> list[ResourceKey]:
        """Every resource, or every one of a kind."""
        return [key for key in self._entries if kind is None or key.kind == kind]

    def put(self, manifest: Manifest) -> ResourceChange:
        """Store a resource as a watch event or the reply to a write shows it, and return what has changed about it.

        Nothing is stored if that is an older state than the known one, or if the resource was removed since.
        """
        key, version = key_of(manifest), version_of(manifest)
        before = self._entries.get(key)
        if before is not None and is_older(version, before.version):
            return ResourceChange.NOTHING
        if before is None and (self._was_removed(key, version) or self._was_listed_without(key, version)):
            return ResourceChange.NOTHING
        return self._store(key, manifest, version)

    def _was_removed(self, key: ResourceKey, version: Version) -> bool:
        """Whether this state is from before the removal of the resource."""
        removal = self._removed.get(key)
        return removal is not None and (version.uid == removal.version.uid or is_older(version, removal.version))

    def _was_listed_without(self, key: ResourceKey, version: Version) -> bool:
        """Whether a list that is newer than this state did not contain the resource."""
        until, number = self._listed_until.get(key.kind), version.number
        return until is not None and number is not None and number <= until

    def _store(self, key: ResourceKey, manifest: Manifest, version: Version) -> ResourceChange:
        before = self._entries.get(key)
        if before is not None and before.version == version:
            return ResourceChange.NOTHING
        self._tick += 1
        self._removed.pop(key, None)
        self._unindex(key)
        kept = sharing_texts(trimmed(manifest))
        resource, problem = _read(kept)
        references = references_of(kept)
        self._entries[key] = CachedResource(kept, resource, problem, references, version, self._tick)
        self._index.add(key, references)
        if resource is None:
            self._unreadable.add(key)
        else:
            self._users.add(key, references)
        same = before is not None and _wanted_state(before.manifest) == _wanted_state(kept)
        return ResourceChange.STATUS if same else ResourceChange.SPEC

    def remove(self, key: ResourceKey, version: Version | None = None) -> bool:
        """Remove a resource, and return whether it was there.

        `version`: the state that a watch event shows; if that is about a predecessor of the same name, nothing is
        removed.
        """
        entry = self._entries.get(key)
        last = version if version is not None else None if entry is None else entry.version
        if last is None:
            return False
        if entry is not None and last.uid != entry.version.uid and not is_older(entry.version, last):
            return False
        self._tick += 1
        before = self._removed.pop(key, None)
        newest = before.version if before is not None and is_older(last, before.version) else last
        self._removed[key] = _Removal(newest, self._tick)
        if len(self._removed) > REMEMBERED_REMOVALS:
            del self._removed[next(iter(self._removed))]
        self._unindex(key)
        return self._entries.pop(key, None) is not None

    def begin_list(self) -> int:
        """The tick now: call this before a list, and pass the result to `end_list`."""
        return self._tick

    def end_list(
        self, kind: KindName, began: int, manifests: Iterable[Manifest], namespaces: Iterable[str]
    ) -> set[ResourceKey]:
        """Store a complete list of a kind in `namespaces` (none: all); return the keys of what changed or was
        deleted.

        What it says of a resource that has not changed since the list began is the truth, whatever its version: after
        the API server's store was restored from a backup, versions begin again lower.
        """
        changed: set[ResourceKey] = set()
        listed: set[ResourceKey] = set()
        numbers: list[int] = [0]
        self._listed_until.pop(kind, None)
        for manifest in manifests:
            key, version = key_of(manifest), version_of(manifest)
            listed.add(key)
            numbers.append(version.number or 0)
            is_newest = not self._has_changed_since(began, key)
            change = self._store(key, manifest, version) if is_newest else self.put(manifest)
            if change is ResourceChange.SPEC:
                changed.add(key)
        within = set(namespaces)
        for key, entry in tuple(self._entries.items()):
            seen = key in listed or entry.tick > began
            if key.kind == kind and not seen and (not within or key.namespace in within):
                self.remove(key)
                changed.add(key)
        if not within:
            self._listed_until[kind] = max(numbers)
        return changed

    def _has_changed_since(self, began: int, key: ResourceKey) -> bool:
        """Whether a resource was changed or removed after the tick `began`."""
        found = self._entries.get(key) or self._removed.get(key)
        return found is not None and found.tick > began

    def broker(self, namespace: str, name: str) -> Broker | None:
        """The Broker of that name."""
        return _as_kind(Broker, self._entries.get(ResourceKey("Broker", namespace, name)))

    def exchange(self, namespace: str, name: str) -> Exchange | None:
        """The Exchange of that name."""
        return _as_kind(Exchange, self._entries.get(ResourceKey("Exchange", namespace, name)))

    def oldest_exchange(self, key: ResourceKey) -> Exchange | None:
        """Of the Exchanges that may declare the same name on the same Broker as this one, the oldest."""
        found = (_as_kind(Exchange, self._entries.get(other)) for other in self.declaring_same_entity(key))
        return oldest(exchange for exchange in found if exchange is not None and self._may_use_broker(exchange))

    def oldest_subscription(self, key: ResourceKey) -> Subscription | None:
        """Of the Subscriptions that may declare the same identity on the same Broker as this one, the oldest."""
        found = (_as_kind(Subscription, self._entries.get(other)) for other in self.declaring_same_entity(key))
        return oldest(
            subscription for subscription in found if subscription is not None and self._may_use_broker(subscription)
        )

    def oldest_queue(self, key: ResourceKey) -> Queue | None:
        """Of the Queues that may declare the same name on the same Broker as this one, the oldest."""
        found = (_as_kind(Queue, self._entries.get(other)) for other in self.declaring_same_entity(key))
        return oldest(queue for queue in found if queue is not None and self._may_use_broker(queue))

    def _may_use_broker(self, resource: Declaring) -> bool:
        broker = self.broker(*declaration.broker_key(resource))
        return broker is not None and is_allowed(resource.metadata.namespace, broker)

    def subscriptions_of(self, broker: ResourceKey) -> list[Subscription]:
        """The Subscriptions that name the Broker."""
        found = (_as_kind(Subscription, self._entries.get(key)) for key in self._index.naming(broker))
        return [subscription for subscription in found if subscription is not None]

    def queues_of(self, broker: ResourceKey) -> list[Queue]:
        """The Queues that name the Broker."""
        found = (_as_kind(Queue, self._entries.get(key)) for key in self._index.naming(broker))
        return [queue for queue in found if queue is not None]

    def holdings_of(self, broker: ResourceKey) -> list[Holding]:
        """The Subscriptions and Queues that name the Broker."""
        return [*self.subscriptions_of(broker), *self.queues_of(broker)]

    def count_of(self, broker: ResourceKey, kind: KindName) -> int:
        """How many Exchanges, Subscriptions or Queues name the Broker; not counting what can't be parsed."""
        return self._users.count(broker, kind)

    def namespaces_of(self, broker: ResourceKey) -> frozenset[str]:
        """The namespaces of the Exchanges, Subscriptions and Queues that name the Broker."""
        return self._users.namespaces(broker)

    def brokers_of_holdings(self) -> frozenset[ResourceKey]:
        """The Brokers that Subscriptions and Queues name, whether or not they exist."""
        return self._users.brokers(("Subscription", "Queue"))

    def declaring_elsewhere(self, broker: ResourceKey) -> list[Declaring]:
        """Those of them that are in another namespace than the Broker's."""
        if self.namespaces_of(broker) <= {broker.namespace}:
            return []
        found = (self._entries[key].resource for key in self._index.naming(broker) if key.namespace != broker.namespace)
        return [resource for resource in found if isinstance(resource, Declaring)]

    def declaring_same_entity(self, key: ResourceKey) -> list[ResourceKey]:
        """The keys of all resources that declare the same entity on the same Broker as this one, itself included."""
        entry = self._entries.get(key)
        return [] if entry is None else sorted(self._index.declaring_same(key, entry.references))

    def naming(self, broker: ResourceKey) -> list[CachedResource]:
        """The Exchanges, Subscriptions and Queues that name the Broker, also those that can't be parsed."""
        return [self._entries[key] for key in self._index.naming(broker)]

    def is_unreadable(self, key: ResourceKey) -> bool:
        """Whether the resource exists and can't be parsed."""
        return key in self._unreadable

    def unreadable(self, broker: ResourceKey) -> set[ResourceKey]:
        """The keys of what can't be parsed and may declare something on the Broker: resources that name it, those whose
        reference can't be read, and the Broker itself.
        """
        return {
            key
            for key in self._unreadable
            if key == broker or (key.kind != "Broker" and self._entries[key].references.broker in (None, broker[1:]))
        }

    def dependents(self, key: ResourceKey) -> list[ResourceKey]:
        """The keys of the resources that refer to this one."""
        return sorted(self._index.naming(key))

    def affected(self, key: ResourceKey) -> set[ResourceKey]:
        """The keys of the resources to reconcile when this one changes or is deleted; call it before `remove`."""
        same = self.declaring_same_entity(key)
        found = {*self.dependents(key), *same}
        entry = self._entries.get(key)
        if key.kind == "Exchange":
            # What refers to a younger Exchange depends on what the older one allows.
            found.update(dependent for other in same for dependent in self.dependents(other))
        if entry is not None and key.kind == "Subscription" and entry.references.exchange is not None:
            # An Exchange that is being deleted may wait for the deletion of its last Subscription.
            exchange = self.exchange(*entry.references.exchange)
            if exchange is not None and exchange.metadata.deletion_timestamp is not None:
                found.add(ResourceKey("Exchange", exchange.metadata.namespace, exchange.metadata.name))
        return found - {key}

    def _unindex(self, key: ResourceKey) -> None:
        entry = self._entries.get(key)
        if entry is not None:
            self._index.discard(key, entry.references)
            self._unreadable.discard(key)
            if entry.resource is not None:
                self._users.discard(key, entry.references)


ResourceT = TypeVar("ResourceT", Broker, Exchange, Subscription, Queue)


def _as_kind(kind: type[ResourceT], entry: CachedResource | None) -> ResourceT | None:
    resource = None if entry is None else entry.resource
    return resource if isinstance(resource, kind) else None


def _read(manifest: Manifest) -> tuple[AnyResource | None, str]:
    try:
        return parse(manifest), ""
    except InvalidManifest as error:
        return None, str(error)


def _wanted_state(manifest: Manifest) -> tuple[object, ...]:
    """The parts of a resource that others change; if one of them differs, the resource must be reconciled."""
    # `kubectl replace`, and so a tool that replaces what it syncs, takes finalizers away that are not in the manifest.
    fields = ("uid", "generation", "deletionTimestamp", "annotations", "finalizers")
    return tuple(dig(manifest, "metadata", field) for field in fields)
