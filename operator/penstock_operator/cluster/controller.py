"""The workers and the resync: what takes keys from the queue, and what puts everything in now and then."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from penstock_operator.cluster.api_server import API_RESOURCES, ApiServer, KubeError
from penstock_operator.cluster.cache import KIND_NAMES, Cache, ResourceChange, ResourceKey, key_of
from penstock_operator.cluster.work_queue import Priority, WorkQueue
from penstock_operator.manifest import Manifest, dig
from penstock_operator.metrics import Metrics
from penstock_operator.plans.decisions import Retry

__all__ = ["Controller"]

logger = logging.getLogger(__name__)

_RELIST_SECONDS: Final = 5.0
"""After a list that failed."""


@dataclass(slots=True)
class Controller:
    """The queue with what feeds it."""

    cache: Cache
    metrics: Metrics
    monotonic: Callable[[], float]
    queue: WorkQueue[ResourceKey] = field(default_factory=WorkQueue[ResourceKey])
    last_listed: float | None = None
    """When all kinds were listed last."""
    started: dict[ResourceKey, float] = field(default_factory=dict[ResourceKey, float])
    """What is being worked on, since when."""
    lists_without_events: int = 0
    """Lists in a row that found changes while the watches said nothing at all: the watches are dead."""
    listed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the first complete list."""
    _events: int = 0
    _added: asyncio.Event = field(default_factory=asyncio.Event)
    _resync_requested: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, key: ResourceKey, priority: Priority, delay: float = 0) -> None:
        """Have a resource looked at."""
        self.queue.add(key, priority, self.monotonic(), delay)
        self._added.set()

    def enqueue(self, key: ResourceKey) -> None:
        """Have a resource looked at because of another."""
        self.add(key, Priority.DEPENDENCY)

    def enqueue_with_dependents(self, key: ResourceKey) -> None:
        """Have a Broker and everything on it looked at."""
        for affected in (key, *self.cache.dependents(key)):
            self.enqueue(affected)

    def resource_changed(self, manifest: Manifest) -> None:
        """A watch says that a resource is so."""
        self._events += 1
        if self.cache.put(manifest) is ResourceChange.SPEC:
            self._enqueue_changed(key_of(manifest))

    def resource_deleted(self, manifest: Manifest) -> None:
        """A watch says that a resource is gone."""
        self._events += 1
        key = key_of(manifest)
        entry = self.cache.get(key)
        # Told late: a list has already shown another resource of the same name.
        if entry is None or dig(entry.manifest, "metadata", "uid") == dig(manifest, "metadata", "uid"):
            self._remove_and_enqueue(key)

    def child_changed(self, broker: ResourceKey) -> None:
        """A watch says that a child of a Broker changed."""
        if self.cache.get(broker) is not None:
            self.enqueue(broker)

    async def resync(
        self, kube: ApiServer, namespaces: tuple[str, ...], period: float, after: Callable[[], Awaitable[None]]
    ) -> None:
        """List everything, now, every `period` seconds, and when `resync_soon` asks; what the lists lack is gone.
        `after` runs after each.
        """
        while True:
            try:
                await self.list_all(kube, namespaces)
            except KubeError as error:
                logger.warning("the resources can't be listed: %s; trying again in %s s", error, _RELIST_SECONDS)
                await asyncio.sleep(_RELIST_SECONDS)
                continue
            for key in self.cache.all():
                self.add(key, Priority.RESYNC)
            await after()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._resync_requested.wait(), period)
            self._resync_requested.clear()

    def resync_soon(self) -> None:
        """Have everything listed without waiting for the period's end."""
        self._resync_requested.set()

    async def resync_children(self, period: float) -> None:
        """Have everything that has children looked at every `period` seconds, where no watch tells of them."""
        while True:
            await asyncio.sleep(period)
            for kind in ("Broker", "Exchange"):
                for key in self.cache.all(kind):
                    self.add(key, Priority.RESYNC)

    async def run_worker(self, reconcile: Callable[[ResourceKey], Awaitable[Retry]]) -> None:
        """Take keys and reconcile them, for ever."""
        while True:
            if not await self.reconcile_next(reconcile):
                await self._wait()

    async def reconcile_next(self, reconcile: Callable[[ResourceKey], Awaitable[Retry]]) -> bool:
        """Reconcile one key that is due; False if there is none. Nothing is decided before a complete list."""
        key = self.queue.take(self.monotonic()) if self.cache.is_complete else None
        if key is None:
            return False
        self.started[key] = self.monotonic()
        await self._one(key, reconcile)
        self.started.pop(key)
        self._added.set()
        return True

    async def _one(self, key: ResourceKey, reconcile: Callable[[ResourceKey], Awaitable[Retry]]) -> None:
        with self.metrics.measured(key.kind) as outcome:
            try:
                retry = await reconcile(key)
            except KubeError as error:
                # Mostly somebody else was first; what is wrong for longer shows up again and again.
                delay = self.queue.retry(key, Priority.CHANGE, self.monotonic())
                outcome.result = "error"
                logger.info("%s is looked at again in %s s: %s", key, delay, error)
                return
            except Exception:
                # The boundary of a task: a bug with one resource must not stop the others.
                delay = self.queue.retry(key, Priority.RESYNC, self.monotonic())
                outcome.result = "bug"
                logger.exception("%s met a bug of the operator; it is looked at again in %s s", key, delay)
                return
            if retry is Retry.BACKOFF:
                self.queue.retry(key, Priority.CHANGE, self.monotonic())
                outcome.result = "waiting"
            else:
                self.queue.done(key)

    async def _wait(self) -> None:
        """Until something was added or comes due."""
        self._added.clear()
        due = self.queue.next_due() if self.cache.is_complete else None
        if due is None:
            await self._added.wait()
            return
        delay = max(due - self.monotonic(), 0.001)
        try:
            await asyncio.wait_for(self._added.wait(), delay)
        except TimeoutError:
            return

    async def list_all(self, kube: ApiServer, namespaces: tuple[str, ...]) -> None:
        """List all kinds; what changed, or is gone, is put in the queue. Raises KubeError."""
        events, first = self._events, not self.cache.is_complete
        changed: set[ResourceKey] = set()
        affected: set[ResourceKey] = set()
        for kind in KIND_NAMES:
            began = self.cache.begin_list()
            manifests = [manifest async for manifest in _everywhere(kube, kind, namespaces)]
            missing = set(self.cache.all(kind)) - {key_of(it) for it in manifests}
            for key in missing:
                affected |= self.cache.affected(key)
            changed |= self.cache.end_list(kind, began, manifests, namespaces)
        self.cache.is_complete = True
        self.listed.set()
        self.last_listed = self.monotonic()
        self.metrics.listed.set_to_current_time()
        deaf = bool(changed) and not first and events == self._events
        self.lists_without_events = self.lists_without_events + 1 if deaf else 0
        for key in changed | affected:
            self._enqueue_changed(key)
        self._added.set()

    def _enqueue_changed(self, key: ResourceKey) -> None:
        entry = self.cache.get(key)
        deleting = entry is not None and dig(entry.manifest, "metadata", "deletionTimestamp") is not None
        self.add(key, Priority.DELETION if deleting else Priority.CHANGE)
        self._enqueue_each(self.cache.affected(key))

    def _remove_and_enqueue(self, key: ResourceKey) -> None:
        affected = self.cache.affected(key)
        if self.cache.remove(key):
            self.add(key, Priority.CHANGE)
            self._enqueue_each(affected)

    def _enqueue_each(self, keys: Iterable[ResourceKey]) -> None:
        for key in keys:
            self.enqueue(key)


async def _everywhere(kube: ApiServer, kind: str, namespaces: tuple[str, ...]) -> AsyncIterator[Manifest]:
    for namespace in namespaces or (None,):
        async for manifest in kube.list(API_RESOURCES[kind], namespace):
            yield manifest
