"""Writes lag to the status of Subscriptions, at a limited rate and in the order of `plans.lag_writes`.

It is written by a field manager of its own (`penstock-lag`), so that it does not change the other fields of the status.
The rate is that of all Brokers together: ten thousand Subscriptions must not overload the API server. Source:
docs/decisions/069-two-sources-of-lag.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from penstock_api.resources import Subscription
from penstock_operator import names
from penstock_operator.cluster.api_server import ApiServer, KubeError
from penstock_operator.cluster.cache import Cache, ResourceChange, ResourceKey
from penstock_operator.manifest import Manifest
from penstock_operator.plans import conditions
from penstock_operator.plans.lag_freshness import LagVerdict
from penstock_operator.plans.lag_writes import LagWrites, Urgency, urgency
from penstock_operator.reconcile.write_pace import WritePace

__all__ = ["LagWriter"]

logger = logging.getLogger(__name__)

_WRITES_PER_SECOND: Final = 20


@dataclass(slots=True)
class LagWriter:
    """Takes verdicts, and writes those that are news."""

    kube: ApiServer
    cache: Cache
    clock: Callable[[], datetime]
    enqueue: Callable[[ResourceKey], None]
    """Put a Subscription into the work queue: the reply to a write may show that its spec has changed."""
    pace: WritePace = field(default_factory=lambda: WritePace(_WRITES_PER_SECOND))
    _verdicts: dict[ResourceKey, tuple[str, LagVerdict]] = field(
        default_factory=dict[ResourceKey, tuple[str, LagVerdict]]
    )
    """The newest verdict of each Subscription that waits to be written, with the uid that it is about."""
    _writes: LagWrites[ResourceKey] = field(default_factory=LagWrites[ResourceKey])
    _asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Write what waits, for ever."""
        while True:
            await self._asked.wait()
            await self.write_all()

    def offer(self, subscription: Subscription, verdict: LagVerdict | None) -> None:
        """Have a verdict written if it is news; it replaces one that still waits. None: the status says it already."""
        key = _key(subscription)
        how_soon = Urgency.NONE if verdict is None else urgency(subscription, verdict)
        self._writes.ask(key, how_soon)
        if verdict is None or how_soon is Urgency.NONE:
            self._verdicts.pop(key, None)
        else:
            self._verdicts[key] = (subscription.metadata.uid, verdict)
            self._asked.set()

    async def write_all(self) -> None:
        """Write until nothing waits any more."""
        now = asyncio.get_running_loop().time
        while self._writes:
            # The choice comes after the pause: a state that has changed meanwhile goes first.
            await asyncio.sleep(self.pace.wait(now()))
            await self._write_next()
        self._asked.clear()

    async def _write_next(self) -> None:
        """Write one; those that are not news any more are passed over, and use up nothing of the rate."""
        while (key := self._writes.take()) is not None:
            uid, verdict = self._verdicts.pop(key)
            entry = self.cache.get(key)
            subscription = None if entry is None else entry.resource
            if entry is None or not isinstance(subscription, Subscription) or subscription.metadata.uid != uid:
                continue
            if urgency(subscription, verdict) is not Urgency.NONE:
                await self._write(key, entry.manifest, subscription, verdict)
                return

    async def _write(
        self, key: ResourceKey, manifest: Manifest, subscription: Subscription, verdict: LagVerdict
    ) -> None:
        status: Manifest = {
            "conditions": conditions.render(
                verdict.conditions,
                before=subscription.status.conditions,
                generation=subscription.metadata.generation,
                now=self.clock(),
            )
        }
        if verdict.lag is not None:
            status["lag"] = verdict.lag.model_dump(mode="json", by_alias=True, exclude_none=True)
        try:
            updated = await self.kube.apply_status(manifest, status, names.LAG_MANAGER)
        except KubeError as error:
            # The resource was deleted meanwhile, or the next round tries again.
            logger.info("the lag of %s was not written: %s", key, error)
            return
        if self.cache.put(updated) is ResourceChange.SPEC:
            self.enqueue(key)


def _key(subscription: Subscription) -> ResourceKey:
    return ResourceKey("Subscription", subscription.metadata.namespace, subscription.metadata.name)
