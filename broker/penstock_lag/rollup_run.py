"""What a run does about rollups: the hours that are due, then the days.

Spark reads the segments of an hour once; a day is merged from its hours, one after another, so that two of them are in
memory at a time. Source: docs/reference/lag-job.md, "Rollups".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from pyspark.sql import SparkSession

from penstock_api.rollup_format import RollupAbout, RollupInfo, RollupName
from penstock_lag.hour_rollup import compute_rollup
from penstock_lag.rollup_files import BadRollup, read_about, read_rollup, write_rollup
from penstock_lag.rollup_plan import Bounds, Brokers, DueHour, Stored, due_days, due_hours, shortfalls
from penstock_lag.rollup_stores import RollupStore, RollupsUnavailable
from penstock_lag.transforms.rows import LedgerRows
from penstock_lag.windows import Plan, PresentBroker
from penstock_lag_rules.rollups import Rollup, merged

__all__ = ["RollupPlace", "RowsOf", "merge_days", "roll_up", "roll_up_hours"]

log = logging.getLogger(__name__)

RowsOf = Callable[[Plan], AbstractContextManager[LedgerRows]]
"""Gives the rows of planned segments while the context is open."""


@dataclass(frozen=True, slots=True)
class RollupPlace:
    """Whose rollups they are, and where they are kept."""

    broker: str
    namespace: str
    store: RollupStore


def roll_up(
    spark: SparkSession, brokers: Brokers, place: RollupPlace, rows_of: RowsOf, grace_ms: int, bounds: Bounds
) -> list[RollupName]:
    """Write what is due, and say what was written. Raises RollupsUnavailable, or what reading segments raises."""
    stored = place.store.stored()
    if stored is None:
        log.info("the first observer keeps no rollups for this token, or is of an earlier release: none are written")
        return []
    written = roll_up_hours(spark, due_hours(brokers, stored, grace_ms, bounds), place, rows_of)
    newest_ms = max((s.last_ms for b in brokers if isinstance(b, PresentBroker) for s in b.listing.segments), default=0)
    return list(written) + list(merge_days({**stored, **written}, newest_ms, place))


def roll_up_hours(
    spark: SparkSession, due: Iterable[DueHour], place: RollupPlace, rows_of: RowsOf
) -> dict[RollupName, RollupInfo]:
    """Compute and write these hours."""
    written: dict[RollupName, RollupInfo] = {}
    for hour in due:
        with rows_of(hour.plan) as rows:
            made = compute_rollup(spark, rows, hour.name.start_ms, hour.name.end_ms - 1)
        missing = shortfalls(hour.name, hour.plan, made, place.broker)
        if hour.keeps:
            made = merged([_read(place.store, hour.name), made])
        written[hour.name] = _write(place, hour.name, made, 1, missing)
        log.info("rolled up %s: %d lives, from %d rows", hour.name, len(made.lives), hour.plan.rows)
    return written


def merge_days(stored: Stored, newest_ms: int, place: RollupPlace) -> dict[RollupName, RollupInfo]:
    """Merge and write the days that are due."""
    written: dict[RollupName, RollupInfo] = {}
    for day, hours in due_days(stored, newest_ms):
        made = Rollup()
        missing: list[str] = []
        for hour in hours:
            content = place.store.get(hour)
            made = merged([made, _parsed(hour, content)])
            missing += [f"{hour}: {sentence}"[:1024] for sentence in read_about(content).missing]
        if len(hours) < 24:
            missing.insert(0, f"{24 - len(hours)} of 24 hours have no rows")
        written[day] = _write(place, day, made, len(hours), missing)
        log.info("merged %s from %d hours: %d lives", day, len(hours), len(made.lives))
    return written


def _write(place: RollupPlace, name: RollupName, made: Rollup, hours: int, missing: Sequence[str]) -> RollupInfo:
    ordinals = tuple(sorted({run.ordinal for run in made.runs}))
    about = RollupAbout(
        broker=place.broker,
        namespace=place.namespace,
        name=str(name),
        ordinals=ordinals,
        hours=hours,
        missing=tuple(missing),
    )
    content = write_rollup(made, about)
    place.store.put(name, content)
    rows = len(made.runs) + len(made.lives)
    return RollupInfo(name=str(name), bytes=len(content), rows=rows, ordinals=ordinals, hours=hours)


def _read(store: RollupStore, name: RollupName) -> Rollup:
    return _parsed(name, store.get(name))


def _parsed(name: RollupName, content: bytes) -> Rollup:
    try:
        return read_rollup(content)
    except BadRollup as error:
        raise RollupsUnavailable(f"the rollup {name} can't be used: {error}") from error
