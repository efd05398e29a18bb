"""Collects what the plan for a resource that can't be parsed has to know: from its raw manifest, its namespace, and the
marks on its broker.

Source: docs/decisions/096-unreadable-resources.md, docs/decisions/170-unreadable-in-a-deleted-namespace.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from penstock_operator import names
from penstock_operator.brokers.management import Unreachable
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.cluster.cache import Cache, CachedResource, ResourceKey
from penstock_operator.manifest import dig, text_at
from penstock_operator.plans import deletion
from penstock_operator.plans.decisions import Reach
from penstock_operator.plans.unreadable_resources import UnreadableView
from penstock_operator.reconcile.finalizers import Finalizers, finalizers_of

__all__ = ["UnreadableViews"]


@dataclass(frozen=True, slots=True)
class UnreadableViews:
    """The views of resources that this operator can't parse."""

    cache: Cache
    sessions: BrokerSessions
    finalizers: Finalizers
    clock: Callable[[], datetime]

    async def of(self, key: ResourceKey, entry: CachedResource) -> UnreadableView:
        """The view of one resource. Raises KubeError."""
        manifest = entry.manifest
        requested = text_at(manifest, "metadata", "deletionTimestamp")
        seconds = 0.0 if requested is None else deletion.seconds_since(datetime.fromisoformat(requested), self.clock())
        has_finalizer = names.FINALIZER in finalizers_of(manifest)
        terminating = requested is not None and has_finalizer and await self.finalizers.is_terminating(key.namespace)
        return UnreadableView(
            problem=entry.problem,
            is_deleting=requested is not None,
            has_finalizer=has_finalizer,
            is_forced=dig(manifest, "metadata", "annotations", names.FORCE_DELETE) == "true",
            is_broker_gone=self._is_broker_gone(entry),
            namespace_terminating=terminating,
            seconds=seconds,
            policy=text_at(manifest, "spec", "deletionPolicy"),
            marked_policies=await self._marked_policies(key, entry) if terminating else None,
        )

    def _is_broker_gone(self, entry: CachedResource) -> bool:
        """Whether the Broker that a resource names does not exist, or is being deleted."""
        if entry.references.broker is None:
            return False
        broker = self.cache.get(ResourceKey("Broker", *entry.references.broker))
        return broker is None or dig(broker.manifest, "metadata", "deletionTimestamp") is not None

    async def _marked_policies(self, key: ResourceKey, entry: CachedResource) -> frozenset[str] | None:
        """The deletionPolicies in the marks of a resource on the Broker that it names; None if that can't be asked."""
        session = None if entry.references.broker is None else self.sessions.get("/".join(entry.references.broker))
        if session is None or session.reach is not Reach.CONNECTED:
            return None
        try:
            marked = await session.marked_entities()
        except Unreachable:
            return None
        return frozenset(it.owner.deletion_policy for it in marked if it.resource == tuple(key))
