"""Reads the lag of every Broker, live and from the newest run, and has it written to the status of its Subscriptions
and Queues.

`plans.lag_sources` and `plans.lag_freshness` decide what the status says, and `lag_writer` writes it. Brokers are read
at the same time; neither one that does not answer nor the writes delay the reading of another. Source:
docs/decisions/064-result-documents.md, docs/decisions/067-freshness-of-lag.md,
docs/decisions/069-two-sources-of-lag.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import aiohttp

from penstock_api import declaration
from penstock_api.lag_result import LagResult, LagState, SubscriptionLag
from penstock_api.resources import Broker, Holding
from penstock_operator.brokers.observer_client import (
    LagResultInvalid,
    LagResultUnavailable,
    NoNewResult,
    ObserverAccess,
    TaggedResult,
    fetch_latest,
    fetch_live,
)
from penstock_operator.cluster.api_server import ApiServer
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.lag_options import LagJobOptions
from penstock_operator.plans import lag_freshness, lag_status
from penstock_operator.plans.lag_service import lag_service
from penstock_operator.plans.lag_sources import BrokerLag, LagEntries, LagSource
from penstock_operator.reconcile.broker_findings import BrokerFindings
from penstock_operator.reconcile.lag_writer import LagWriter
from penstock_operator.reconcile.timed_semaphore import TimedSemaphore

__all__ = ["LagReader"]

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 8
"""So many observers are asked at the same time; and so many more of those that did not answer the last time, which may
take long to fail again.
"""
_PLACE_SECONDS: Final = 2.0
"""So long an observer counts among them. A request may last fifteen seconds, and if many observers die together, nobody
else would be read for so long that their lag would be called unknown.
"""
_JUDGED_AT_ONCE: Final = 200
"""After so many Subscriptions other tasks get their turn: judging them takes some microseconds each."""
_NOT_SOON: Final = timedelta(minutes=1)
"""An observer that has no live result, or one that can't be used, is not asked for it again before."""


class _Owner(NamedTuple):
    """What of an entry must agree with its resource."""

    uid: str | None
    namespace: str | None
    name: str | None
    queue_name: str


@dataclass(slots=True)
class _Reading:
    """What is known about one Broker's lag, and what its next requests need."""

    uid: str
    known: BrokerLag
    live: dict[_Owner, SubscriptionLag] = field(default_factory=dict[_Owner, SubscriptionLag])
    """The entries of the live result."""
    run: dict[_Owner, SubscriptionLag] = field(default_factory=dict[_Owner, SubscriptionLag])
    """Those of the newest run."""
    told_at: dict[_Owner, datetime] = field(default_factory=dict[_Owner, datetime])
    """When the live result told a state last, on the operator's clock."""
    tag: str | None = None
    """The observer's tag of the run's result that was read last, whether or not it could be used."""
    useless_at: datetime | None = None
    """When the observer last had no live result, or one that can't be used."""

    def entries(self, resource: Holding) -> LagEntries:
        """What the results have about a Subscription or a Queue."""
        metadata = resource.metadata
        owner = _Owner(metadata.uid, metadata.namespace, metadata.name, declaration.queue_name(resource))
        return LagEntries(live=self.live.get(owner), run=self.run.get(owner), told_at=self.told_at.get(owner))

    def clock_is(self, now: datetime) -> None:
        """The operator's clock may have been set back: nothing was seen later than now."""
        known = self.known.seen_by(now)
        if known is not self.known or any(at > now for at in self.told_at.values()):
            self.known = known
            self.told_at = {owner: min(at, now) for owner, at in self.told_at.items()}


