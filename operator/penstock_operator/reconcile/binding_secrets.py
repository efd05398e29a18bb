"""Writes the Secrets of `spec.binding`: a new one at once, one that has to say something else in its turn.

A new CA concerns all Subscriptions of a Broker that have such a Secret. The old CA is good for a year more, so the API
server need not take ten thousand writes at once. Nobody waits for them, but for the first write of a Secret somebody
does. Source: docs/decisions/097-outages.md, docs/decisions/111-binding-secrets.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from penstock_api.resources import Subscription
from penstock_operator.children.metadata import is_ours
from penstock_operator.cluster.api_server import API_RESOURCES, ApiServer, KubeError
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.cluster.child_versions import ChildVersions
from penstock_operator.manifest import Manifest, dig
from penstock_operator.plans.decisions import ChildState
from penstock_operator.reconcile.resource_children import apply_owned, delete_owned
from penstock_operator.reconcile.write_pace import WritePace

__all__ = ["BindingSecrets"]

logger = logging.getLogger(__name__)

_REWRITES_PER_SECOND: Final = 20


@dataclass(slots=True)
class BindingSecrets:
    """The Secrets that wait to be written again, by the Subscription to which each belongs, and their writer."""

    kube: ApiServer
    cache: Cache
    versions: ChildVersions
    clock: Callable[[], datetime]
    enqueue: Callable[[ResourceKey], None]
    """Put a resource into the work queue."""
    pace: WritePace = field(default_factory=lambda: WritePace(_REWRITES_PER_SECOND))
    _waiting: OrderedDict[ResourceKey, tuple[Manifest, str]] = field(
        default_factory=OrderedDict[ResourceKey, tuple[Manifest, str]]
    )
    """The Secret, and the uid of its Subscription, in the order in which they are written."""
    _asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def write(self, key: ResourceKey, manifest: Manifest, uid: str) -> ChildState:
        """Write the Secret of a Subscription if it is not there; have it written again if it is not as it should be.

        Raises:
            KubeError: the API server refused.
        """
        now = self.clock().timestamp()
        self.forget(key)
        if self.versions.is_in_force(manifest, now):
            return ChildState.APPLIED
        if not self.versions.is_known(manifest):
            name = str(dig(manifest, "metadata", "name"))
            observed = await self.kube.get(API_RESOURCES["Secret"], key.namespace, name)
            if observed is None or not is_ours(observed, uid):
                return await apply_owned(self.kube, self.versions, manifest, uid, now)
        self._waiting[key] = manifest, uid
        self._asked.set()
        return ChildState.APPLIED

    async def remove(self, key: ResourceKey, subscription: Subscription, name: str) -> ChildState:
        """Delete the Secret of a Subscription that does not want it any more. Raises KubeError."""
        self.forget(key)
        if await delete_owned(self.kube, "Secret", key.namespace, name, subscription.metadata.uid):
            self.versions.forget(key)
        return ChildState.GONE

    def forget(self, key: ResourceKey) -> None:
        """What waits for this Subscription is not to be written any more."""
        self._waiting.pop(key, None)

    async def run(self) -> None:
        """Write what waits, for ever."""
        while True:
            await self._asked.wait()
            await self.write_all()

    async def write_all(self) -> None:
        """Write until nothing waits any more."""
        now = asyncio.get_running_loop().time
        while self._waiting:
            await asyncio.sleep(self.pace.wait(now()))
            if not self._waiting:  # the last one was withdrawn during the pause
                break
            key, (manifest, uid) = self._waiting.popitem(last=False)
            try:
                await self._write_again(key, manifest, uid)
            except KubeError as error:
                logger.info("the Secret for the clients of %s was not written: %s", key, error)
                if error.is_passing:
                    self._waiting.setdefault(key, (manifest, uid))
                    self.pace.rest(now(), error.retry_after_seconds)
                # Else the next reconcile of the Subscription asks for it again.
        self._asked.clear()

    async def _write_again(self, key: ResourceKey, manifest: Manifest, uid: str) -> None:
        entry = self.cache.get(key)
        if entry is None or entry.version.uid != uid:
            return
        state = await apply_owned(self.kube, self.versions, manifest, uid, self.clock().timestamp())
        if state is not ChildState.APPLIED:  # somebody has taken its name, and the Subscription is to say so
            self.versions.forget(key)
            self.enqueue(key)
