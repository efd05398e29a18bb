"""The lag job: asks the observers, lets Spark compute figures from the ledger, judges them, and delivers the result.

Only wiring and I/O; every decision is in `windows`, `rules` and `result_document`.
Source: docs/reference/lag-job.md; docs/decisions/062-exact-lag.md.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs] - it has none
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock_api.failure import Failure, Misuse
from penstock_api.lag_result import LagResult
from penstock_api.observer_api import RESULTS
from penstock_lag.arguments import parse
from penstock_lag.figures_rows import figures_of
from penstock_lag.ledger_source import read_ledger
from penstock_lag.observer_client import Observer, ObserverError
from penstock_lag.result_document import Run, make_result
from penstock_lag.segment_listing import list_segments
from penstock_lag.session import local_session, started_by_spark_submit, tune
from penstock_lag.settings import RUN_NAME_VARIABLE, STDOUT, LagJobSettings, check_run_name, read_token
from penstock_lag.table import as_table
from penstock_lag.transforms.figures import figures
from penstock_lag.windows import Plan, make_plan
from penstock_lag_rules.entry import EPOCH
from penstock_lag_rules.figures import Figures
from penstock_lag_rules.rules import Thresholds

__all__ = ["Sessions", "analyse", "collect_figures", "main", "run"]

Sessions = Callable[[str | None], AbstractContextManager[SparkSession]]
"""Makes the context manager that gives a run its Spark session, from the run's name."""

THRESHOLDS: Final = Thresholds()
log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Run with command-line arguments; errors go to the standard error. Returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        return run(parse(arguments))
    except Failure as failure:
        sys.stderr.write(f"penstock lag: {failure}\n")
        return failure.exit_code


def run(settings: LagJobSettings, sessions: Sessions = local_session) -> int:
    """One run. Returns 0, or raises Failure: Spark failed, or the result could not be delivered."""
    token = read_token(settings.token_file)
    observers = [Observer(url, token, settings.ca_file, settings.patience_seconds) for url in settings.observers]
    result = analyse(settings, observers, sessions)
    body = result.to_json().encode()
    _hand_out(settings, result, body)
    if settings.publish:
        _publish(observers[0], result.run_name, body)
    return 0


def analyse(settings: LagJobSettings, observers: Sequence[Observer], sessions: Sessions) -> LagResult:
    """Ask the observers, plan the window, compute, judge. The clock is only read for a ledger without any row."""
    brokers = list_segments(observers, settings.broker, settings.namespace)
    window_ms, stale_ms = settings.window_seconds * 1000, settings.stale_seconds * 1000
    as_of_ms = None if settings.as_of is None else _milliseconds(settings.as_of)
    plan = make_plan(brokers, window_ms, stale_ms, as_of_ms, time.time_ns() // 1_000_000)
    for ordinal, reason in plan.missing:
        log.warning("%s-%d does not report: %s", settings.broker, ordinal, reason)
    run_name, found = _figures(settings, plan, sessions)
    run_of = Run(settings.broker, settings.namespace, run_name, len(observers))
    return make_result(run_of, plan, found, replace(THRESHOLDS, stale_after_ms=stale_ms))


def _figures(settings: LagJobSettings, plan: Plan, sessions: Sessions) -> tuple[str, list[Figures]]:
    """Run name and figures. Spark is not started where there is nothing for it to do."""
    run_name = _given_run_name(settings, os.environ)
    if not plan.segments and run_name is not None:
        return run_name, []
    if run_name is None and not started_by_spark_submit():
        raise Misuse("the run has no name.", f"Give --run-name, or set {RUN_NAME_VARIABLE}.")
    with sessions(run_name) as spark:
        name = check_run_name(run_name or spark.sparkContext.appName or "")
        return name, collect_figures(spark, plan, settings)


def collect_figures(spark: SparkSession, plan: Plan, settings: LagJobSettings) -> list[Figures]:
    """Read the planned segments and make figures of them. Raises Failure if a segment can't be read."""
    if not plan.segments:
        return []
    tune(spark, plan.rows)
    pairs = [(settings.observers[chosen.ordinal], chosen.name) for chosen in plan.segments]
    read = partial(read_ledger, spark, pairs, settings.token_file, settings.ca_file, settings.patience_seconds)
    try:
        rows = figures(read, plan.windows, THRESHOLDS).collect()
        return [figures_of(row.asDict(recursive=True)) for row in rows]
    except (PySparkException, Py4JError) as error:
        raise Failure(
            f"the ledger could not be evaluated: {_innermost(str(error))}",
            "If a segment is gone, its retention is shorter than the window: run again, or raise --retain-seconds.",
        ) from error


def _given_run_name(settings: LagJobSettings, environment: Mapping[str, str]) -> str | None:
    if settings.run_name is not None:
        return settings.run_name
    given = environment.get(RUN_NAME_VARIABLE, "")
    return check_run_name(given) if given else None


def _hand_out(settings: LagJobSettings, result: LagResult, body: bytes) -> None:
    if settings.table:
        sys.stdout.write(as_table(result))
    if settings.output == STDOUT:
        sys.stdout.write(body.decode())
    elif settings.output is not None:
        _write(settings.output, body)


def _write(path: Path, body: bytes) -> None:
    try:
        path.write_bytes(body)
    except OSError as error:
        raise Failure(f"the result could not be written to {path}: {error}.", "Give another --output.") from error


def _publish(observer: Observer, run_name: str, body: bytes) -> None:
    try:
        observer.put(RESULTS.format(run_name=run_name), body)
    except ObserverError as error:
        raise Failure(
            f"the result of run {run_name} was not stored: {error}.",
            "The observer of ordinal 0 keeps results; check that its pod runs, then run again.",
        ) from error


def _innermost(trace: str) -> str:
    """The line of a Spark error that names our own exception, else its first line."""
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith(("penstock_lag.", "penstock_api."))]
    return (ours or lines or ["no reason was given"])[0]


def _milliseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)
