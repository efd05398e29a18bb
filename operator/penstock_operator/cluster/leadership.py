"""One operator of several leads: it holds a Lease, renews it, waits again when it can't, and gives it back at its end.

The rules are in `plans.lease`. Requests for the Lease go over a connection of their own, in a thread of their own, so
that they do not wait behind the operator's other work. A new attempt begins every two seconds beside those that are not
answered yet, so the Lease is kept although the API server takes seconds for each answer. Source:
docs/decisions/106-one-operator-leads.md, docs/decisions/129-the-process-goes-on.md,
docs/decisions/141-renewals-side-by-side.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol, TypeVar

from penstock_api.failure import Failure
from penstock_operator.cluster.api_server import API_RESOURCES, ApiResource, Conflict, Forbidden, KubeError
from penstock_operator.cluster.server_errors import NOT_FOUND
from penstock_operator.cluster.versions import Version, is_older, version_of
from penstock_operator.manifest import Manifest
from penstock_operator.plans import lease
from penstock_operator.plans.lease import LeaseStep, LeaseTimes, Sighting

__all__ = ["Leadership", "LeadershipLost", "LeaseServer"]

logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")

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

    async def replace_held(self, manifest: Manifest, holder: str) -> Manifest:
        """Replace the spec of a Lease, whatever its resource version; Conflict if it does not name this holder."""
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
    _claim: Manifest | None = None
    """The Lease as this operator wrote it last, answered or not; None if it has to be read first."""
    _written: Version = field(default_factory=Version)
    """The state of the Lease that the last write which was answered has made."""
    _renewed: float | None = None
    """When the newest renewal that succeeded was sent."""
    _next: float = 0.0
    """When the next attempt begins."""
    _under_way: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    """An attempt has ended."""
    _failure: BaseException | None = None
    """Why an attempt ended after which there is no other."""

    def leads(self) -> bool:
        """Whether this operator may write now."""
        return lease.may_write(self._renewed, self.monotonic(), self.times)

    async def acquire(self) -> None:
        """Wait until this operator leads."""
        while not self.leads():
            await self._go_on(self.times.retry_period * (1 + _SPREAD * self.spread()))
        logger.info("this operator, %s, leads: it holds the Lease %s", self.identity, self._label)

    async def keep(self) -> None:
        """Renew the Lease again and again.

        Raises:
            LeadershipLost: it could not be renewed in time, or another operator has it; `acquire` waits for it again.
        """
        while self.leads():
            await self._go_on(self.times.retry_period)
        stood_still = self.monotonic() >= self._next + self.times.retry_period
        why = self.problem or ("the process stood still" if stood_still else "no answer came in time")
        raise self._lost(f"The Lease {self._label} could not be renewed for {self.times.renew_deadline:.0f} s: {why}.")

    async def release(self) -> None:
        """Give the Lease back, if this operator leads; never raises. Nothing may be written afterwards."""
        under_way = [*self._under_way]
        for attempt in under_way:
            attempt.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        claim, leads, self._renewed = self._claim, self.leads(), None
        if claim is None or not leads:
            return
        free = {**claim, "spec": lease.vacant(lease.read(claim), self.clock())}
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self.server.replace_held(free, self.identity)
        except (KubeError, TimeoutError) as error:
            logger.warning("the Lease %s was not released, another operator takes it later: %r", self._label, error)

    @property
    def _label(self) -> str:
        return f"{self.namespace}/{self.name}"

    async def _go_on(self, pause: float) -> None:
        """Begin an attempt if one is due, and wait until one ends, or the next one or the end of the lease is due.
        `pause`: seconds between the beginnings of two attempts.
        """
        now = self.monotonic()
        if now >= self._next:
            self._next = now + pause
            attempt = asyncio.get_running_loop().create_task(self._attempt())
            self._under_way.add(attempt)
            attempt.add_done_callback(self._note_end)
        until = self._next
        if self._renewed is not None and self.leads():
            until = min(until, self._renewed + self.times.renew_deadline)
        with suppress(TimeoutError):
            async with asyncio.timeout(until - now):
                await self._ended.wait()
        self._ended.clear()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _note_end(self, attempt: asyncio.Task[None]) -> None:
        self._under_way.discard(attempt)
        self._ended.set()
        if not attempt.cancelled() and attempt.exception() is not None:
            self._failure = attempt.exception()

    async def _attempt(self) -> None:
        """Take or renew the Lease if that is possible."""
        began = self.monotonic()
        try:
            if self._claim is None or not await self._renew(self._claim):
                await self._read_and_take()
        except (KubeError, TimeoutError) as error:
            if isinstance(error, KubeError) and error.retry_after_seconds:
                self._next = max(self._next, self.monotonic() + error.retry_after_seconds)
            if self._renewed is None or began > self._renewed:
                self._note(str(error) or f"no answer within {self.times.renew_deadline:.0f} s")
        else:
            self._note("")

    async def _renew(self, claim: Manifest) -> bool:
        """Renew the Lease without reading it; False if it may be another's, or is gone."""
        sent = self.monotonic()
        spec = lease.spec(lease.read(claim), self.identity, self.clock(), self.times)
        try:
            written = await self._answer(self.server.replace_held({**claim, "spec": spec}, self.identity))
        except (Conflict, Forbidden):
            return False
        except KubeError as error:
            if error.status == NOT_FOUND:
                return False
            raise
        self._note_renewal(written, sent)
        return True

    async def _read_and_take(self) -> None:
        found = await self._answer(self.server.get(API_RESOURCES["Lease"], self.namespace, self.name))
        now = self.monotonic()
        if found is not None and is_older(version_of(found), self._written):
            return  # A write of this operator was later, and was answered sooner.
        self._sighting = None if found is None else lease.sight(self._sighting, lease.read(found), now)
        self._see_holder("" if self._sighting is None else self._sighting.record.holder)
        step = lease.decide(self._sighting, self.identity, now, self.times)
        if self._renewed is not None and self.holder not in ("", self.identity):
            raise self._lost(f"{self.holder} has taken the Lease {self._label}.")
        if step is LeaseStep.WAIT:
            self._claim = None
            return
        record = None if self._sighting is None else self._sighting.record
        spec = lease.spec(record, self.identity, self.clock(), self.times)
        about = {"name": self.name, "namespace": self.namespace}
        made: Manifest = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": about, "spec": spec}
        claim = made if found is None else {**found, "spec": spec}
        # The attempts that begin before this one is answered renew what it writes.
        self._claim = self._claim or claim
        write = self.server.create if found is None else self.server.replace
        try:
            written = await self._answer(write(claim))
        except Conflict:
            if self._claim is not claim:
                return  # Another attempt of this operator was faster.
            self._claim = None
            raise
        self._note_renewal(written, now)

    async def _answer(self, request: Awaitable[AnswerT]) -> AnswerT:
        """The answer to a request; TimeoutError when it would be worth nothing any more."""
        async with asyncio.timeout(self.times.renew_deadline):
            return await request

    def _note_renewal(self, written: Manifest, sent: float) -> None:
        self._renewed = sent if self._renewed is None else max(self._renewed, sent)
        self._claim, self._written, self.holder = written, version_of(written), self.identity

    def _lost(self, why: str) -> LeadershipLost:
        for attempt in self._under_way:
            attempt.cancel()
        self._renewed = self._claim = None
        self._written = Version()
        return LeadershipLost(why, "This operator begins anew, and waits until it leads again.")

    def _see_holder(self, holder: str) -> None:
        if holder != self.holder and holder not in ("", self.identity):
            logger.info("%s leads by the Lease %s; this operator, %s, waits", holder, self._label, self.identity)
        self.holder = holder

    def _note(self, problem: str) -> None:
        if problem and problem != self.problem:
            logger.warning("the Lease %s can't be read or renewed: %s", self._label, problem)
        self.problem = problem
