"""`penstock lag --from T --to T`: compute the rollups of a range again from what is left of the ledger, and tell the
history of the range from all rollups that there are.

Source: docs/reference/lag-job.md, "History".
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from pyspark.sql import SparkSession

from penstock_api.failure import Failure, Misuse
from penstock_api.lag_history import LagHistory, PeriodHistory
from penstock_api.rollup_format import DAY_MS, Period, RollupInfo, RollupName
from penstock_lag.output_file import write_output
from penstock_lag.rollups.brokers import Work, roll_up, work_of
from penstock_lag.rollups.files import BadRollup, read_about, read_rollup
from penstock_lag.rollups.history_periods import period_history
from penstock_lag.rollups.history_table import as_history_table
from penstock_lag.rollups.plan import backfilled_hours
from penstock_lag.rollups.stores import RollupStore, RollupsUnavailable
from penstock_lag.session import Needs
from penstock_lag.settings import STDOUT, LagJobSettings
from penstock_lag.targets import Target
from penstock_lag_rules.entry import EPOCH, time_of
from penstock_lag_rules.rollups import Rollup

__all__ = ["backfill", "hand_out"]

Sessions = Callable[[Needs], AbstractContextManager[SparkSession]]

HOURS_UP_TO_MS: Final = 2 * DAY_MS
"""The history of a longer range is told by days."""
NO_ROLLUPS: Final = (
    "the first observer keeps no rollups for this token, or is of an earlier release.",
    "Give --rollups FOLDER, in which they are kept then.",
)


@dataclass(frozen=True, slots=True)
class Unwritten:
    """Rollups of a store, with those of this run in place of its own; nothing is written to it."""

    below: RollupStore
    made: dict[RollupName, bytes] = field(default_factory=dict[RollupName, bytes])

    def stored(self) -> dict[RollupName, RollupInfo] | None:
        """See RollupStore."""
        return self.below.stored()

    def get(self, name: RollupName) -> bytes:
        """See RollupStore."""
        return self.made[name] if name in self.made else self.below.get(name)

    def put(self, name: RollupName, content: bytes) -> None:
        """See RollupStore."""
        self.made[name] = content


def backfill(
    settings: LagJobSettings,
    target: Target,
    sessions: Sessions,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> LagHistory:
    """Make the rollups of the range, and tell its history. Raises Misuse for a range that can't be, Failure if there is
    nothing, or if something could not be read or written.
    """
    assert settings.from_time is not None, "asked before"
    to = settings.to_time if settings.to_time is not None else time_of(now_ms())
    from_ms, to_ms = _milliseconds(settings.from_time), _milliseconds(to)
    _check(from_ms, to_ms, now_ms())
    with sessions(Needs(settings.run_name or "history", settings.memory, None)) as spark:
        try:
            work = work_of(spark, target, settings)
            if work is None:
                raise Failure(*NO_ROLLUPS)
            if not settings.publish and settings.rollups is None:
                work = replace(work, place=replace(work.place, store=Unwritten(work.place.store)))
            grace_ms = target.stale_seconds * 1000
            due, kept = backfilled_hours(work.brokers, work.stored, from_ms, to_ms, grace_ms)
            known = dict(work.stored)
            failed = roll_up(spark, [replace(work, due=tuple(due))], settings.patience_seconds)
            if failed:
                raise Failure(failed[0][1].cause, "Give a shorter range, or --rollups FOLDER to keep them there.")
            written = sorted(name for name, info in work.stored.items() if known.get(name) is not info)
            return _history(work, from_ms, to_ms, written, kept)
        except (RollupsUnavailable, BadRollup) as error:
            raise Failure(f"the history of {target.name} can't be told: {error}.", "Run it again later.") from error


def hand_out(settings: LagJobSettings, history: LagHistory) -> None:
    """Print it, and write it. Raises Failure."""
    if settings.table or settings.output is None:
        sys.stdout.write(as_history_table(history))
    if settings.output == STDOUT:
        sys.stdout.write(history.to_json())
    elif settings.output is not None:
        try:
            write_output(settings.output, history.to_json().encode())
        except OSError as error:
            raise Failure(
                f"the history could not be written to {settings.output}: {error}.", "Give another --output."
            ) from error


def _history(
    work: Work, from_ms: int, to_ms: int, written: Sequence[RollupName], kept: dict[RollupName, str]
) -> LagHistory:
    period = Period.HOUR if to_ms - from_ms <= HOURS_UP_TO_MS else Period.DAY
    periods = list(_periods(work, period, from_ms, to_ms, kept))
    if not any(each.hours for each in periods):
        raise Failure(
            f"there is no ledger and no rollup of {work.target.name} from {time_of(from_ms):%Y-%m-%d %H:%M} to "
            f"{time_of(to_ms):%Y-%m-%d %H:%M} UTC.",
            "Give a range in which the broker ran and an hour was over; the newest 168 hours and 400 days are kept.",
        )
    return LagHistory(
        broker=work.target.broker,
        namespace=work.target.namespace,
        from_time=time_of(from_ms),
        to_time=time_of(to_ms),
        written=tuple(str(name) for name in written),
        periods=tuple(periods),
    )


def _periods(
    work: Work, period: Period, from_ms: int, to_ms: int, kept: dict[RollupName, str]
) -> Iterator[PeriodHistory]:
    """Each of the range that there is, or that is missing between the first and the last of them."""
    name = RollupName.of(period, from_ms)
    before = _read(work, RollupName(name.start_ms - period.milliseconds, period))
    while name.start_ms < to_ms:
        info = work.stored.get(name)
        rollup = _read(work, name)
        if rollup is None or info is None:
            missing = ["there is no rollup, and the ledger has no closed hour of it"]
            yield PeriodHistory(start=time_of(name.start_ms), end=time_of(name.end_ms), hours=0, missing=tuple(missing))
        else:
            said = list(read_about(work.place.store.get(name)).missing)
            if name in kept:
                said.append(kept[name])
            yield period_history(name, rollup, before, info.hours, said)
        before, name = rollup, RollupName(name.end_ms, period)


def _read(work: Work, name: RollupName) -> Rollup | None:
    return read_rollup(work.place.store.get(name)) if name in work.stored else None


def _check(from_ms: int, to_ms: int, now_ms: int) -> None:
    if from_ms >= to_ms:
        raise Misuse("--from is not before --to.", "Give an earlier --from, or a later --to.")
    if from_ms > now_ms:
        raise Misuse("--from is in the future.", "Give a time that is past.")
    if to_ms > now_ms:
        raise Misuse("--to is in the future.", "Give a time that is past, or leave --to out.")
    if to_ms - from_ms > 400 * DAY_MS:
        raise Misuse("--from and --to are more than 400 days apart.", "Rollups are kept for 400 days.")


def _milliseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)
