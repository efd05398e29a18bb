"""The operator's one lag job: its Secret and its schedule follow from all Brokers with the backend Auto.

Reconciles of Brokers offer what a run must know of each (`SharedLag`). `SharedLagJob` writes Secret and schedule, each
only if it differs from what is there, and keeps what it has found for the condition LagAnalysisScheduled. A Broker that
has not been reconciled since the operator started, or that is paused, stays in the Secret as it was. Source:
docs/decisions/071-one-lag-job.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, cast

from penstock_operator.children import shared_lag_job
from penstock_operator.children.lag_schedules import KINDS, must_be_recreated, suspended
from penstock_operator.children.metadata import is_ours
from penstock_operator.children.shared_lag_job import BrokerName, Member
from penstock_operator.cluster.api_server import API_RESOURCES, ApiServer, KubeError
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.lag_options import LagJobOptions
from penstock_operator.manifest import Manifest, dig, text_at
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.lag_schedule import ScheduleView, SharedJobView, has_active_run, judge_schedule
from penstock_operator.plans.lag_service import is_member
from penstock_operator.tasks import end_if_cancelled

__all__ = ["SharedLag", "SharedLagJob"]

logger = logging.getLogger(__name__)

_GATHER_SECONDS: Final = 1.0
"""After a change it waits so long for more: at a start every Broker is reconciled within a short time."""
_PERIOD_SECONDS: Final = 60.0
"""Between two looks at the job while nothing changes: someone may have changed it, or a run may be stuck."""
_SOON_SECONDS: Final = 10.0
"""The same while it is not as it should be."""
_FAILURES: Final = 2
"""After so many failed attempts in a row the Brokers' conditions say so; one alone means nothing."""


@dataclass(slots=True)
class SharedLag:
    """What Brokers have offered, and what was found of the job."""

    view: SharedJobView = field(default_factory=SharedJobView)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the job may have to be written."""
    _offers: dict[BrokerName, tuple[str, Member]] = field(default_factory=dict[BrokerName, tuple[str, Member]])
    """With the uid of the Broker that made the offer."""

    def offer(self, uid: str, member: Member) -> None:
        """What a run must know of a Broker that was just reconciled."""
        if self._offers.get(member.broker) != (uid, member):
            self._offers[member.broker] = (uid, member)
            self.changed.set()

    def withdraw(self, name: BrokerName) -> None:
        """A Broker is gone, or not to be analysed by this job."""
        if self._offers.pop(name, None) is not None or name in self.view.members:
            self.changed.set()

    def offered(self, name: BrokerName, uid: str) -> Member | None:
        """What a Broker has offered, None if it has not."""
        found = self._offers.get(name)
        return found[1] if found is not None and found[0] == uid else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The objects as they were found."""

    owner: str | None
    secret: Manifest | None
    schedules: Mapping[str, Manifest | None]
    """By kind."""
    former: Sequence[Manifest]
    """Schedules, and last the Secret, that the operator of an earlier chart made under another name."""
    last_run: Manifest | None
    spark_installed: bool


@dataclass(frozen=True, slots=True)
class _Told:
    """What the Brokers' conditions were made of."""

    said: StatusCondition | None = None
    problem: tuple[ConditionReason, str] | None = None
    members: frozenset[BrokerName] = frozenset()
    left_out: frozenset[BrokerName] = frozenset()


