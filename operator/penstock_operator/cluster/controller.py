"""The controller: watch events and complete lists fill cache and work queue, and workers reconcile what is in the
queue.

Nothing is reconciled before the first complete list. Source: docs/decisions/057-lists-are-the-truth.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from penstock_operator import names
from penstock_operator.cluster.api_server import API_RESOURCES, ApiServer, Forbidden, KubeError
from penstock_operator.cluster.cache import KIND_NAMES, Cache, ResourceChange, ResourceKey, key_of
from penstock_operator.cluster.child_versions import LISTED, ChildVersions
from penstock_operator.cluster.idle_workers import IdleWorkers
from penstock_operator.cluster.pass_deadline import PassOverdue, within
from penstock_operator.cluster.server_errors import NOT_FOUND, TOO_MANY_REQUESTS
from penstock_operator.cluster.versions import version_of
from penstock_operator.cluster.work_queue import FIRST_RETRY_SECONDS, Priority, WorkQueue
from penstock_operator.manifest import Manifest, dig, trimmed
from penstock_operator.metrics import Metrics
from penstock_operator.plans.decisions import Retry
from penstock_operator.tasks import end_if_cancelled

__all__ = ["Controller", "children_period"]

logger = logging.getLogger(__name__)

_RELIST_SECONDS: Final = 5.0
"""The longest time until the next attempt after a list that failed; up to half of it is taken off at random."""
_CHILDREN_SECONDS: Final = 20.0
"""The time between two lists of children that are not watched."""


@dataclass(slots=True)
class Controller:
    """Cache and work queue of all resources, with what fills them and what empties the queue."""

    cache: Cache
    metrics: Metrics
    monotonic: Callable[[], float]
    queue: WorkQueue[ResourceKey] = field(default_factory=WorkQueue[ResourceKey])
    pass_seconds: float = 120.0
    """A reconcile of one resource that takes longer is ended."""
    last_listed: float | None = None
    """When all kinds were listed last, by `monotonic`; None before the first time."""
    children: ChildVersions = field(default_factory=ChildVersions)
    """The versions of what belongs to Brokers and Exchanges."""
    started: dict[ResourceKey, float] = field(default_factory=dict[ResourceKey, float])
    """The resources that are being reconciled, and since when."""
    lists_without_events: int = 0
    """The number of lists in a row that found changes although no watch event had arrived: the watches do not work."""
    listed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the first complete list."""
    left: Callable[[], Iterable[ResourceKey]] = tuple[ResourceKey, ...]
    """The Brokers that another operator manages."""
    _rest_until: float = 0.0
    """Nothing is reconciled before, because the API server has said that it has too much to do."""
    _events: int = 0
    _idle: IdleWorkers = field(default_factory=IdleWorkers)
    _resync_requested: asyncio.Event = field(default_factory=asyncio.Event)
    _missing: str = ""
    """What the newest list said of a kind that does not exist; empty if all exist."""
    _kinds_exist: asyncio.Event = field(default_factory=asyncio.Event)
    """The last attempt to list did not show that a kind does not exist."""

    def begin_anew(self) -> None:
        """Forget what only holds while this operator leads: what was under way, back-off, and what it has applied. The
        cache stays.
        """
        self.queue = WorkQueue[ResourceKey](self.queue.spread)
        self.children = ChildVersions()
        self.started.clear()
        self.left = tuple[ResourceKey, ...]
        self.metrics.left_to_others.set_function(lambda: 0)  # who waits leaves nothing to others: the leader counts
        self._rest_until = 0.0

    def add(self, key: ResourceKey, priority: Priority, delay: float = 0) -> None:
        """Put a resource into the queue, due in `delay` seconds."""
        now = self.monotonic()
        self.queue.add(key, _priority_of(key, priority), now, delay)
        if delay > 0 or now < self._rest_until:
            self._idle.look_at_the_clock()
        else:
            self._idle.wake()

    def enqueue(self, key: ResourceKey) -> None:
        """Put a resource into the queue because of a change elsewhere."""
        self.add(key, Priority.DEPENDENCY)

    def enqueue_with_dependents(self, key: ResourceKey) -> None:
        """Put a Broker, and every resource that refers to it, into the queue."""
        for affected in (key, *self.cache.dependents(key)):
            self.enqueue(affected)

    def resource_changed(self, manifest: Manifest) -> None:
        """A watch event: a resource was created or changed."""
        self._events += 1
        if self.cache.put(manifest) is ResourceChange.SPEC:
            self._enqueue_changed(key_of(manifest))

    def resource_deleted(self, manifest: Manifest) -> None:
        """A watch event: a resource was deleted."""
        self._events += 1
        key = key_of(manifest)
        affected = self.cache.affected(key)
        # The event may be late: a list has already shown a new resource of the same name.
        if self.cache.remove(key, version_of(manifest)):
            self.add(key, Priority.CHANGE)
            self._enqueue_each(affected)

    def child_changed(self, manifest: Manifest, *, is_deleted: bool = False) -> None:
        """A watch event: a child of a Broker or an Exchange changed. What the operator has applied is no news."""
        owner = self.children.see_gone(manifest) if is_deleted else self.children.see(manifest)
        if owner is not None:
            self._child_told(owner)

    async def resync(
        self,
        kube: ApiServer,
        namespaces: tuple[str, ...],
        period: float,
        after: Callable[[], Awaitable[None]],
        due: Callable[[], Awaitable[Callable[[ResourceKey], bool]]] | None = None,
    ) -> None:
        """List all resources now, every `period` seconds, and after `resync_soon`; then put them into the queue, apart
        from those that are not due, as `due` says.

        Resources that are missing in the lists were deleted. `after` is called after each list.
        """
        while True:
            try:
                await self.list_all(kube, namespaces)
                self._kinds_exist.set()
                self._tell_missing("")
                if not namespaces:
                    await self.list_children(kube, namespaces)
                is_due = await due() if due is not None else _is_always_due
            except KubeError as error:
                pause = max(_RELIST_SECONDS * (1 - self.queue.spread() / 2), error.retry_after_seconds or 0)
                if error.status == NOT_FOUND:
                    self._tell_missing(error.said)
                else:
                    logger.warning(
                        "the resources can't be listed: %s; the operator tries again in %.1f s", error, pause
                    )
                    self._kinds_exist.set()
                await asyncio.sleep(pause)
                continue
            for key in self.cache.all():
                if is_due(key):
                    self.add(key, Priority.RESYNC)
            await after()
            with suppress(TimeoutError):
                async with asyncio.timeout(period):
                    await self._resync_requested.wait()
            self._resync_requested.clear()

    def _tell_missing(self, said: str) -> None:
        """Log which list has shown that a kind does not exist, empty: all exist. What stays as it is, is no news."""
        before, self._missing = self._missing, said
        if said and said != before:
            logger.warning(
                "the API server does not know a kind (%s): its CRD was never installed, or was removed, and "
                "all resources of the kind with it. Install the CRDs of this release; until then changes are found by "
                "lists, every few seconds",
                said,
            )
        elif before and not said:
            logger.info("the API server knows all kinds again")

    def resync_soon(self) -> None:
        """List all resources now instead of at the end of the period."""
        self._resync_requested.set()

    async def wait_for_kinds(self) -> None:
        """List all resources now, and wait until no kind is missing: somebody may have removed the CRDs. Another error
        of the list ends the waiting, too.
        """
        self._kinds_exist.clear()
        self.resync_soon()
        await self._kinds_exist.wait()

    async def resync_children(self, kube: ApiServer, namespaces: tuple[str, ...]) -> None:
        """List the children at intervals, and put their owners into the queue if one has changed; used if children are
        not watched.
        """
        await self.listed.wait()
        while True:
            try:
                await self.list_children(kube, namespaces)
            except KubeError as error:
                logger.warning("the children can't be listed: %s", error)
            await asyncio.sleep(children_period(len(namespaces)))

    async def list_children(self, kube: ApiServer, namespaces: tuple[str, ...]) -> None:
        """List the children of the kinds that may be listed, and put the owners of those into the queue that are not as
        they were applied. Raises KubeError.
        """
        for kind in LISTED:
            for namespace in namespaces or (None,):
                found: list[Manifest] = []
                try:
                    async for manifest in kube.list(API_RESOURCES[kind], namespace, names.MANAGED_BY):
                        found.append(manifest)
                except Forbidden as error:
                    # The Role in a namespace that is being deleted goes before its resources.
                    logger.info("the children in %s can't be listed: %s", namespace, error)
                    continue
                owners = {owner for manifest in found if (owner := self.children.see(manifest)) is not None}
                for owner in owners | self.children.end_list(kind, namespace, found):
                    self._child_told(owner)

    def _child_told(self, owner: ResourceKey) -> None:
        """A child of this resource has changed. The cluster removes the children of one that is gone after it."""
        if self.cache.get(owner) is not None:
            self.enqueue(owner)
        else:
            self.children.forget(owner)

    async def run_worker(self, reconcile: Callable[[ResourceKey], Awaitable[Retry]]) -> None:
        """Take keys from the queue and reconcile them, for ever."""
        while True:
            end_if_cancelled()
            if await self.reconcile_next(reconcile):
                # A reconcile that asks nobody does not pause, and ten thousand of them would hold up everything else.
                await asyncio.sleep(0)
            else:
                await self._idle.wait(self._seconds_until_due)

    async def reconcile_next(self, reconcile: Callable[[ResourceKey], Awaitable[Retry]]) -> bool:
        """Reconcile one resource that is due; False if there is none, before the first complete list, and while the API
        server wants to be left alone.
        """
        now = self.monotonic()
        key = self.queue.take(now) if self.cache.is_complete and now >= self._rest_until else None
        if key is None:
            return False
        due = self.queue.next_due()
        if due is not None and due <= now:
            self._idle.wake()
        self.started[key] = self.monotonic()
        await self._one(key, reconcile)
        self.started.pop(key)
        self._idle.look_at_the_clock()  # it may have to be repeated
        return True

    async def _one(self, key: ResourceKey, reconcile: Callable[[ResourceKey], Awaitable[Retry]]) -> None:
        with self.metrics.measured(key.kind) as result:
            try:
                retry = await within(self.pass_seconds, reconcile(key))
            except KubeError as error:
                # Usually another client changed the object first. A lasting error is logged at each attempt.
                wait = error.retry_after_seconds or 0
                if error.status == TOO_MANY_REQUESTS:
                    wait = wait or FIRST_RETRY_SECONDS
                    self._rest_until = max(self._rest_until, self.monotonic() + wait)
                delay = self._repeat(key, Priority.CHANGE, wait)
                result.result = "error"
                logger.info("%s is reconciled again in %.1f s: %s", key, delay, error)
                return
            except PassOverdue as stood:
                delay = self._repeat(key, Priority.RESYNC)
                result.result = "overdue"
                logger.error(
                    "the reconcile of %s was ended because it took longer than %.0f s, and is repeated in %.1f s; "
                    "it stood %s",
                    *(key, self.pass_seconds, delay, stood),
                )
                return
            except Exception:
                # All exceptions end here: a bug with one resource must not stop the others.
                delay = self._repeat(key, Priority.RESYNC)
                result.result = "bug"
                logger.exception(
                    "the reconcile of %s failed because of a bug in the operator; it is repeated in %s s", key, delay
                )
                return
            if retry is Retry.BACKOFF:
                self._repeat(key, Priority.CHANGE)
                result.result = "waiting"
            else:
                self.queue.done(key)

    def _repeat(self, key: ResourceKey, priority: Priority, at_least: float = 0) -> float:
        """`WorkQueue.retry` now."""
        return self.queue.retry(key, _priority_of(key, priority), self.monotonic(), at_least)

    def _seconds_until_due(self) -> float | None:
        """When to look into the queue although nothing is added; None: never."""
        due = self.queue.next_due() if self.cache.is_complete else None
        return None if due is None else max(max(due, self._rest_until) - self.monotonic(), 0.001)

    async def list_all(self, kube: ApiServer, namespaces: tuple[str, ...]) -> None:
        """List all kinds, and put what changed or was deleted into the queue. Raises KubeError.

        If a kind is missing, the others are listed all the same: CRDs that somebody removes go one after the other, and
        what is deleted with a later one waits for the operator.
        """
        events, first = self._events, not self.cache.is_complete
        missing_kind: KubeError | None = None
        changed: set[ResourceKey] = set()
        affected: set[ResourceKey] = set()
        for kind in KIND_NAMES:
            began = self.cache.begin_list()
            try:
                manifests = [manifest async for manifest in self._list_namespaces(kube, kind, namespaces)]
            except KubeError as error:
                if error.status != NOT_FOUND:
                    raise
                missing_kind = error
                continue
            missing = set(self.cache.all(kind)) - {key_of(it) for it in manifests}
            for key in missing:
                affected |= self.cache.affected(key)
            changed |= self.cache.end_list(kind, began, manifests, namespaces)
        if missing_kind is None:
            self.cache.is_complete = True
            self.listed.set()
            self.last_listed = self.monotonic()
            self.metrics.listed.set_to_current_time()
            without_events = bool(changed) and not first and events == self._events
            self.lists_without_events = self.lists_without_events + 1 if without_events else 0
        for key in changed | affected:
            self._enqueue_changed(key)
        # What watch events had put into the queue may be due only now.
        self._idle.wake()
        self._idle.look_at_the_clock()
        if missing_kind is not None:
            raise missing_kind

    async def _list_namespaces(
        self, kube: ApiServer, kind: str, namespaces: tuple[str, ...]
    ) -> AsyncIterator[Manifest]:
        """The resources of a kind. One in the state that is known already is the known object, so that a list of ten
        thousand which have not changed does not hold a second copy of them.
        """
        for namespace in namespaces or (None,):
            async for manifest in kube.list(API_RESOURCES[kind], namespace):
                known = self.cache.get(key_of(manifest))
                is_known = known is not None and known.version == version_of(manifest)
                yield known.manifest if known is not None and is_known else trimmed(manifest)

    def _enqueue_changed(self, key: ResourceKey) -> None:
        entry = self.cache.get(key)
        deleting = entry is not None and dig(entry.manifest, "metadata", "deletionTimestamp") is not None
        self.add(key, Priority.DELETION if deleting else Priority.CHANGE)
        self._enqueue_each(self.cache.affected(key))

    def _enqueue_each(self, keys: Iterable[ResourceKey]) -> None:
        for key in keys:
            self.enqueue(key)


def children_period(namespaces: int) -> float:
    """Seconds between two lists of the children in each of so many namespaces: at most three requests a second."""
    return max(_CHILDREN_SECONDS, float(namespaces))


def _priority_of(key: ResourceKey, priority: Priority) -> Priority:
    return Priority.BROKER if key.kind == "Broker" else priority


def _is_always_due(_key: ResourceKey) -> bool:
    return True
