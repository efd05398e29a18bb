"""Reads the newest lag result of every Broker and writes it to the status of its Subscriptions.

`plans.lag_status` and `plans.lag_freshness` decide what is written. It is written by a field manager of its own
(`penstock-lag`), so that it does not change the other fields of the status, and at a limited rate, so that ten thousand
Subscriptions do not overload the API server. Brokers are read at the same time, and one that does not answer delays no
other. Source: docs/decisions/064-result-documents.md, docs/decisions/067-freshness-of-lag.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, NamedTuple

import aiohttp

from penstock_api import declaration
from penstock_api.lag_result import LagResult, SubscriptionLag
from penstock_api.resources import Broker, Subscription
from penstock_operator import names
from penstock_operator.brokers.observer_client import (
    LagResultInvalid,
    LagResultUnavailable,
    NoNewResult,
    ObserverAccess,
    TaggedResult,
    fetch_latest,
)
from penstock_operator.cluster.api_server import ApiServer, KubeError
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.manifest import Manifest, dig
from penstock_operator.plans import conditions, lag_freshness, lag_status
from penstock_operator.plans.lag_freshness import BrokerLag, LagVerdict
from penstock_operator.reconcile.broker_reconciler import BrokerFindings
from penstock_operator.reconcile.write_pace import WritePace

__all__ = ["LagReader"]

logger = logging.getLogger(__name__)

_WRITES_PER_SECOND: Final = 20
_REQUESTS_AT_ONCE: Final = 8
_JUDGED_AT_ONCE: Final = 200
"""After so many Subscriptions other tasks get their turn: judging them takes some microseconds each."""


class _Owner(NamedTuple):
    """What of an entry must agree with its Subscription."""

    uid: str | None
    namespace: str | None
    name: str | None
    queue_name: str


@dataclass(slots=True)
class _Reading:
    """What is known about one Broker's lag, and what its next request needs."""

    uid: str
    known: BrokerLag
    entries: dict[_Owner, SubscriptionLag] = field(default_factory=dict[_Owner, SubscriptionLag])
    """Those of `known.result`."""
    tag: str | None = None
    """The observer's tag of the result that was read last."""