@dataclass(slots=True)
class SharedLagJob:
    """Writes the job."""

    kube: ApiServer
    cache: Cache
    options: LagJobOptions
    lag_image: str
    shared: SharedLag
    clock: Callable[[], datetime]
    enqueue: Callable[[ResourceKey], None]
    """Put a Broker into the work queue, because its condition is to say something else."""
    left: Callable[[], Iterable[ResourceKey]] = tuple[ResourceKey, ...]
    """The Brokers that another operator manages: its job analyses them."""
    _failures: int = 0
    _said: StatusCondition | None = None
    """What the condition of the Brokers in the job says."""
    _told: _Told = field(default_factory=_Told)

    async def run(self, listed: asyncio.Event) -> None:
        """Keep the job as it should be, for ever; begins when all Brokers have been listed."""
        await listed.wait()
        while True:
            await self.look()
            end_if_cancelled()
            with suppress(TimeoutError):
                async with asyncio.timeout(_PERIOD_SECONDS if self._is_well() else _SOON_SECONDS):
                    await self.shared.changed.wait()
            await asyncio.sleep(_GATHER_SECONDS)

    async def look(self) -> None:
        """Look at the job once, write what is different, and tell the Brokers whose condition depends on it."""
        self.shared.changed.clear()
        try:
            self.shared.view = await self._write(await self._find())
            self._failures = 0
        except KubeError as error:
            self._failures += 1
            logger.warning("the lag job %s/%s can't be written: %s", self.options.namespace, self.options.name, error)
            if self._failures >= _FAILURES:
                problem = f"The operator's lag job can't be written: {error}"
                self.shared.view = replace(self.shared.view, problem=(ConditionReason.NOT_WRITTEN, problem))
        self._tell()

    def _is_well(self) -> bool:
        view, said = self.shared.view, self._said
        waits = said is not None and bool(view.members) and said.status is not ConditionStatus.TRUE
        return self._failures == 0 and view.problem is None and not waits

    async def _find(self) -> _Found:
        options, get = self.options, self.kube.get
        spark_installed = await self.kube.serves(API_RESOURCES["ScheduledSparkApplication"])
        kinds = KINDS if spark_installed else KINDS[1:]
        secret, *schedules = await asyncio.gather(
            *(get(API_RESOURCES[kind], options.namespace, options.name) for kind in ("Secret", *kinds))
        )
        former: list[Manifest | None] = []
        if options.former_name not in ("", options.name):
            former = await asyncio.gather(
                *(get(API_RESOURCES[kind], options.namespace, options.former_name) for kind in (*kinds, "Secret"))
            )
        deployment = None
        if options.deployment:
            deployment = await get(API_RESOURCES["Deployment"], options.namespace, options.deployment)
        found: dict[str, Manifest | None] = dict(zip(kinds, schedules, strict=True))
        run = text_at(found.get(KINDS[0]), "status", "lastRunName")
        last_run = await get(API_RESOURCES["SparkApplication"], options.namespace, run) if run else None
        owner = text_at(deployment, "metadata", "uid")
        return _Found(
            owner=owner,
            former=[it for it in former if it is not None and owner is not None and is_ours(it, owner)],
            secret=secret,
            schedules=found,
            last_run=last_run,
            spark_installed=spark_installed,
        )

    async def _write(self, found: _Found) -> SharedJobView:
        """Write what is different, and return the job as it is then."""
        taken = self._taken(found)
        if taken:
            message = (
                f"{taken} exists and is not part of the operator's lag job. If an earlier operator has left it, the "
                "cluster deletes it soon; else delete or rename it."
            )
            return SharedJobView(problem=(ConditionReason.NAME_TAKEN, message))
        members = self._members(found.secret or next((it for it in found.former if it["kind"] == "Secret"), None))
        data, left_out = shared_lag_job.secret_data(members)
        kind = self._kind(found.spark_installed)
        if members or found.secret is not None:
            await self._apply_if_different(shared_lag_job.secret(self.options, found.owner, data), found.secret)
        for left in found.former:  # or both jobs would run, and the tokens of Brokers that leave would stay
            logger.info(
                "%s %s is deleted: the lag job is named %s now",
                left["kind"],
                self.options.former_name,
                self.options.name,
            )
            await self.kube.delete(left)
        may_run = bool(members) and kind is not None and (kind in found.schedules)
        schedules = {each: observed for each, observed in found.schedules.items() if observed is not None}
        if may_run and kind is not None and (schedules.get(kind) is not None or not self._runs_besides(kind, found)):
            wanted = shared_lag_job.schedule(self.options, found.owner, self.lag_image, kind)
            schedules[kind] = await self._apply_schedule(wanted, found.schedules[kind])
        for other, observed in found.schedules.items():
            if observed is not None and not (may_run and other == kind):
                await self._retire(self._schedule_view(other, found, observed), observed)
        seen = None if kind is None else self._schedule_view(kind, found, schedules.get(kind))
        names = frozenset(member.broker for member in members)
        return SharedJobView(schedule=seen, members=names - left_out, left_out=left_out)

    def _taken(self, found: _Found) -> str:
        """An object of the job's name that is not the job's, empty if there is none."""
        for kind, observed in {"Secret": found.secret, **found.schedules}.items():
            if observed is not None and not is_ours(observed, found.owner or ""):
                return f"{kind} {self.options.namespace}/{self.options.name}"
        return ""

    def _kind(self, spark_installed: bool) -> str | None:
        """What the schedule is to be, None if there is to be none."""
        match self.options.backend:
            case "Auto":
                return "ScheduledSparkApplication" if spark_installed else "CronJob"
            case "None":
                return None
            case chosen:
                return chosen

    def _members(self, secret: Manifest | None) -> list[Member]:
        """The Brokers to analyse, the oldest first: if the Secret is full, it is the newest that are left out."""
        if self.options.backend == "None":
            return []
        before = shared_lag_job.members_of(secret)
        found: list[tuple[str, BrokerName, Member]] = []
        left = frozenset(self.left())
        for key in self.cache.all("Broker"):
            entry = self.cache.get(key)
            name = BrokerName(key.namespace, key.name)
            broker = self.cache.broker(*name)
            if entry is None or key in left or (broker is not None and not is_member(broker)):
                continue
            uid = text_at(entry.manifest, "metadata", "uid") or ""
            member = self.shared.offered(name, uid) or before.get(name)
            if member is not None:
                made = text_at(entry.manifest, "metadata", "creationTimestamp") or ""
                found.append((made, name, member))
        return [member for _, _, member in sorted(found, key=lambda each: each[:2])]

    async def _apply_if_different(self, wanted: Manifest, observed: Manifest | None) -> Manifest:
        if observed is not None and _covers(observed, wanted) and _same_files(observed, wanted):
            return observed
        return await self.kube.apply(wanted)

    async def _apply_schedule(self, wanted: Manifest, observed: Manifest | None) -> Manifest:
        if observed is not None and must_be_recreated(wanted, observed):
            logger.info("%s %s is deleted and created again", wanted["kind"], self.options.name)
            await self.kube.delete(observed)
            observed = None
        return await self._apply_if_different(wanted, observed)

    def _runs_besides(self, kind: str, found: _Found) -> bool:
        """Whether the other kind of schedule has a run under way: the first run of a new schedule waits for its end."""
        others = (each for each, observed in found.schedules.items() if each != kind and observed is not None)
        return any(
            has_active_run(self._schedule_view(each, found, found.schedules[each]), self.clock()) for each in others
        )

    async def _retire(self, view: ScheduleView, observed: Manifest) -> None:
        """Delete a schedule that is not wanted any more, and its runs with it; a run under way may end first."""
        if not has_active_run(view, self.clock()):
            await self.kube.delete(observed)
        elif (last := suspended(observed)) is not None:
            await self.kube.apply(last)

    def _schedule_view(self, kind: str, found: _Found, observed: Manifest | None) -> ScheduleView:
        return ScheduleView(
            kind=kind,
            namespace=self.options.namespace,
            name=self.options.name,
            cron=shared_lag_job.cron(self.options),
            interval_minutes=self.options.interval_minutes,
            spark_installed=found.spark_installed,
            observed=observed,
            last_run=found.last_run if kind == "ScheduledSparkApplication" else None,
        )

    def _tell(self) -> None:
        """Reconcile the Brokers whose condition depends on the job, if it has another thing to say to them."""
        view = self.shared.view
        self._said = None if view.schedule is None else judge_schedule(view.schedule, self.clock())
        told, before = _Told(self._said, view.problem, view.members, view.left_out), self._told
        self._told = told
        is_for_all = (told.said, told.problem) != (before.said, before.problem)
        moved = (told.members ^ before.members) | (told.left_out ^ before.left_out)
        for key in self.cache.all("Broker"):
            broker = self.cache.broker(key.namespace, key.name)
            is_told = is_for_all or BrokerName(key.namespace, key.name) in moved
            if is_told and broker is not None and broker.spec.lag_analysis.backend == "Auto":
                self.enqueue(key)


def _covers(observed: object, wanted: object) -> bool:
    """Whether everything that is wanted is there; what the API server has added does not count."""
    if isinstance(wanted, Mapping):
        fields = cast(Mapping[str, object], wanted)
        return isinstance(observed, Mapping) and all(
            _covers(dig(cast(object, observed), key), it) for key, it in fields.items()
        )
    if isinstance(wanted, list):
        items, found = cast(list[object], wanted), cast(list[object], observed)
        return isinstance(observed, list) and len(found) == len(items) and all(map(_covers, found, items))
    return observed == wanted


def _same_files(observed: Manifest, wanted: Manifest) -> bool:
    """Whether a Secret holds no file too many: the token of a Broker that left must not stay."""
    return wanted["kind"] != "Secret" or dig(observed, "data") == wanted["data"]
