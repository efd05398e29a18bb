"""Ends deletions that this operator leaves to the one which manages the Broker, and which that one does not see.

Source: docs/decisions/160-deletions-left-to-another-operator.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from penstock_operator import names
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.manifest import dig, text_at
from penstock_operator.plans.deletion import was_left_too_long
from penstock_operator.reconcile.finalizers import Finalizers, finalizers_of

__all__ = ["LeftDeletions"]


@dataclass(frozen=True, slots=True)
class LeftDeletions:
    """The deletions of resources whose Broker another operator manages."""

    cache: Cache
    finalizers: Finalizers
    clock: Callable[[], datetime]

    async def look(self, key: ResourceKey) -> None:
        """Release a resource that nobody releases, if its namespace is being deleted too, or a person forces it.

        Raises:
            KubeError: the API server refused.
        """
        entry = self.cache.get(key)
        requested = None if entry is None else text_at(entry.manifest, "metadata", "deletionTimestamp")
        if entry is None or requested is None or names.FINALIZER not in finalizers_of(entry.manifest):
            return
        if not was_left_too_long(datetime.fromisoformat(requested), self.clock()):
            return
        is_forced = dig(entry.manifest, "metadata", "annotations", names.FORCE_DELETE) == "true"
        if is_forced or await self.finalizers.is_terminating(key.namespace):
            why = "the operator that manages its Broker has not removed it"
            await self.finalizers.remove(key, entry.manifest, why)
