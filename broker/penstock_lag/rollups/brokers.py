"""The rollups of all Brokers of a run, after their results.

Brokers whose same hour is due are computed together, as their windows are. A Broker that fails does not keep the others
from their rollups. Source: docs/reference/lag-job.md, "Rollups".
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from penstock_api.failure import Failure
from penstock_api.rollup_format import RollupInfo, RollupName
from penstock_lag.group_analysis import Failed, copies_of, served_content, served_of, without_what_is_damaged
from penstock_lag.groups import Member, grouped, numbered
from penstock_lag.ledger.damage import ContentOf
from penstock_lag.ledger.folders import LedgerFolder, content_in, damaged_in, files_of, list_ledgers
from penstock_lag.ledger.rows import LedgerRows
from penstock_lag.ledger.segment_files import native_rows, room_for_copies, served_rows
from penstock_lag.ledger.served_segments import list_segments
from penstock_lag.ledger.source import read_ledger
from penstock_lag.ledger.windows import Plan, PresentBroker, without_unlisted
from penstock_lag.rollups.hour import compute_rollup
from penstock_lag.rollups.plan import Bounds, Brokers, DueHour, due_hours, newest_row_ms
from penstock_lag.rollups.run import RollupPlace, keep_days, keep_hour
from penstock_lag.rollups.stores import FolderRollups, ObserverRollups, RollupStore, RollupsUnavailable
from penstock_lag.session import is_local, tune
from penstock_lag.settings import LagJobSettings
from penstock_lag.spark_failures import OutOfMemory, explained
from penstock_lag.targets import Target, observers_of
from penstock_lag_rules.rollups import Rollup

__all__ = ["Work", "place_of", "roll_up", "roll_up_targets", "work_of"]

AT_A_TIME: Final = 32
GROUP_ROWS: Final = 4_000_000
"""How many rows of an hour are computed together at most, unless one Broker has more."""
MOST_FAILED: Final = 2
"""Hours of a Broker that can't be computed in one run: the others may be sound, or its observer may be away."""
CURE: Final = "The result of the run is not affected. The next run tries the rollups again."

Made = tuple[Plan, Rollup]
"""The rollup of an hour, and what was read for it: less than was planned if a segment is damaged."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done for one Broker."""

    target: Target
    place: RollupPlace
    brokers: Brokers
    stored: dict[RollupName, RollupInfo]
    """Grows with what is written."""
    due: tuple[DueHour, ...]
    folders: tuple[LedgerFolder, ...] = ()
    """Where the segments are; none: at the observers."""

    @property
    def newest_ms(self) -> int:
        """Time of the last row of any broker, by the clock as it is now."""
        return max((newest_row_ms(broker) for broker in self.brokers if isinstance(broker, PresentBroker)), default=0)


def roll_up_targets(
    spark: SparkSession, targets: Sequence[Target], settings: LagJobSettings, bounds: Bounds | None = None
) -> list[Failed]:
    """Roll up what is due of each Broker, if the run keeps rollups. Returns the Brokers of which that failed."""
    if settings.rollups is None and not settings.publish:
        return []
    found: list[Work] = []
    failed: list[Failed] = []
    with ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="rollups") as pool:
        one = partial(_tried_work, spark, settings=settings, bounds=bounds or Bounds())
        for target, work in zip(targets, pool.map(one, targets), strict=True):
            if isinstance(work, Failure):
                failed.append((target, work))
            elif work is not None:
                found.append(work)
    return failed + roll_up(spark, found, settings.patience_seconds)


def roll_up(spark: SparkSession, works: Sequence[Work], patience_seconds: float) -> list[Failed]:
    """Compute and write the due hours, then the days. Returns the Brokers of which that failed. Raises OutOfMemory."""
    failed: dict[Target, list[Failure]] = {}
    unstored: set[Target] = set()
    for name in sorted({hour.name for work in works for hour in work.due}):
        due = {
            work.target: (work, hour)
            for work in works
            for hour in work.due
            if hour.name == name and work.target not in unstored and len(failed.get(work.target, ())) < MOST_FAILED
        }
        members = numbered((target, hour.plan) for target, (_, hour) in due.items())
        for group in grouped(members, GROUP_ROWS, _room(spark)):
            made = _computed(spark, group, {target: work for target, (work, _) in due.items()}, patience_seconds)
            for member, rollup in zip(group, made, strict=True):
                failure = rollup if isinstance(rollup, Failure) else _kept(*due[member.target], *rollup)
                if failure is not None:
                    failed.setdefault(member.target, []).append(failure)
                if failure is not None and not isinstance(rollup, Failure):
                    unstored.add(member.target)
    for work in works:
        failure = None if work.target in unstored else _days_kept(work)
        if failure is not None:
            failed.setdefault(work.target, []).append(failure)
    return [(target, failures[0]) for target, failures in failed.items()]


def place_of(target: Target, settings: LagJobSettings) -> RollupPlace:
    """Where the rollups of a Broker are kept. Raises Misuse if the token can't be read."""
    store: RollupStore
    if settings.rollups is None:
        observer = observers_of(target, settings.patience_seconds)[0]
        store = ObserverRollups(observer, target.broker, target.namespace)
    else:
        of_many = settings.brokers_file is not None
        folder = settings.rollups / f"{target.namespace}.{target.broker}" if of_many else settings.rollups
        store = FolderRollups(folder, target.broker, target.namespace)
    return RollupPlace(target.broker, target.namespace, store)


