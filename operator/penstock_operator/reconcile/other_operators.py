"""Keeps this operator off the Brokers of another one, and takes those of an operator that is over.

`plans.managing_operator` decides. Here the name in `status.operator` is written, and the Leases of other operators are
read: one request every ten seconds for each operator that a Broker names, none if all Brokers are this operator's own.
Source: docs/decisions/120-one-operator-manages-a-broker.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from penstock_operator import names
from penstock_operator.cluster.api_server import API_RESOURCES, ApiServer, Forbidden, KubeError
from penstock_operator.cluster.cache import Cache, CachedResource, ResourceKey
from penstock_operator.manifest import Manifest, dig, text_at
from penstock_operator.plans import lease, managing_operator
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.managing_operator import ObservedLease, Responsibility
from penstock_operator.reconcile import status

__all__ = ["OtherOperators"]

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 10.0
"""The time between two looks at the Lease of another operator."""
_TRY_SECONDS: Final = 600.0
"""The time between two attempts to record a name, with a CRD that did not keep one."""


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


@dataclass(slots=True)
class OtherOperators:
    """What is known of the operators that Brokers name in their status."""

    kube: ApiServer
    cache: Cache
    me: str
    """This operator's own name; empty if it has no Lease."""
    clock: Callable[[], datetime]
    enqueue: Callable[[ResourceKey], None]
    """Put a resource into the work queue."""
    monotonic: Callable[[], float] = _loop_time
    _observed: dict[str, ObservedLease] = field(default_factory=dict[str, ObservedLease])
    _noted: dict[ResourceKey, Responsibility] = field(default_factory=dict[ResourceKey, Responsibility])
    """What was last decided about each Broker; the queue has learned it."""
    _told: dict[ResourceKey, str] = field(default_factory=dict[ResourceKey, str])
    """Which other operator was named to people as the one that manages a Broker."""
    _asked: set[str] = field(default_factory=set[str])
    """Operators after which somebody has asked; a look for them need not be hurried again."""
    _hurry: asyncio.Event = field(default_factory=asyncio.Event)
    _is_kept: bool = True
    """Whether the API server keeps a name; it does not if the CRD is of an earlier release."""
    _tried: float = 0.0
    """When that was last found out."""

    def responsibility(self, broker: ResourceKey) -> Responsibility:
        """What this operator does with a Broker, and with the resources that name it."""
        entry = self.cache.get(broker)
        if entry is None:
            return Responsibility.MANAGE
        recorded = recorded_in(entry)
        found = managing_operator.decide(recorded, self.me, self._observed.get(recorded), self.monotonic())
        if found is Responsibility.WAIT and recorded not in self._asked:
            self._asked.add(recorded)
            self._hurry.set()
        return found

    def is_own(self, broker: ResourceKey) -> bool:
        """Whether this operator may touch what names a Broker: not before its own name is recorded."""
        found = self.responsibility(broker)
        return found is Responsibility.MANAGE or (found is Responsibility.TAKE and not self._has_to_record(broker))

    async def take(self, broker: ResourceKey) -> bool:
        """Whether this operator may touch the Broker; if nobody manages it, its own name is recorded first.

        Raises:
            Conflict: the Broker was changed meanwhile, perhaps by an operator that does the same.
        """
        found, entry = self.responsibility(broker), self.cache.get(broker)
        if entry is None or not found.is_own:
            await self._tell(broker, entry, found)
            return False
        self._told.pop(broker, None)
        if found is Responsibility.TAKE and self._has_to_record(broker):
            before = recorded_in(entry)
            await self._record(entry)
            if not self._is_kept:
                logger.warning("the CRD of Brokers is of an earlier release: nothing keeps a second operator off them")
            elif before:
                logger.warning("this operator, %s, manages %s from now on: %s is over", self.me, broker, before)
            for dependent in self.cache.dependents(broker):
                self.enqueue(dependent)
        return True

    async def _record(self, entry: CachedResource) -> None:
        wanted = {**status.own_part(entry.manifest), "operator": self.me}
        taken = await self.kube.apply_status(entry.manifest, wanted, names.MANAGER, unchanged=True)
        self.cache.put(taken)
        self._is_kept, self._tried = text_at(taken, "status", "operator") == self.me, self.monotonic()

    def recorded(self, details: Manifest) -> Manifest:
        """The fields of a Broker's status, with the name of the operator that writes them."""
        return {**details, "operator": self.me} if self.me and self._is_kept else details

    def count(self) -> int:
        """How many Brokers this operator leaves to others, or does not touch yet."""
        return sum(not found.is_own for found in self._noted.values())

    def left(self) -> list[ResourceKey]:
        """The Brokers that another operator manages, without those of which that is not known yet."""
        return [key for key, found in self._noted.items() if found is Responsibility.KEEP_OFF]

    async def run(self) -> None:
        """Look after the other operators again and again."""
        while True:
            await self.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._hurry.wait()
            self._hurry.clear()

    async def look(self) -> None:
        """Read the Leases of the other operators, and put the Brokers into the queue about which that changes what is
        to be done, each with the resources that name it.
        """
        await self._try_again()
        brokers = {key: entry for key in self.cache.all("Broker") if (entry := self.cache.get(key)) is not None}
        named = {recorded_in(entry) for entry in brokers.values()} - {"", self.me}
        for name in self._observed.keys() - named:
            del self._observed[name]
            self._asked.discard(name)
        for name in sorted(named):
            await self._read(name)
        for memory in (self._noted, self._told):
            for key in memory.keys() - brokers.keys():
                del memory[key]
        for key in brokers:
            before, found = self._noted.get(key, Responsibility.MANAGE), self.responsibility(key)
            self._noted[key] = found
            if found is not before:
                self.enqueue(key)
            if found.is_own is not before.is_own:
                for dependent in self.cache.dependents(key):
                    self.enqueue(dependent)

    async def _try_again(self) -> None:
        """Find out with one Broker whether the CRD was upgraded meanwhile; then all of them get a name."""
        if self._is_kept or self.monotonic() < self._tried + _TRY_SECONDS:
            return
        for key in self.cache.all("Broker"):
            entry = self.cache.get(key)
            if entry is None or self.responsibility(key) is not Responsibility.TAKE or _is_deleting(entry):
                continue
            try:
                await self._record(entry)
            except KubeError as error:
                logger.info("whether the CRD of Brokers keeps the name of an operator is not known: %s", error)
            break
        if self._is_kept:
            for key in self.cache.all("Broker"):
                self.enqueue(key)

    async def _read(self, name: str) -> None:
        place = managing_operator.lease_of(name)
        if place is None:
            return
        try:
            found = await self.kube.get(API_RESOURCES["Lease"], *place)
        except Forbidden as error:
            if name not in self._observed or not self._observed[name].is_hidden:
                logger.warning("whether the operator %s still runs is not known: %s", name, error)
            self._observed[name] = ObservedLease(None, self.monotonic(), self.monotonic(), is_hidden=True)
        except KubeError as error:
            logger.info("whether the operator %s still runs is not known: %s", name, error)
        else:
            record = None if found is None else lease.read(found)
            self._observed[name] = managing_operator.observed(self._observed.get(name), record, self.monotonic())

    def _has_to_record(self, broker: ResourceKey) -> bool:
        """Whether there is a name to write. A Broker that is being deleted needs none any more."""
        entry = self.cache.get(broker)
        return bool(self.me) and self._is_kept and entry is not None and not _is_deleting(entry)

    async def _tell(self, broker: ResourceKey, entry: CachedResource | None, found: Responsibility) -> None:
        """Tell people once, by the log and an Event, that another operator manages a Broker."""
        if entry is None or found is not Responsibility.KEEP_OFF:
            return
        other = recorded_in(entry)
        if self._told.get(broker) == other:
            return
        self._told[broker] = other
        message = (
            f"The operator {other} manages this Broker. The operator {self.me or '(without a Lease)'}, which sees it "
            "too, leaves it alone, and the Exchanges, Subscriptions and Queues that name it."
        )
        logger.warning("%s: %s", broker, message)
        condition = StatusCondition(
            "Operator", ConditionStatus.FALSE, ConditionReason.MANAGED_BY_OTHER_OPERATOR, message
        )
        try:
            await self.kube.create(status.event(entry.manifest, condition, self.clock()))
        except KubeError as error:
            logger.info("an Event for %s was not created: %s", broker, error)


def _is_deleting(entry: CachedResource) -> bool:
    return dig(entry.manifest, "metadata", "deletionTimestamp") is not None


def recorded_in(entry: CachedResource) -> str:
    """The name of the operator that manages a Broker, as its status says; empty if it says none."""
    return text_at(entry.manifest, "status", "operator") or ""
