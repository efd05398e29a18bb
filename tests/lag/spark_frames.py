"""What the tests of the lag job that start a JVM share: how a session is made, and rows with few words."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from penstock_api.ledger_format import RowKind
from penstock_lag.figures.computation import compute_figures
from penstock_lag.ledger.rows import LedgerRows, Place
from penstock_lag.ledger.schema import LEDGER
from penstock_lag.ledger.windows import BrokerWindow
from penstock_lag_rules.figures import Figures
from penstock_lag_rules.thresholds import Thresholds
from penstock_observer.rows import Poll, RowOrigin, rows_of


def make_session(scratch: str) -> SparkSession:
    """One thread, one shuffle partition, nothing that tests don't need: a fast start and fast small queries."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    options = {
        "spark.master": "local[1]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.memory": "1g",
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": scratch,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.adaptive.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",  # compiling takes longer than the few rows
    }
    builder = SparkSession.builder.appName("tests")
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def rows_of_polls(polls: Iterable[Poll], ordinal: int = 0, first_seq: int = 1) -> list[Mapping[str, object]]:
    """The ledger rows of polls, as the observer makes them, ten seconds apart."""
    writer = RowOrigin("main", ordinal, 10_000)
    rows: list[Mapping[str, object]] = []
    for poll in polls:
        rows += rows_of(poll, writer, first_seq + len(rows))
    return rows


def ledger_frame(spark: SparkSession, rows: Iterable[Mapping[str, object]]) -> DataFrame:
    """A DataFrame of ledger rows."""
    tuples = [tuple(row[name] for name in LEDGER.names) for row in rows]
    return spark.createDataFrame(tuples, LEDGER)  # pyright: ignore[reportUnknownMemberType]


def ledger_rows(spark: SparkSession, rows: Iterable[Mapping[str, object]]) -> LedgerRows:
    """The rows as the steps ask for them."""
    frame = ledger_frame(spark, rows)

    def of_kind(kind: RowKind, columns: Sequence[str], places: Sequence[Place] | None = None) -> DataFrame:
        return frame.where(frame["kind"] == kind.value).select(*columns)

    return of_kind


def all_figures(
    spark: SparkSession, rows: Sequence[Mapping[str, object]], thresholds: Thresholds | None = None
) -> dict[tuple[int, str], Figures]:
    """What a run over all the rows would collect, by ordinal and queue name."""
    ends = {int(str(row["ordinal"])): 10**15 for row in rows}
    windows = [BrokerWindow(ordinal, 0, end_ms) for ordinal, end_ms in ends.items()]
    made = compute_figures(spark, ledger_rows(spark, rows), windows, thresholds or Thresholds())
    by_queue = {(one.subject.ordinal, one.subject.queue_name): one for one in made}
    assert len(by_queue) == len(made), "one row for each queue"
    return by_queue
