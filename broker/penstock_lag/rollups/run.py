"""Rollups of one Broker as they are written: an hour from what was computed, a day from its hours.

A day is merged from its hours one after another, so that two of them are in memory at a time. An hour that can't be
read is missing in what is made of it, which says so; it holds up nothing else. Source: docs/reference/lag-job.md,
"Rollups".
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from penstock_api.rollup_format import RollupAbout, RollupInfo, RollupName
from penstock_lag.rollups.files import BadRollup, read_about, read_rollup, write_rollup
from penstock_lag.rollups.plan import DueHour, Stored, due_days, shortfalls
from penstock_lag.rollups.stores import RollupStore
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
    missing = [*shortfalls(hour.name, hour.plan, made, place.broker)]
    whole = made
    if hour.keeps:
        try:
            content = place.store.get(hour.name)
            whole = merged([_others(read_rollup(content), hour), made])
            missing += _of_others(read_about(content).missing, hour, place.broker)
        except BadRollup as error:  # the brokers that are missing then are due again, as far as the ledger has them
            missing.append(f"the other brokers are missing, because their rollup could not be read: {error}"[:1024])
    log.info("%s/%s: rolled up %s: %d lives", place.namespace, place.broker, hour.name, len(whole.lives))
    return _write(place, hour.name, whole, 1, missing)


def _others(stored: Rollup, hour: DueHour) -> Rollup:
    """The rows of brokers that were not read now."""
    read = {chosen.ordinal for chosen in hour.plan.segments}
    return Rollup(
        tuple(row for row in stored.runs if row.ordinal not in read),
        tuple(row for row in stored.lives if row.ordinal not in read),
    )


def _of_others(missing: Sequence[str], hour: DueHour, broker: str) -> list[str]:
    """What is still missing of brokers that were not read now."""
    read = tuple(f"{broker}-{chosen.ordinal}: " for chosen in hour.plan.segments)
    asked = tuple(f"{broker}-{ordinal}: " for ordinal, _ in hour.plan.missing)
    return [sentence for sentence in missing if not sentence.startswith((*read, *asked))]


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
            try:
                made = merged([made, read_rollup(content)])
                missing += [f"{hour}: {sentence}"[:1024] for sentence in read_about(content).missing]
            except BadRollup as error:
                missing.append(f"{hour} is missing, because it could not be read: {error}"[:1024])
                log.error("%s/%s: %s is merged without %s: %s", place.namespace, place.broker, day, hour, error)
        if len(hours) < 24:
            missing.insert(0, f"{24 - len(hours)} of 24 hours have no rollup")
        log.info("%s/%s: merged %s from %d hours", place.namespace, place.broker, day, len(hours))
        # What could not be read counts as merged, or each run would merge the day again; it is due if it is made again.
        ordinals = {ordinal for hour in hours if hour in stored for ordinal in stored[hour].ordinals}
        written[day] = _write(place, day, made, len(hours), missing, ordinals)
    return written


def _write(
    place: RollupPlace,
    name: RollupName,
    made: Rollup,
    hours: int,
    missing: Sequence[str],
    counted: Collection[int] = (),
) -> RollupInfo:
    ordinals = tuple(sorted({*counted, *(run.ordinal for run in made.runs)}))
    clock_set = tuple(sorted({run.ordinal for run in made.runs if run.clock_steps}))
    about = RollupAbout(
        broker=place.broker,
        namespace=place.namespace,
        name=str(name),
        ordinals=ordinals,
        hours=hours,
        missing=tuple(missing),
        clock_set=clock_set,
    )
    content = write_rollup(made, about)
    place.store.put(name, content)
    rows = len(made.runs) + len(made.lives)
    return RollupInfo(
        name=str(name), bytes=len(content), rows=rows, ordinals=ordinals, hours=hours, clock_set=clock_set
    )
