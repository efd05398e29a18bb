"""One operator of several leads: it holds a Lease, renews it, waits again when it can't, and gives it back at its end.

The rules are in `plans.lease`. Requests for the Lease go over a connection of their own, in a thread of their own, so
that they do not wait behind the operator's other work. Source: docs/decisions/106-one-operator-leads.md,
docs/decisions/129-the-process-goes-on.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from penstock_api.failure import Failure
from penstock_operator.cluster.api_server import API_RESOURCES, ApiResource, KubeError
from penstock_operator.manifest import Manifest
from penstock_operator.plans import lease
from penstock_operator.plans.lease import LeaseStep, LeaseTimes, Sighting

__all__ = ["Leadership", "LeadershipLost", "LeaseServer"]

logger = logging.getLogger(__name__)

_RELEASE_SECONDS: Final = 5.0
_SPREAD: Final = 0.2
"""Up to this part of the retry period is added to it, so that two operators that wait do not ask at the same time."""


class LeadershipLost(Failure):
    """This operator led, and another one leads now or may at any time. All that it knew has to be forgotten."""


class LeaseServer(Protocol):
    """Where the Lease is kept. Every method raises KubeError."""

    async def get(self, kind: ApiResource, namespace: str | None, name: str) -> Manifest | None:
        """The object, None if there is none."""
        ...

    async def create(self, manifest: Manifest) -> Manifest:
        """Create an object; Conflict if it exists."""
        ...

    async def replace(self, manifest: Manifest) -> Manifest:
        """Replace an object; Conflict if its resource version is not the newest."""
        ...


@dataclass(slots=True)
class Leadership:
    """The part that one operator has in a Lease."""

    server: LeaseServer
    namespace: str
    name: str
    identity: str
    """Names this operator in the Lease. It is the pod's name: a container that is started again in the same pod goes on
    with the lease of the one before it, which has ended.
    """
    times: LeaseTimes
    monotonic: Callable[[], float]
    clock: Callable[[], datetime]
    spread: Callable[[], float] = lambda: 0.0
    """A random number from 0 to 1."""
    holder: str = ""
    """Who led when the Lease was read last; empty: nobody, or it was not read yet."""
    problem: str = ""
    """Why the last attempt to read or write the Lease failed; empty if it did not."""
    _sighting: Sighting | None = None
    _own: Manifest | None = None
    """The Lease as this operator wrote it last; None if it has to be read first."""
    _renewed: float | None = None
    """When the last renewal that succeeded was sent."""
    _asked_to_wait: float = field(default=0.0)
    """Seconds that the API server asked to wait after the last attempt."""

    def leads(self) -> bool:
        """Whether this operator may write now."""
        return lease.may_write(self._renewed, self.monotonic(), self.times)

    async def acquire(self) -> None:
        """Wait until this operator leads."""
        while not await self._attempt(self.times.renew_deadline / 2):
            pause = self.times.retry_period * (1 + _SPREAD * self.spread())
            await asyncio.sleep(max(pause, self._asked_to_wait))
        logger.info("this operator, %s, leads: it holds the Lease %s", self.identity, self._label)

    async def keep(self) -> None:
        """Renew the Lease again and again.

        Raises:
            LeadershipLost: it could not be renewed in time, or another operator has it; `acquire` waits for it again.
        """
        while True:
            await asyncio.sleep(min(self.times.retry_period, max(self._remaining(), 0)))
            if self._remaining() <= 0:
                why = self.problem or "the process stood still"
                raise self._lost(
                    f"The Lease {self._label} could not be renewed for {self.times.renew_deadline:.0f} s: {why}."
                )
            await self._attempt(min(self._remaining(), self.times.renew_deadline / 2))

    async def release(self) -> None:
        """Give the Lease back, if this operator leads; never raises. Nothing may be written afterwards."""
        own, leads, self._renewed = self._own, self.leads(), None
        if own is None or not leads:
            return
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self.server.replace({**own, "spec": lease.vacant(lease.read(own), self.clock())})
        except (KubeError, TimeoutError) as error:
            logger.warning("the Lease %s was not released, another operator takes it later: %r", self._label, error)

    @property
    def _label(self) -> str:
        return f"{self.namespace}/{self.name}"

    def _remaining(self) -> float:
        """Seconds until this operator has to stop."""
        renewed = self._renewed
        return 0.0 if renewed is None else renewed + self.times.renew_deadline - self.monotonic()

    async def _attempt(self, seconds: float) -> bool:
        """Take or renew the Lease if that is possible; whether this operator holds it now."""
        self._asked_to_wait = 0.0
        try:
            async with asyncio.timeout(seconds):
                held = await self._take_or_renew()
        except (KubeError, TimeoutError) as error:
            # A write may have succeeded although its answer was lost.
            self._own = None
            self._asked_to_wait = (error.retry_after_seconds or 0.0) if isinstance(error, KubeError) else 0.0
            self._note(str(error) or f"no answer within {seconds:.0f} s")
            return False
        self._note("")
        return held

    async def _take_or_renew(self) -> bool:
        found = self._own
        if found is None:
            found = await self.server.get(API_RESOURCES["Lease"], self.namespace, self.name)
        now = self.monotonic()
        self._sighting = None if found is None else lease.sight(self._sighting, lease.read(found), now)
        self._see_holder("" if self._sighting is None else self._sighting.record.holder)
        step = lease.decide(self._sighting, self.identity, now, self.times)
        if self._renewed is not None and self.holder not in ("", self.identity):
            raise self._lost(f"{self.holder} has taken the Lease {self._label}.")
        if step is LeaseStep.WAIT:
            return False
        record = None if self._sighting is None else self._sighting.record
        spec = lease.spec(record, self.identity, self.clock(), self.times)
        if found is None:
            about = {"name": self.name, "namespace": self.namespace}
            made: Manifest = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": about, "spec": spec}
            self._own = await self.server.create(made)
        else:
            self._own = await self.server.replace({**found, "spec": spec})
        self._renewed = now
        self.holder = self.identity
        return True

    def _lost(self, why: str) -> LeadershipLost:
        self._renewed = self._own = None
        return LeadershipLost(why, "This operator begins anew, and waits until it leads again.")

    def _see_holder(self, holder: str) -> None:
        if holder != self.holder and holder not in ("", self.identity):
            logger.info("%s leads by the Lease %s; this operator, %s, waits", holder, self._label, self.identity)
        self.holder = holder

    def _note(self, problem: str) -> None:
        if problem and problem != self.problem:
            logger.warning("the Lease %s can't be read or renewed: %s", self._label, problem)
        self.problem = problem