@dataclass(slots=True)
class LagReader:
    """Reads lag results and writes what changed."""

    kube: ApiServer
    cache: Cache
    http: aiohttp.ClientSession
    findings: dict[ResourceKey, BrokerFindings]
    clock: Callable[[], datetime]
    enqueue: Callable[[ResourceKey], None]
    pace: WritePace = field(default_factory=lambda: WritePace(_WRITES_PER_SECOND))
    """That of all writes, whichever Broker they are for."""
    _readings: dict[ResourceKey, _Reading] = field(default_factory=dict[ResourceKey, _Reading])
    _logged: dict[ResourceKey, str] = field(default_factory=dict[ResourceKey, str])
    _requests: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_REQUESTS_AT_ONCE))

    async def run(self, period_seconds: float) -> None:
        """Look at every Broker each `period_seconds`, for ever; not again while the last look is still going on."""
        looks: dict[ResourceKey, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                looks = {key: look for key, look in looks.items() if not look.done()}
                for key in self._brokers() - looks.keys():
                    looks[key] = group.create_task(self.look(key))
                await asyncio.sleep(period_seconds)

    async def look(self, key: ResourceKey) -> None:
        """Read the newest result of one Broker, and write what changed or has become too old."""
        found = self.cache.get(key)
        broker = found.resource if found is not None and isinstance(found.resource, Broker) else None
        reading = self._reading(key, broker)
        if broker is None:
            if not self.cache.is_complete:
                return  # The Broker may only not have been listed yet.
            fault = f"there is no Broker {key.name} that this operator can read"
            reading.known = replace(reading.known, contact=reading.known.contact.answered(self.clock(), fault))
        else:
            await self._read(key, broker, reading)
        await self._write_all(key, reading)

    def _brokers(self) -> set[ResourceKey]:
        """Every Broker, and every one that is gone while Subscriptions still name it; others are forgotten."""
        subscriptions = (self.cache.get(key) for key in self.cache.all("Subscription"))
        named = {
            ResourceKey("Broker", *declaration.broker_key(entry.resource))
            for entry in subscriptions
            if entry is not None and isinstance(entry.resource, Subscription)
        }
        found = named.union(self.cache.all("Broker"))
        for memory in (self._readings, self._logged):
            for key in memory.keys() - found:
                del memory[key]
        return found

    def _reading(self, key: ResourceKey, broker: Broker | None) -> _Reading:
        """The reading of a Broker. One that was made again under the same name begins anew."""
        reading = self._readings.get(key)
        uid = "" if broker is None else broker.metadata.uid
        if reading is None or (broker is not None and reading.uid != uid):
            reading = self._readings[key] = _Reading(uid, BrokerLag(broker=key.name))
        if broker is not None:
            reading.known = replace(reading.known, analysis=broker.spec.lag_analysis)
        return reading

    async def _read(self, key: ResourceKey, broker: Broker, reading: _Reading) -> None:
        """Ask the observer, and keep what it says."""
        found = self.findings.get(key)
        contact = reading.known.contact
        if broker.spec.replicas == 0:
            contact = contact.answered(self.clock(), f"Broker {key.name} has no pods")
        elif found is None or found.observer is None:
            contact = contact.failed(self.clock(), "the operator has not connected to the Broker yet")
        else:
            try:
                answer = await self._fetch(found.observer, reading.tag)
            except LagResultUnavailable as error:
                contact = contact.failed(self.clock(), str(error))
                self._complain(key, str(error))
            except LagResultInvalid as error:
                contact = contact.answered(self.clock(), str(error))
                self._complain(key, str(error))
            else:
                fault = self._keep(key, broker, reading, found, answer)
                contact = contact.answered(self.clock(), fault)
        reading.known = replace(reading.known, contact=contact)

    async def _fetch(self, observer: ObserverAccess, tag: str | None) -> TaggedResult | NoNewResult:
        async with self._requests:
            return await fetch_latest(self.http, observer, tag)

    def _keep(
        self,
        key: ResourceKey,
        broker: Broker,
        reading: _Reading,
        found: BrokerFindings,
        answer: TaggedResult | NoNewResult,
    ) -> str:
        """Keep a result if its window is newer; what is wrong with it, empty if nothing is."""
        if isinstance(answer, TaggedResult):
            result = answer.result
            if (result.broker, result.namespace) != (broker.metadata.name, broker.metadata.namespace):
                self._complain(key, f"its newest lag result is about Broker {result.namespace}/{result.broker}")
                return "its newest lag result is about another Broker"
            last = reading.known.result
            if last is None or result.window_end > last.window_end:
                reading.known = replace(reading.known, result=result, first_seen=self.clock())
                reading.entries = _by_owner(result)
                found.lag = lag_status.analysis_status(result)
                self.enqueue(key)
            reading.tag = answer.tag
        self._logged.pop(key, None)
        return ""

    async def _write_all(self, key: ResourceKey, reading: _Reading) -> None:
        """Judge every Subscription of a Broker, and write the verdicts that are news."""
        for count, subscription in enumerate(self.cache.subscriptions_of(key), start=1):
            metadata = subscription.metadata
            owner = _Owner(metadata.uid, metadata.namespace, metadata.name, declaration.queue_name(subscription))
            entry = reading.entries.get(owner)
            verdict = lag_freshness.judge(subscription, entry, reading.known, self.clock())
            if verdict is not None and lag_freshness.is_worth_writing(subscription, verdict):
                await asyncio.sleep(self.pace.wait(asyncio.get_running_loop().time()))
                await self._write(subscription, verdict)
            elif count % _JUDGED_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _write(self, subscription: Subscription, verdict: LagVerdict) -> None:
        key = ResourceKey("Subscription", subscription.metadata.namespace, subscription.metadata.name)
        entry = self.cache.get(key)
        if entry is None or dig(entry.manifest, "metadata", "uid") != subscription.metadata.uid:
            return
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
            updated = await self.kube.apply_status(entry.manifest, status, names.LAG_MANAGER)
        except KubeError as error:
            # The resource was deleted meanwhile, or the next round tries again.
            logger.info("the lag of %s was not written: %s", key, error)
            return
        self.cache.put(updated)

    def _complain(self, key: ResourceKey, problem: str) -> None:
        """Log a problem once, not again while it lasts: an observer that keeps crashing must not fill the log."""
        if self._logged.get(key) != problem:
            self._logged[key] = problem
            logger.warning("the lag of %s is not known: %s", key, problem)


def _by_owner(result: LagResult) -> dict[_Owner, SubscriptionLag]:
    """The entries of a result; if two have the same owner, that of the newer snapshot."""
    entries: dict[_Owner, SubscriptionLag] = {}
    for entry in sorted(result.subscriptions, key=lambda found: found.observed_time):
        entries[_Owner(entry.owner_uid, entry.owner_namespace, entry.owner_name, entry.queue_name)] = entry
    return entries
