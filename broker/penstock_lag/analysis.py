"""One analysis: list the ledgers, plan the window, let Spark compute, judge. Source: docs/reference/lag-job.md."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from penstock_api.failure import Failure, Misuse
from penstock_api.lag_result import LagResult
from penstock_lag.computation import compute_figures
from penstock_lag.ledger_paths import list_ledgers, rows_in
from penstock_lag.ledger_source import SegmentMismatch, read_ledger
from penstock_lag.observer_client import Observer, ObserverError
from penstock_lag.result_document import Run, make_result
from penstock_lag.rollup_brokers import ledgers_in_folders, ledgers_of_observers, roll_up_broker
from penstock_lag.rollup_plan import Bounds
from penstock_lag.rollup_run import RollupPlace
from penstock_lag.rollup_stores import FolderRollups, ObserverRollups, RollupStore
from penstock_lag.segment_files import download, native_rows, served_rows
from penstock_lag.segment_listing import list_segments
from penstock_lag.session import Needs, is_local, started_by_spark_submit, tune
from penstock_lag.settings import RUN_NAME_VARIABLE, LagJobSettings, check_run_name
from penstock_lag.spark_failures import GONE, explained
from penstock_lag.transforms.rows import LedgerRows
from penstock_lag.windows import AbsentBroker, Plan, PresentBroker, make_plan
from penstock_lag_rules.entry import EPOCH
from penstock_lag_rules.figures import Figures
from penstock_lag_rules.rules import Thresholds

__all__ = ["Sessions", "analyse"]

Sessions = Callable[[Needs], AbstractContextManager[SparkSession]]
"""Makes the context manager that gives a run its Spark session."""

THRESHOLDS: Final = Thresholds()
log = logging.getLogger(__name__)


def analyse(settings: LagJobSettings, observers: Sequence[Observer], sessions: Sessions) -> LagResult:
    """The result of a run. Raises Failure if a segment can't be read, or if Spark fails."""
    if settings.ledgers:
        return _analyse_folders(settings, sessions)
    plan = _plan(settings, list_segments(observers, settings.broker, settings.namespace))
    run_name = _given_run_name(settings, os.environ)
    if not plan.segments and run_name is not None:  # Spark is not started where there is nothing for it to do
        return _result(settings, plan, run_name, [])
    with _session(settings, run_name, plan.rows, sessions) as (spark, name):
        found = _from_observers(spark, plan, settings, observers) if plan.segments else []
        _roll_up(spark, settings, observers)
        return _result(settings, plan, name, found)


def _analyse_folders(settings: LagJobSettings, sessions: Sessions) -> LagResult:
    with _session(settings, _given_run_name(settings, os.environ), rows_in(settings.ledgers), sessions) as (
        spark,
        name,
    ):
        with explained(spark):
            folders = list_ledgers(spark, settings.ledgers, settings.broker, settings.namespace)
        plan = _plan(settings, [folder.broker for folder in folders])
        chosen = {(each.ordinal, each.name) for each in plan.segments}
        files = [file for folder in folders for file in folder.files if (file.ordinal, str(file.name)) in chosen]
        found = _compute(spark, plan, native_rows(spark, files)) if files else []
        _roll_up(spark, settings, ())
        return _result(settings, plan, name, found)


def _from_observers(
    spark: SparkSession, plan: Plan, settings: LagJobSettings, observers: Sequence[Observer]
) -> list[Figures]:
    """On this machine from copies. Executors elsewhere can't see those: they fetch their segments themselves."""
    if not is_local(spark):
        return _compute(spark, plan, _served(spark, plan, settings))
    with tempfile.TemporaryDirectory(prefix="penstock-ledger-") as scratch:
        try:
            files = download(observers, plan, Path(scratch))
        except (ObserverError, SegmentMismatch, OSError) as error:
            raise Failure(f"the ledger could not be evaluated: {error}", GONE) from error
        return _compute(spark, plan, native_rows(spark, files))


def _served(spark: SparkSession, plan: Plan, settings: LagJobSettings) -> LedgerRows:
    pairs = [(each, settings.observers[each.ordinal]) for each in plan.segments]
    read = partial(
        read_ledger,
        spark,
        token_file=settings.token_file,
        ca_file=settings.ca_file,
        patience_seconds=settings.patience_seconds,
    )
    return served_rows(pairs, read)


def _roll_up(spark: SparkSession, settings: LagJobSettings, observers: Sequence[Observer]) -> None:
    broker, namespace = settings.broker, settings.namespace
    if settings.ledgers:
        ledgers = partial(ledgers_in_folders, spark, settings.ledgers, broker, namespace)
    else:
        ledgers = partial(ledgers_of_observers, spark, observers, broker, namespace)
    if settings.rollups is not None:
        store: RollupStore = FolderRollups(settings.rollups)
    elif settings.publish:
        store = ObserverRollups(observers[0], broker, namespace)
    else:
        return
    failure = roll_up_broker(spark, ledgers, RollupPlace(broker, namespace, store), settings.stale_seconds, Bounds())
    if failure is not None:
        log.error("%s", failure)


def _compute(spark: SparkSession, plan: Plan, rows: LedgerRows) -> list[Figures]:
    tune(spark, plan.rows)
    with explained(spark, plan.rows):
        return compute_figures(spark, rows, plan.windows, THRESHOLDS)


@contextmanager
def _session(
    settings: LagJobSettings, run_name: str | None, rows: int | None, sessions: Sessions
) -> Generator[tuple[SparkSession, str]]:
    """A session and the name of the run: the given one, or that of the Spark application."""
    if run_name is None and not started_by_spark_submit():
        raise Misuse("the run has no name.", f"Give --run-name, or set {RUN_NAME_VARIABLE}.")
    with sessions(Needs(run_name, settings.memory, rows)) as spark:
        yield spark, check_run_name(run_name or spark.sparkContext.appName or "")


def _plan(settings: LagJobSettings, brokers: Sequence[PresentBroker | AbsentBroker]) -> Plan:
    """The clock is only read for a ledger without any row."""
    window_ms, stale_ms = settings.window_seconds * 1000, settings.stale_seconds * 1000
    as_of_ms = None if settings.as_of is None else _milliseconds(settings.as_of)
    plan = make_plan(brokers, window_ms, stale_ms, as_of_ms, time.time_ns() // 1_000_000)
    for ordinal, reason in plan.missing:
        log.warning("%s-%d does not report: %s", settings.broker, ordinal, reason)
    return plan


def _result(settings: LagJobSettings, plan: Plan, run_name: str, found: Sequence[Figures]) -> LagResult:
    expected = len(settings.ledgers or settings.observers)
    run_of = Run(settings.broker, settings.namespace, run_name, expected)
    thresholds = replace(THRESHOLDS, stale_after_ms=settings.stale_seconds * 1000)
    return make_result(run_of, plan, found, thresholds)


def _given_run_name(settings: LagJobSettings, environment: Mapping[str, str]) -> str | None:
    if settings.run_name is not None:
        return settings.run_name
    given = environment.get(RUN_NAME_VARIABLE, "")
    return check_run_name(given) if given else None


def _milliseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)
