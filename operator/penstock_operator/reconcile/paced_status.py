"""Writes what the outage of a broker, and its end, changes in the status of all its resources, at a limited rate.

Ten thousand Subscriptions must not overload the API server because one broker is away. A report that waits is replaced
by a newer one, and dropped when it is not news any more: if the broker is back before its turn, nothing is written. If
the API server does not answer or is overloaded, all wait as long as it asks for, and the report is written later. No
Events are sent about it: the Broker has one. Declarations go first, as `plans.declaration_priority` says. Source:
docs/decisions/097-outages.md, docs/decisions/121-declarations-go-first.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

from penstock_api.resources import AnyResource, Declaring
from penstock_operator.cluster.api_server import ApiServer, KubeError
from penstock_operator.cluster.cache import Cache, CachedResource, ResourceChange, ResourceKey
from penstock_operator.manifest import Manifest
from penstock_operator.plans.decisions import Report
from penstock_operator.plans.declaration_priority import LOOK_AGAIN_SECONDS, DeclarationPriority
from penstock_operator.reconcile import status
from penstock_operator.reconcile.write_pace import WritePace

__all__ = ["PacedStatus"]

logger = logging.getLogger(__name__)

_WRITES_PER_SECOND: Final = 100


class _Waiting(NamedTuple):
    uid: str
    generation: int
    report: Report


@dataclass(slots=True)
class PacedStatus:
    """The reports that wait, and their writer."""

    kube: ApiServer
    cache: Cache
    clock: Callable[[], datetime]
    enqueue: Callable[[ResourceKey], None]
    """Put a resource into the work queue: the reply to a write may show that its spec has changed."""
    is_declaring: Callable[[], bool]
    """Whether declarations are on the way to a broker."""
    priority: DeclarationPriority = field(default_factory=DeclarationPriority)
    """With them."""
    pace: WritePace = field(default_factory=lambda: WritePace(_WRITES_PER_SECOND))
    _waiting: OrderedDict[ResourceKey, _Waiting] = field(default_factory=OrderedDict[ResourceKey, _Waiting])
    """In the order in which they are written."""
    _writing: ResourceKey | None = None
    """The resource whose status is being written."""
    _is_void: bool = False
    """What is being written was withdrawn after the request was sent."""
    _asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Write what waits, for ever."""
        while True:
            await self._asked.wait()
            await self.write_all()

    def offer(self, key: ResourceKey, resource: Declaring, report: Report) -> None:
        """Have a report written; it takes the place of one that still waits."""
        metadata = resource.metadata
        self._waiting[key] = _Waiting(metadata.uid, metadata.generation, report)
        self._asked.set()

    def withdraw(self, key: ResourceKey) -> None:
        """What waits for this resource is not to be written any more. If it is on the way already, the resource is
        looked at again once it has arrived: whoever withdraws it compares with the status of before.
        """
        self._waiting.pop(key, None)
        self._is_void = self._is_void or key == self._writing

    async def write_all(self) -> None:
        """Write until nothing waits any more."""
        now = asyncio.get_running_loop().time
        while self._is_something_new():
            if self.priority.must_wait(now(), is_declaring=self.is_declaring()):
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
                continue
            await asyncio.sleep(self.pace.wait(now()))
            await self._write_next()
        self._asked.clear()

    def _is_something_new(self) -> bool:
        """Whether something waits to be written; what is not news is dropped, and uses up nothing of the rate."""
        while self._waiting:
            key, waiting = next(iter(self._waiting.items()))
            if self._news(key, waiting) is not None:
                return True
            del self._waiting[key]
        return False

    def _news(self, key: ResourceKey, waiting: _Waiting) -> CachedResource | None:
        """The resource if it is still the one that the report is about, and its status says something else."""
        entry = self.cache.get(key)
        if entry is None or entry.resource is None or entry.version.uid != waiting.uid:
            return None
        if entry.resource.metadata.generation != waiting.generation:
            return None
        wanted = status.wanted(entry.resource, waiting.report, self.clock())
        return entry if status.differs(entry.manifest, wanted) else None

    async def _write_next(self) -> None:
        # It may have been withdrawn, or become old, during the pause.
        if not self._is_something_new():
            return
        key, waiting = self._waiting.popitem(last=False)
        entry = self._news(key, waiting)
        if entry is None or entry.resource is None:
            return
        self._writing, self._is_void = key, False
        try:
            updated = await self._written(key, entry, entry.resource, waiting)
        finally:
            self._writing = None
        is_changed = updated is not None and self.cache.put(updated) is ResourceChange.SPEC
        if is_changed or self._is_void:
            self.enqueue(key)

    async def _written(
        self, key: ResourceKey, entry: CachedResource, resource: AnyResource, waiting: _Waiting
    ) -> Manifest | None:
        """Write a report; the resource as it is then, None if that is not known to be another state."""
        try:
            return await status.write(
                self.kube, entry.manifest, resource, waiting.report, self.clock(), with_events=False
            )
        except KubeError as error:
            logger.info("the status of %s was not written: %s", key, error)
            if error.is_passing:
                self.pace.rest(asyncio.get_running_loop().time(), error.retry_after_seconds)
                if not self._is_void:
                    self._waiting.setdefault(key, waiting)
            # Else the resource was deleted meanwhile, or the next resync tries again.
            return None
