"""The Spark session of a run: its own on this machine, or the one that spark-submit prepared.

Spark's Python workers need the interpreter that has pyarrow and this package. Source: docs/reference/lag-job.md, "How
Spark runs".
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock_api.failure import CannotRun

__all__ = ["local_session", "started_by_spark_submit", "tune"]

OPTIONS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",  # a window is small: more partitions are only more tasks
    "spark.sql.adaptive.enabled": "false",  # likewise: replanning costs more than it saves
    "spark.sql.autoBroadcastJoinThreshold": "-1",  # rows are grouped by the join's keys already: no job to broadcast
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
LOCAL_OPTIONS: Final[Mapping[str, str]] = {
    "spark.master": "local[2]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # the job runs only for seconds
}


def started_by_spark_submit(environment: Mapping[str, str] = os.environ) -> bool:
    """True in a driver that spark-submit started, which then sets master, name and resources."""
    return "PYSPARK_GATEWAY_PORT" in environment


INTERPRETED_ROWS: Final = 90_000
"""With more rows than this, the plan is compiled. At 90,090 rows of 1,000 subscriptions that took 43 s of processor
time, and 50 s to interpret it; for few rows compiling takes longer than everything else.
"""


def tune(spark: SparkSession, rows: int) -> None:
    """Set the options of a session that depend on the number of rows."""
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN" if rows <= INTERPRETED_ROWS else "FALLBACK")


@contextmanager
def local_session(run_name: str | None) -> Generator[SparkSession]:
    """A Spark session, which is stopped afterwards. Raises CannotRun if there is no Java."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="penstock-lag-") as scratch:
        options = {**OPTIONS, "spark.sql.warehouse.dir": scratch}
        if not started_by_spark_submit():
            options |= {**LOCAL_OPTIONS, "spark.local.dir": scratch, "spark.app.name": run_name or "penstock lag"}
        session = _start(options)
        try:
            yield session
        finally:
            session.stop()


def _start(options: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder
    for name, value in options.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, FileNotFoundError) as error:
        raise CannotRun(
            f"Spark could not be started: {str(error).splitlines()[0]}",
            "It needs Java 17 or newer: install a JRE and set JAVA_HOME, or put java on the PATH.",
        ) from error
