"""One analysis: list the ledgers, plan the windows, let Spark compute, judge. Source: docs/reference/lag-job.md.

A run is about one Broker or many. A Broker that fails does not keep the others from their results; what it failed of is
returned, with the others delivered.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from penstock_api.failure import Failure, Misuse
from penstock_api.lag_result import LagResult
from penstock_lag.group_analysis import (
    THRESHOLDS,
    Failed,
    Finish,
    analyse_copies,
    analyse_rows,
    analyse_served,
    finish_all,
)
from penstock_lag.groups import Member, grouped, numbered
from penstock_lag.ledger.folders import content_in, damaged_in, files_of, list_ledgers, rows_in
from penstock_lag.ledger.rows import LedgerRows
from penstock_lag.ledger.segment_files import native_rows, room_for_copies
from penstock_lag.ledger.served_segments import list_segments
from penstock_lag.ledger.windows import AbsentBroker, Plan, PresentBroker, make_plan, without_unlisted
from penstock_lag.result_document import Run, make_result
from penstock_lag.rollups.brokers import roll_up_targets
from penstock_lag.rollups.past_hours import PastHours, past_of
from penstock_lag.rollups.past_result import with_past
from penstock_lag.session import Needs, is_local, started_by_spark_submit
from penstock_lag.settings import RUN_NAME_VARIABLE, LagJobSettings, check_run_name
from penstock_lag.spark_failures import SegmentGone, explained
from penstock_lag.targets import Target, observers_of
from penstock_lag_rules.entry import EPOCH
from penstock_lag_rules.figures import Figures

__all__ = ["Deliver", "Failed", "Sessions", "analyse"]

Sessions = Callable[[Needs], AbstractContextManager[SparkSession]]
"""Makes the context manager that gives a run its Spark session."""

Deliver = Callable[[Target, LagResult], None]
"""Takes the result of a Broker as soon as it is there. Raises Failure if that does not work."""

LISTINGS: Final = 32
"""How many Brokers are asked for their segments at a time: their observers are waited for, and each on its own."""
GROUP_ROWS_PER_CORE: Final = 500_000
"""How many rows are computed together at most, for each task that runs at a time, unless one Broker has more. What is
known of their subscriptions is in the driver's memory at the same time.
"""
ROWS_PER_SECOND: Final = 1_000
"""Of a window of which nobody can say it before Spark is there: 10,000 subscriptions, looked at every ten seconds."""
log = logging.getLogger(__name__)


def analyse(settings: LagJobSettings, targets: Sequence[Target], sessions: Sessions, deliver: Deliver) -> list[Failed]:
    """Compute and deliver the result of each Broker. Returns those that failed, in no order.

    Raises Misuse if the run has no name, CannotRun if Spark can't be started, OutOfMemory.
    """
    run_name = _given_run_name(settings, os.environ)
    if any(target.ledgers for target in targets):
        return _analyse_folders(settings, targets[0], sessions, deliver, run_name)
    planned, failed = _planned(settings, targets)
    members = numbered(planned)
    if not any(member.plan.segments for member in members) and run_name is not None:
        # Spark is not started where there is nothing for it to do.
        return failed + finish_all(members, [], partial(_finish, settings, deliver, run_name))
    rows = sum(member.plan.rows for member in members)
    with _session(settings, run_name, rows, sessions) as (spark, name):
        return failed + _analyse_groups(spark, members, settings, partial(_finish, settings, deliver, name))


def _planned(settings: LagJobSettings, targets: Sequence[Target]) -> tuple[list[tuple[Target, Plan]], list[Failed]]:
    def one(target: Target) -> Plan | Failure:
        try:
            observers = observers_of(target, settings.patience_seconds)
        except Misuse as failure:
            return failure
        return _plan(settings, target, list_segments(observers, target.broker, target.namespace))

    with ThreadPoolExecutor(LISTINGS, thread_name_prefix="listing") as pool:
        found = list(zip(targets, pool.map(one, targets), strict=True))
    planned = [(target, plan) for target, plan in found if isinstance(plan, Plan)]
    return planned, [(target, failure) for target, failure in found if isinstance(failure, Failure)]


def _analyse_groups(
    spark: SparkSession, members: Sequence[Member], settings: LagJobSettings, finish: Finish
) -> list[Failed]:
    """Of the Brokers whose segments were merged while Spark computed, the segments are listed again, once."""
    failed, gone = _without_gone(_analysed(spark, members, settings, finish))
    if gone:
        planned, more = _planned(settings, gone)
        failed += more + _analysed(spark, numbered(planned), settings, finish)
    rolled_up, gone = _without_gone(roll_up_targets(spark, [member.target for member in members], settings))
    return failed + rolled_up + (roll_up_targets(spark, gone, settings) if gone else [])


def _without_gone(failed: Sequence[Failed]) -> tuple[list[Failed], list[Target]]:
    """The failures that stay, and the Brokers of which a segment was gone."""
    gone = [target for target, failure in failed if isinstance(failure, SegmentGone)]
    if gone:
        log.warning("of %d Brokers a segment is gone since it was listed, so they are tried again", len(gone))
    return [each for each in failed if not isinstance(each[1], SegmentGone)], gone


def _analysed(spark: SparkSession, members: Sequence[Member], settings: LagJobSettings, finish: Finish) -> list[Failed]:
    failed: list[Failed] = []
    with_copies = is_local(spark)
    most_bytes = room_for_copies(Path(tempfile.gettempdir())) if with_copies else sys.maxsize
    groups = grouped(members, GROUP_ROWS_PER_CORE * spark.sparkContext.defaultParallelism, most_bytes)
    analyse_group = analyse_copies if with_copies else analyse_served
    for number, group in enumerate(groups, 1):
        log.info(
            "group %d of %d: %d rows in %d segments of %d Brokers",
            *(number, len(groups), sum(member.plan.rows for member in group)),
            *(sum(len(member.plan.segments) for member in group), len(group)),
        )
        failed += analyse_group(spark, group, settings.patience_seconds, finish)
    return failed


def _analyse_folders(
    settings: LagJobSettings, target: Target, sessions: Sessions, deliver: Deliver, run_name: str | None
) -> list[Failed]:
    rows = rows_in(target.ledgers)
    assumed = target.window_seconds * ROWS_PER_SECOND if rows is None else rows
    with _session(settings, run_name, assumed, sessions) as (spark, name):
        with explained(spark):
            folders = list_ledgers(spark, target.ledgers, target.broker, target.namespace)
        plan = _plan(settings, target, [folder.broker for folder in folders])
        member = Member(target, without_unlisted(plan, damaged_in(folders)), first=0)
        log.info("%d rows in %d segments", member.plan.rows, len(member.plan.segments))

        def rows_of(members: Sequence[Member]) -> LedgerRows:
            return native_rows(spark, [file for each in members for file in files_of(each.plan, folders)])

        finish = partial(_finish, settings, deliver, name)
        failed = analyse_rows(spark, [member], rows_of, finish, lambda _: content_in(spark, folders))
        return failed + roll_up_targets(spark, [target], settings)


def _finish(
    settings: LagJobSettings, deliver: Deliver, run_name: str, member: Member, found: Sequence[Figures]
) -> None:
    target = member.target
    run_of = Run(target.broker, target.namespace, run_name, target.expected)
    thresholds = replace(THRESHOLDS, stale_after_ms=target.stale_seconds * 1000)
    result = make_result(run_of, member.plan, found, thresholds)
    past = PastHours() if _first_is_away(settings, member) else past_of(target, settings, member.plan.end_ms)
    deliver(target, with_past(result, found, past, member.plan.unread))


def _first_is_away(settings: LagJobSettings, member: Member) -> bool:
    """The observer that keeps the rollups did not list its segments. It would be waited for once more, and the results
    of other Brokers with it.
    """
    if settings.rollups is not None or member.target.ledgers:
        return False
    has_window = any(window.ordinal == 0 for window in member.plan.windows)
    return not has_window and any(ordinal == 0 for ordinal, _ in member.plan.missing)


@contextmanager
def _session(
    settings: LagJobSettings, run_name: str | None, rows: int | None, sessions: Sessions
) -> Generator[tuple[SparkSession, str]]:
    """A session and the name of the run: the given one, or that of the Spark application."""
    if run_name is None and not started_by_spark_submit():
        raise Misuse("the run has no name.", f"Give --run-name, or set {RUN_NAME_VARIABLE}.")
    with sessions(Needs(run_name, settings.memory, rows)) as spark:
        yield spark, check_run_name(run_name or spark.sparkContext.appName or "")


def _plan(settings: LagJobSettings, target: Target, brokers: Sequence[PresentBroker | AbsentBroker]) -> Plan:
    """The clock is only read for a ledger without any row."""
    window_ms, stale_ms = target.window_seconds * 1000, target.stale_seconds * 1000
    as_of_ms = None if settings.as_of is None else _milliseconds(settings.as_of)
    plan = make_plan(brokers, window_ms, stale_ms, as_of_ms, time.time_ns() // 1_000_000)
    for ordinal, reason in plan.missing:
        log.warning("%s-%d does not report: %s", target.name, ordinal, reason)
    return plan


def _given_run_name(settings: LagJobSettings, environment: Mapping[str, str]) -> str | None:
    if settings.run_name is not None:
        return settings.run_name
    given = environment.get(RUN_NAME_VARIABLE, "")
    return check_run_name(given) if given else None


def _milliseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)