@dataclass(slots=True)
class LagReader:
    """Reads lag, judges it, and has it written."""

    kube: ApiServer
    cache: Cache
    http: aiohttp.ClientSession
    findings: dict[ResourceKey, BrokerFindings]
    clock: Callable[[], datetime]
    enqueue: Callable[[ResourceKey], None]
    is_declaring: Callable[[], bool]
    """Whether declarations are on the way to a broker."""
    lag_job: LagJobOptions | None = None
    """The operator's own lag job."""
    is_own: Callable[[ResourceKey], bool] = lambda _: True
    """Whether this operator may touch what names a Broker: not if another one manages it."""
    writer: LagWriter = field(init=False)
    _readings: dict[ResourceKey, _Reading] = field(default_factory=dict[ResourceKey, _Reading])
    _logged: dict[ResourceKey, dict[LagSource, str]] = field(default_factory=dict[ResourceKey, dict[LagSource, str]])
    place_seconds: float = _PLACE_SECONDS
    _first: TimedSemaphore = field(init=False)
    _again: TimedSemaphore = field(init=False)

    def __post_init__(self) -> None:
        self.writer = LagWriter(self.kube, self.cache, self.clock, self.enqueue, self.is_declaring)
        self._first = TimedSemaphore(_AT_ONCE, self.place_seconds)
        self._again = TimedSemaphore(_AT_ONCE, self.place_seconds)

    async def run(self, period_seconds: float) -> None:
        """Look at every Broker each `period_seconds`, for ever; not again while the last look is still going on."""
        looks: dict[ResourceKey, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            group.create_task(self.writer.run())
            while True:
                looks = {key: look for key, look in looks.items() if not look.done()}
                for key in self._brokers() - looks.keys():
                    looks[key] = group.create_task(self._look(key))
                await asyncio.sleep(period_seconds)

    async def _look(self, key: ResourceKey) -> None:
        try:
            await self.look(key)
        except Exception:
            # All exceptions end here: what an observer answers is not trusted, and must not end the reading of others.
            logger.exception("the lag of %s is not known because of a bug in the operator", key)

    async def look(self, key: ResourceKey) -> None:
        """Read the lag of one Broker, judge that of its Subscriptions, and hand over what is to be written."""
        found = self.cache.get(key)
        broker = found.resource if found is not None and isinstance(found.resource, Broker) else None
        if not self.is_own(key):
            self._leave(key)
            return
        reading = self._reading(key, broker)
        reading.clock_is(self.clock())
        if broker is None:
            if not self.cache.is_complete:
                return  # The Broker may only not have been listed yet.
            reading.known = replace(reading.known, is_gone=found is None)
            self._nobody_to_ask(reading, f"there is no Broker {key.name} that this operator can read")
        else:
            await self._read(key, broker, reading)
            if not self.is_own(key):  # Another operator has taken it meanwhile.
                self._leave(key)
                return
        for count, resource in enumerate(self.cache.holdings_of(key), start=1):
            entries = reading.entries(resource)
            self.writer.offer(resource, lag_freshness.lag_update(resource, entries, reading.known, self.clock()))
            if count % _JUDGED_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _leave(self, key: ResourceKey) -> None:
        """Another operator tells the lag at a Broker. Should it come back to this one, everything is asked for anew."""
        for memory in (self._readings, self._logged):
            memory.pop(key, None)
        for resource in self.cache.holdings_of(key):
            self.writer.offer(resource, None)

    def _brokers(self) -> set[ResourceKey]:
        """Every Broker, and every one that is gone while others still name it and have lag; the rest is forgotten."""
        found = {*self.cache.brokers_of_holdings(), *self.cache.all("Broker")}
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
            service = lag_service(key.name, broker.spec.lag_analysis, self.lag_job)
            reading.known = replace(reading.known, service=service, is_gone=False)
        return reading

    def _nobody_to_ask(self, reading: _Reading, why: str) -> None:
        known, now = reading.known, self.clock()
        reading.known = replace(
            known, contact=known.contact.answered(now, why), live_contact=known.live_contact.answered(now, why)
        )

    async def _read(self, key: ResourceKey, broker: Broker, reading: _Reading) -> None:
        """Ask the observer, and keep what it says."""
        found, known = self.findings.get(key), reading.known
        if broker.spec.replicas == 0:
            self._nobody_to_ask(reading, f"Broker {key.name} has no pods")
            return
        if found is None or found.observer is None:
            self._failed(reading, "the operator has not connected to the Broker yet")
            return
        has_failed = known.live_contact.failures > 0 or known.contact.failures > 0
        async with (self._again if has_failed else self._first).place():
            if await self._read_live(key, broker, reading, found.observer):
                await self._read_run(key, broker, reading, found, found.observer)

    async def _read_live(self, key: ResourceKey, broker: Broker, reading: _Reading, observer: ObserverAccess) -> bool:
        """Ask for the live result; whether the observer can be reached."""
        useless_at = reading.useless_at
        # The operator's clock may have been set back since.
        if useless_at is not None and timedelta(0) <= self.clock() - useless_at < _NOT_SOON:
            return True
        reading.useless_at = None
        try:
            result = await fetch_live(self.http, observer)
        except LagResultUnavailable as error:
            if error.answers:
                contact = reading.known.live_contact.failed(self.clock(), str(error))
                reading.known = replace(reading.known, live_contact=contact)
            else:
                self._failed(reading, str(error))
            self._complain(key, LagSource.LIVE, str(error))
            return error.answers
        except LagResultInvalid as error:
            self._live_fault(key, reading, str(error))
            return True
        if result is None:
            reading.known = reading.known.without_live(self.clock())
            reading.live.clear()
            reading.useless_at = self.clock()
        elif _is_about(result, broker):
            self._keep_live(reading, result)
            self._logged.get(key, {}).pop(LagSource.LIVE, None)
        else:
            self._live_fault(key, reading, "its live lag is about another Broker")
        return True

    def _keep_live(self, reading: _Reading, result: LagResult) -> None:
        reading.known = reading.known.with_live(result, self.clock())
        reading.live = _by_owner(result)
        assert reading.known.live is not None, "it was just taken"
        told_at = reading.known.live.said_at
        now = self.clock()
        # Subscriptions that are gone are forgotten together with what was said about them.
        kept = {
            owner: at for owner, at in reading.told_at.items() if not reading.known.is_stale(at, now, LagSource.LIVE)
        }
        told = {owner: told_at for owner, entry in reading.live.items() if entry.state is not LagState.UNKNOWN}
        reading.told_at = kept | told

    def _live_fault(self, key: ResourceKey, reading: _Reading, fault: str) -> None:
        contact = reading.known.live_contact.answered(self.clock(), fault)
        reading.known = replace(reading.known, live_contact=contact, is_live_offered=True)
        reading.useless_at = self.clock()
        self._complain(key, LagSource.LIVE, contact.fault)

    async def _read_run(
        self, key: ResourceKey, broker: Broker, reading: _Reading, found: BrokerFindings, observer: ObserverAccess
    ) -> None:
        """Ask for the result of the newest run."""
        contact = reading.known.contact
        try:
            answer = await fetch_latest(self.http, observer, reading.tag)
        except LagResultUnavailable as error:
            contact = contact.failed(self.clock(), str(error))
            self._complain(key, LagSource.RUN, str(error))
        except LagResultInvalid as error:
            reading.tag = error.tag
            contact = contact.answered(self.clock(), str(error))
            self._complain(key, LagSource.RUN, contact.fault)
        else:
            if answer is NoNewResult.UNCHANGED:
                fault = contact.fault  # That of the result which the observer still has.
            else:
                fault = self._keep_run(key, broker, reading, found, answer)
            contact = contact.answered(self.clock(), fault)
            if fault:
                self._complain(key, LagSource.RUN, contact.fault)
            else:
                self._logged.get(key, {}).pop(LagSource.RUN, None)
        reading.known = replace(reading.known, contact=contact)

    def _keep_run(
        self,
        key: ResourceKey,
        broker: Broker,
        reading: _Reading,
        found: BrokerFindings,
        answer: TaggedResult | NoNewResult,
    ) -> str:
        """Keep a result if its window is newer; what is wrong with it, empty if nothing is."""
        if not isinstance(answer, TaggedResult):
            return ""
        reading.tag = answer.tag
        if not _is_about(answer.result, broker):
            return "its newest lag result is about another Broker"
        before, reading.known = reading.known, reading.known.with_run(answer.result, self.clock())
        if reading.known is not before:
            reading.run = _by_owner(answer.result)
            found.lag = lag_status.analysis_status(answer.result)
            self.enqueue(key)
        return ""

    def _failed(self, reading: _Reading, failure: str) -> None:
        """The observer can't be reached, whatever it is asked for."""
        known, now = reading.known, self.clock()
        reading.known = replace(
            known, contact=known.contact.failed(now, failure), live_contact=known.live_contact.failed(now, failure)
        )

    def _complain(self, key: ResourceKey, source: LagSource, problem: str) -> None:
        """Log a problem once, not again while it lasts: an observer that keeps crashing must not fill the log."""
        logged = self._logged.setdefault(key, {})
        if logged.get(source) != problem:
            logged[source] = problem
            logger.warning("the lag of %s is not known (%s): %s", key, source.value, problem)


def _is_about(result: LagResult, broker: Broker) -> bool:
    return (result.broker, result.namespace) == (broker.metadata.name, broker.metadata.namespace)


def _by_owner(result: LagResult) -> dict[_Owner, SubscriptionLag]:
    """The entries of a result; if two have the same owner, that of the newer snapshot."""
    entries: dict[_Owner, SubscriptionLag] = {}
    for entry in sorted(result.subscriptions, key=lambda found: found.observed_time):
        entries[_Owner(entry.owner_uid, entry.owner_namespace, entry.owner_name, entry.queue_name)] = entry
    return entries
