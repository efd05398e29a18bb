"""Adds and removes the operator's finalizer.

Source: docs/decisions/055-deletion.md, docs/decisions/058-server-side-apply.md.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import cast

from penstock_operator import names
from penstock_operator.cluster.api_server import API_RESOURCES, ApiServer, Conflict
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.manifest import Manifest, dig

__all__ = ["Finalizers", "finalizers_of"]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Finalizers:
    """The finalizer of all resources."""

    kube: ApiServer
    cache: Cache

    async def add(self, manifest: Manifest) -> Manifest:
        """The resource with the finalizer. Raises KubeError; Conflict if it was deleted, or got others meanwhile."""
        updated = await self.kube.set_finalizers(manifest, [*finalizers_of(manifest), names.FINALIZER])
        if updated is None:
            raise Conflict(409, "the resource was deleted before the finalizer was added")
        self.cache.put(updated)
        return updated

    async def remove(self, key: ResourceKey, manifest: Manifest, why: str) -> None:
        """Let the cluster delete the resource, if nobody else holds it; `why` goes to the log. Raises KubeError."""
        finalizers = finalizers_of(manifest)
        others = [name for name in finalizers if name != names.FINALIZER]
        if len(others) < len(finalizers):
            updated = await self.kube.set_finalizers(manifest, others)
            logger.info("the finalizer of %s was removed: %s", key, why)
            if updated is not None and others:
                self.cache.put(updated)

    async def is_terminating(self, namespace: str) -> bool:
        """Whether a namespace is being deleted, or gone. Raises KubeError."""
        found = await self.kube.get(API_RESOURCES["Namespace"], None, namespace)
        return found is None or dig(found, "metadata", "deletionTimestamp") is not None


def finalizers_of(manifest: Manifest) -> list[str]:
    """The finalizers of an object."""
    found = dig(manifest, "metadata", "finalizers")
    return [str(name) for name in cast(list[object], found)] if isinstance(found, list) else []
