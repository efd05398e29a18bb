"""Writes lag to the status of Subscriptions and Queues, at a limited rate and in the order of `plans.lag_writes`.

It is written by a field manager of its own (`penstock-lag`), so that it does not change the other fields of the status.
The rate is that of all Brokers together: ten thousand Subscriptions must not overload the API server. Several writes
are on the way at the same time, as many as `plans.write_window` allows, but never two of one resource. Declarations go
first, as `plans.declaration_priority` says. Source: docs/decisions/069-two-sources-of-lag.md,
docs/decisions/121-declarations-go-first.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from penstock_api.resources import Holding
from penstock_operator import names
from penstock_operator.cluster.api_server import ApiServer, KubeError
from penstock_operator.cluster.cache import Cache, ResourceChange, ResourceKey
from penstock_operator.manifest import Manifest
from penstock_operator.plans import conditions
from penstock_operator.plans.declaration_priority import LOOK_AGAIN_SECONDS, DeclarationPriority
from penstock_operator.plans.lag_freshness import LagUpdate
from penstock_operator.plans.lag_writes import LagWrites, Urgency, urgency
from penstock_operator.plans.write_window import WriteWindow
from penstock_operator.reconcile.write_pace import WritePace

__all__ = ["LagWriter"]

logger = logging.getLogger(__name__)

_WRITES_PER_SECOND: Final = 100
"""States and figures together."""
_FIGURES_PER_SECOND: Final = 20
_A_MOMENT: Final = 0.001
"""Seconds: a pause may end so much too early."""


@dataclass(slots=True)
class LagWriter:
    """Takes updates, and writes those that are news."""

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
    """That of all writes."""
    figures: WritePace = field(default_factory=lambda: WritePace(_FIGURES_PER_SECOND))
    """That of figures, within the other one."""
    window: WriteWindow = field(default_factory=WriteWindow)
    _writing: dict[ResourceKey, asyncio.Task[None]] = field(default_factory=dict[ResourceKey, asyncio.Task[None]])
    """The writes that are on the way."""
    _updates: dict[ResourceKey, tuple[str, LagUpdate]] = field(default_factory=dict[ResourceKey, tuple[str, LagUpdate]])
    """The newest update of each resource that waits to be written, with the uid that it is about."""
    _writes: LagWrites[ResourceKey] = field(default_factory=LagWrites[ResourceKey])
    _asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Write what waits, for ever."""
        while True:
            await self._asked.wait()
            await self.write_all()

    def offer(self, resource: Holding, update: LagUpdate | None) -> None:
        """Have an update written if it is news; it replaces one that still waits. None: the status says it already."""
        key = _key(resource)
        if key in self._writing:
            # Whether it is news shows when that write is over.
            self._keep(key, resource, update)
            return
        how_soon = Urgency.NONE if update is None else urgency(resource, update)
        self._writes.ask(key, how_soon)
        self._keep(key, resource, None if how_soon is Urgency.NONE else update)
        if how_soon is not Urgency.NONE:
            self._asked.set()

    def _keep(self, key: ResourceKey, resource: Holding, update: LagUpdate | None) -> None:
        if update is None:
            self._updates.pop(key, None)
        else:
            self._updates[key] = (resource.metadata.uid, update)

    async def write_all(self) -> None:
        """Write until nothing waits any more."""
        now = asyncio.get_running_loop().time
        try:
            while self._writes or self._writing:
                if not self._writes or len(self._writing) >= self.window.limit:
                    await self._wait_for_an_answer()
                    continue
                at = now()
                if self.priority.must_wait(at, is_declaring=self.is_declaring()):
                    await asyncio.sleep(LOOK_AGAIN_SECONDS)
                    continue
                for_figures = 0.0 if self._writes.has_states else self.figures.ahead(at)
                # The choice comes after the pause: a state that has changed meanwhile goes first.
                await asyncio.sleep(max(self.pace.wait(at), for_figures))
                if not self.pace.is_resting(now()):
                    self._begin_next(now())
        finally:
            for task in self._writing.values():
                task.cancel()
        self._asked.clear()

    async def _wait_for_an_answer(self) -> None:
        done, _ = await asyncio.wait(self._writing.values(), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # A bug ends the operator.
        for key in [key for key, task in self._writing.items() if task.done()]:
            del self._writing[key]
            self._offer_again(key)

    def _offer_again(self, key: ResourceKey) -> None:
        """What was offered while a write of the same resource was on the way."""
        uid, update = self._updates.get(key, ("", None))
        entry = self.cache.get(key)
        resource = None if entry is None else entry.resource
        if isinstance(resource, Holding) and resource.metadata.uid == uid:
            self.offer(resource, update)
        else:
            self._updates.pop(key, None)

    def _begin_next(self, now: float) -> None:
        """Begin one write; those that are not news any more are passed over, and use up nothing of the rate."""
        while (key := self._writes.take(figures=self.figures.ahead(now) < _A_MOMENT)) is not None:
            uid, update = self._updates.pop(key)
            entry = self.cache.get(key)
            resource = None if entry is None else entry.resource
            if entry is None or not isinstance(resource, Holding) or resource.metadata.uid != uid:
                continue
            how_soon = urgency(resource, update)
            if how_soon is Urgency.NONE:
                continue
            if how_soon is Urgency.FIGURES:
                self.figures.wait(now)
            self._writing[key] = asyncio.create_task(self._write(key, entry.manifest, resource, update))
            return

    async def _write(self, key: ResourceKey, manifest: Manifest, resource: Holding, update: LagUpdate) -> None:
        status: Manifest = {
            "conditions": conditions.render(
                update.conditions,
                before=resource.status.conditions,
                generation=resource.metadata.generation,
                now=self.clock(),
            )
        }
        if update.lag is not None:
            status["lag"] = update.lag.model_dump(mode="json", by_alias=True, exclude_none=True)
        now = asyncio.get_running_loop().time
        began = now()
        try:
            updated = await self.kube.apply_status(manifest, status, names.LAG_MANAGER)
        except KubeError as error:
            # The resource was deleted meanwhile, or the next round tries again.
            logger.info("the lag of %s was not written: %s", key, error)
            if error.is_passing:
                self.window.refused()
                self.pace.rest(now(), error.retry_after_seconds)
            return
        self.window.answered(now() - began)
        if self.cache.put(updated) is ResourceChange.SPEC:
            self.enqueue(key)


def _key(resource: Holding) -> ResourceKey:
    return ResourceKey(resource.kind, resource.metadata.namespace, resource.metadata.name)
