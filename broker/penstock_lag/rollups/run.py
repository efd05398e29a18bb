"""Rollups of one Broker as they are written: an hour from what was computed, a day from its hours.

A day is merged from its hours one after another, so that two of them are in memory at a time. Source:
docs/reference/lag-job.md, "Rollups".
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from penstock_api.rollup_format import RollupAbout, RollupInfo, RollupName
from penstock_lag.rollups.files import BadRollup, read_about, read_rollup, write_rollup
from penstock_lag.rollups.plan import DueHour, Stored, due_days, shortfalls
from penstock_lag.rollups.stores import RollupStore, RollupsUnavailable
from penstock_lag_rules.rollups import Rollup, merged

__all__ = ["RollupPlace", "keep_days", "keep_hour"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RollupPlace:
    """Whose rollups they are, and where they are kept."""

    broker: str
    namespace: str
    store: RollupStore


def keep_hour(place: RollupPlace, hour: DueHour, made: Rollup) -> RollupInfo:
    """Write the rollup of an hour. Raises RollupsUnavailable."""
    missing = shortfalls(hour.name, hour.plan, made, place.broker)
    whole = merged([_others(_parsed(hour.name, place.store.get(hour.name)), hour), made]) if hour.keeps else made
    log.info("%s/%s: rolled up %s: %d lives", place.namespace, place.broker, hour.name, len(whole.lives))
    return _write(place, hour.name, whole, 1, missing)


def _others(stored: Rollup, hour: DueHour) -> Rollup:
    """The rows of brokers that were not read now."""
    read = {chosen.ordinal for chosen in hour.plan.segments}
    return Rollup(
        tuple(row for row in stored.runs if row.ordinal not in read),
        tuple(row for row in stored.lives if row.ordinal not in read),
    )


def keep_days(
    place: RollupPlace, stored: Stored, newest_ms: int, hours_written: Collection[RollupName]
) -> dict[RollupName, RollupInfo]:
    """Merge and write the days that are due after these hours were written. Raises RollupsUnavailable."""
    written: dict[RollupName, RollupInfo] = {}
    for day, hours in due_days(stored, newest_ms, hours_written):
        made = Rollup()
        missing: list[str] = []
        for hour in hours:
            content = place.store.get(hour)
            made = merged([made, _parsed(hour, content)])
            missing += [f"{hour}: {sentence}"[:1024] for sentence in read_about(content).missing]
        if len(hours) < 24:
            missing.insert(0, f"{24 - len(hours)} of 24 hours have no rows")
        log.info("%s/%s: merged %s from %d hours", place.namespace, place.broker, day, len(hours))
        written[day] = _write(place, day, made, len(hours), missing)
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


def _parsed(name: RollupName, content: bytes) -> Rollup:
    try:
        return read_rollup(content)
    except BadRollup as error:
        raise RollupsUnavailable(f"the rollup {name} can't be used: {error}") from error
