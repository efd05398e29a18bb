"""Reads the newest lag result of every Broker and writes it to the status of its Subscriptions.

`plans.lag_status` decides what is written. It is written by a field manager of its own (`penstock-lag`), so that it
does not change the other fields of the status, and at a limited rate, so that ten thousand Subscriptions do not
overload the API server. Source: docs/decisions/064-result-documents.md, docs/lag.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import aiohttp

from penstock_api import declaration
from penstock_api.lag_result import LagResult, SubscriptionLag
from penstock_api.resources import Broker, Subscription
from penstock_operator import names
from penstock_operator.brokers.observer_client import LagResultUnavailable, fetch_latest
from penstock_operator.cluster.api_server import ApiServer, KubeError
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.manifest import Manifest, dig
from penstock_operator.plans import conditions, lag_status
from penstock_operator.plans.conditions import StatusCondition
from penstock_operator.reconcile.broker_reconciler import BrokerFindings

__all__ = ["LagReader"]

logger = logging.getLogger(__name__)

_WRITES_PER_SECOND: Final = 20


@dataclass(slots=True)
class LagReader:
    """Reads lag results and writes what changed."""

    kube: ApiServer
    cache: Cache
    http: aiohttp.ClientSession
    findings: dict[ResourceKey, BrokerFindings]
    clock: Callable[[], datetime]
    enqueue: Callable[[ResourceKey], None]
    _seen: dict[ResourceKey, LagResult] = field(default_factory=dict[ResourceKey, LagResult])
    _problems: dict[ResourceKey, str] = field(default_factory=dict[ResourceKey, str])

    async def run(self, period_seconds: float) -> None:
        """Read the newest result of every Broker, for ever, with a pause of `period_seconds` after each round."""
        while True:
            for key in self.cache.all("Broker"):
                await self.look(key)
            await asyncio.sleep(period_seconds)

    async def look(self, key: ResourceKey) -> None:
        """Read the newest result of one Broker and write what changed."""
        found = self.findings.get(key)
        entry = self.cache.get(key)
        broker = None if entry is None else entry.resource
        if found is None or found.observer is None or not isinstance(broker, Broker):
            return
        try:
            result = await fetch_latest(self.http, found.observer)
        except LagResultUnavailable as error:
            self._complain(key, str(error))
            return
        self._problems.pop(key, None)
        if result is None:
            return
        if (result.broker, result.namespace) != (broker.metadata.name, broker.metadata.namespace):
            self._complain(key, f"its newest lag result is about Broker {result.namespace}/{result.broker}")
            return
        seen = self._seen.get(key)
        if seen is None or result.window_end > seen.window_end:
            self._seen[key] = result
            found.lag = lag_status.analysis_status(result)
            self.enqueue(key)
        await self._write_all(key, broker, self._seen[key])

    async def _write_all(self, key: ResourceKey, broker: Broker, result: LagResult) -> None:
        stale = lag_status.stale_condition(result, broker.spec.lag_analysis.interval_minutes, self.clock())
        for subscription, entry in _matches(self.cache.subscriptions_of(key), result):
            condition = stale or lag_status.lagging_condition(subscription, entry)
            lag = lag_status.lag_status(entry, result)
            shown = next((it for it in subscription.status.conditions if it.type == "Lagging"), None)
            before = None if shown is None else shown.reason
            if stale is not None:
                if before == str(stale.reason) or subscription.status.lag is None:
                    continue
                lag = subscription.status.lag.model_dump(mode="json", by_alias=True, exclude_none=True)
            elif not lag_status.is_worth_writing(subscription.status.lag, before, lag, condition):
                continue
            await self._write(subscription, lag, condition)
            await asyncio.sleep(1 / _WRITES_PER_SECOND)

    async def _write(self, subscription: Subscription, lag: Manifest, condition: StatusCondition) -> None:
        key = ResourceKey("Subscription", subscription.metadata.namespace, subscription.metadata.name)
        entry = self.cache.get(key)
        if entry is None or dig(entry.manifest, "metadata", "uid") != subscription.metadata.uid:
            return
        shown = [it for it in subscription.status.conditions if it.type == "Lagging"]
        rendered = conditions.render(
            [condition], before=shown, generation=subscription.metadata.generation, now=self.clock()
        )
        try:
            updated = await self.kube.apply_status(
                entry.manifest, {"lag": lag, "conditions": rendered}, names.LAG_MANAGER
            )
        except KubeError as error:
            # The resource was deleted meanwhile, or the next round tries again.
            logger.info("the lag of %s was not written: %s", key, error)
            return
        self.cache.put(updated)

    def _complain(self, key: ResourceKey, problem: str) -> None:
        """Log a problem once, not again while it lasts: an observer that keeps crashing must not fill the log."""
        if self._problems.get(key) != problem:
            self._problems[key] = problem
            logger.warning("the lag of %s is not known: %s", key, problem)


def _matches(subscriptions: list[Subscription], result: LagResult) -> Iterator[tuple[Subscription, SubscriptionLag]]:
    """The entries, each with its Subscription; uid, namespace, name and queue must all agree."""
    by_uid = {subscription.metadata.uid: subscription for subscription in subscriptions}
    for entry in result.subscriptions:
        subscription = by_uid.get(entry.owner_uid or "")
        if subscription is None or declaration.queue_name(subscription) != entry.queue_name:
            continue
        if (subscription.metadata.namespace, subscription.metadata.name) == (entry.owner_namespace, entry.owner_name):
            yield subscription, entry