def work_of(spark: SparkSession, target: Target, settings: LagJobSettings) -> Work | None:
    """What there is of a Broker, with nothing due yet; None if its observer keeps no rollups. Raises RollupsUnavailable
    or Failure.
    """
    place = place_of(target, settings)
    stored = place.store.stored()
    if stored is None:
        return None
    if target.ledgers:
        with explained(spark):
            folders = list_ledgers(spark, target.ledgers, target.broker, target.namespace)
        return Work(target, place, [folder.broker for folder in folders], stored, (), tuple(folders))
    observers = observers_of(target, settings.patience_seconds)
    return Work(target, place, list_segments(observers, target.broker, target.namespace), stored, ())


def _tried_work(
    spark: SparkSession, target: Target, *, settings: LagJobSettings, bounds: Bounds
) -> Work | Failure | None:
    try:
        work = work_of(spark, target, settings)
    except RollupsUnavailable as error:
        return _failure(target, error)
    except Failure as failure:
        return failure
    if work is None:
        return None
    _prune(work)
    return replace(work, due=tuple(due_hours(work.brokers, work.stored, target.stale_seconds * 1000, bounds)))


def _prune(work: Work) -> None:
    """An observer deletes old rollups itself. Here it is done before any is made, because the folder may be full."""
    store = work.place.store
    if isinstance(store, FolderRollups) and work.newest_ms:
        for name in store.prune(work.stored, work.newest_ms):
            work.stored.pop(name, None)


def _computed(
    spark: SparkSession, group: Sequence[Member], works: Mapping[Target, Work], patience_seconds: float
) -> list[Made | Failure]:
    """The hour of each, in their order. If that fails together, each half is tried on its own."""
    try:
        return list(_computed_together(spark, group, works, patience_seconds))
    except OutOfMemory:
        raise
    except Failure as failure:
        if len(group) == 1:
            return [_made_of_the_sound(spark, group[0], works, patience_seconds) or failure]
    half = len(group) // 2
    return [
        *_computed(spark, group[:half], works, patience_seconds),
        *_computed(spark, group[half:], works, patience_seconds),
    ]


def _made_of_the_sound(
    spark: SparkSession, member: Member, works: Mapping[Target, Work], patience_seconds: float
) -> Made | None:
    """The hour without its damaged segments; None if that is not what it failed of."""
    if not member.target.ledgers and is_local(spark):  # of copies the damaged ones are left out already
        return None

    def content_of(one: Member) -> ContentOf:
        if one.target.ledgers:
            return content_in(spark, works[one.target].folders)
        return served_content(one, patience_seconds)

    sound = without_what_is_damaged(member, content_of)
    try:
        return None if sound is None else _computed_together(spark, [sound], works, patience_seconds)[0]
    except OutOfMemory:
        raise
    except Failure:
        return None


def _computed_together(
    spark: SparkSession, group: Sequence[Member], works: Mapping[Target, Work], patience_seconds: float
) -> list[Made]:
    rows = sum(member.plan.rows for member in group)
    start_ms, end_ms = group[0].plan.start_ms, group[0].plan.end_ms
    with tempfile.TemporaryDirectory(prefix="penstock-rollup-") as scratch:
        group, read = _rows(spark, group, works, patience_seconds, Path(scratch))
        tune(spark, rows)
        with explained(spark, rows):
            made = compute_rollup(spark, read, start_ms, end_ms)
    return [(member.plan, _own(made, member)) for member in group]


def _rows(
    spark: SparkSession, group: Sequence[Member], works: Mapping[Target, Work], patience_seconds: float, scratch: Path
) -> tuple[Sequence[Member], LedgerRows]:
    """The rows, and the members without segments that are damaged."""
    if any(member.target.ledgers for member in group):  # then it is the only Broker of the run
        (member,) = group
        folders = works[member.target].folders
        group = [replace(member, plan=without_unlisted(member.plan, damaged_in(folders)))]
        return group, native_rows(spark, files_of(member.plan, folders))
    if not is_local(spark):
        segments = [segment for member in group for segment in served_of(member)]
        return group, served_rows(segments, partial(read_ledger, spark, patience_seconds=patience_seconds))
    copied = [copies_of(member, patience_seconds, scratch) for member in group]
    copies = [file for _, files in copied for file in files]
    return [member for member, _ in copied], native_rows(spark, copies, scratch)


def _own(made: Rollup, member: Member) -> Rollup:
    """What is of one Broker; its ordinals count from 0 again."""
    numbers = range(member.first, member.first + member.target.expected)
    return Rollup(
        tuple(replace(row, ordinal=row.ordinal - member.first) for row in made.runs if row.ordinal in numbers),
        tuple(replace(row, ordinal=row.ordinal - member.first) for row in made.lives if row.ordinal in numbers),
    )


def _kept(work: Work, hour: DueHour, read: Plan, made: Rollup) -> Failure | None:
    try:
        work.stored[hour.name] = keep_hour(work.place, replace(hour, plan=read), made)
    except RollupsUnavailable as error:
        return _failure(work.target, error)
    return None


def _days_kept(work: Work) -> Failure | None:
    try:
        hours = [hour.name for hour in work.due]
        work.stored.update(keep_days(work.place, work.stored, work.newest_ms, hours))
    except RollupsUnavailable as error:
        return _failure(work.target, error)
    return None


def _failure(target: Target, error: RollupsUnavailable) -> Failure:
    return Failure(f"the rollups of {target.name} are not complete: {error}.", CURE)


def _room(spark: SparkSession) -> int:
    return room_for_copies(Path(tempfile.gettempdir())) if is_local(spark) else 2**62
