"""The Spark session of a run: its own on this machine, or the one that spark-submit prepared.

Spark's Python workers need the interpreter that has pyarrow and this package. What the user has set for spark-submit,
on its command line or in its files, is never changed. Source: docs/reference/lag-job.md, "How Spark runs".
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark
from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs] - it has none
from pyspark.conf import SparkConf
from pyspark.core.context import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock_api.failure import CannotRun
from penstock_lag.class_archive import ARCHIVE, CLASS_PATH

__all__ = [
    "Needs",
    "class_archive",
    "is_local",
    "local_session",
    "options_for",
    "runs_here",
    "started_by_spark_submit",
    "tune",
    "tuning",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Needs:
    """What a run wants of its session."""

    run_name: str | None
    memory: str = "1g"
    rows: int | None = None
    """Of the window; None: not known yet."""


CLASSES_VARIABLE: Final = "PENSTOCK_LAG_CLASSES"
"""The folder with an archive of Java's classes (penstock_lag.class_archive)."""


OPTIONS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # where a column comes from: three more calls for each
}
"""Unless the user has set them."""

LOCAL_OPTIONS: Final[Mapping[str, str]] = {
    "spark.master": "local[2]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.adaptive.enabled": "false",  # the number of partitions follows from that of the rows
    "spark.sql.autoBroadcastJoinThreshold": "-1",  # what is small is marked as such
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",  # no job to list files on this machine
}
"""For a session of its own."""

SHORT: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For runs of seconds, in which optimising costs more than it saves."""
LONG: Final = "-XX:+UseParallelGC"
LONG_ROWS: Final = 4_000_000
"""From this many rows on the JVM optimises."""
STOPS: Final = "-XX:+ExitOnOutOfMemoryError"

INTERPRETED_ROWS: Final = 5_000
"""Up to this many rows plans are interpreted instead of compiled: compiling takes longer than everything else."""
ROWS_PER_PARTITION: Final = 400_000
"""A partition of so many snapshots is sorted within the default heap, with two at a time."""


def started_by_spark_submit(environment: Mapping[str, str] = os.environ) -> bool:
    """True in a driver that spark-submit started, which then sets master, name and resources."""
    return "PYSPARK_GATEWAY_PORT" in environment


def is_local(spark: SparkSession) -> bool:
    """Whether all executors read this machine's temporary folder, and so the copies of segments that the run makes."""
    return runs_here(spark.sparkContext.master or "")


def runs_here(master: str) -> bool:
    """Whether Spark itself says that all of it runs on this machine: in the process of the driver (`local[2]`), or in
    processes that the driver starts beside it (`local-cluster[2,1,1024]`). A cluster manager on this machine
    (`spark://127.0.0.1:7077`) may have executors elsewhere.
    """
    return master == "local" or master.startswith(("local[", "local-cluster["))


def tuning(rows: int, cores: int) -> dict[str, str]:
    """The options that depend on the number of rows, and on how many tasks run at a time."""
    partitions = max(min(cores, rows // INTERPRETED_ROWS + 1), -(-rows // ROWS_PER_PARTITION))
    return {
        "spark.sql.codegen.factoryMode": "NO_CODEGEN" if rows <= INTERPRETED_ROWS else "FALLBACK",
        "spark.sql.shuffle.partitions": str(partitions),
    }


def tune(spark: SparkSession, rows: int) -> None:
    """Set them, but not those that the user has set."""
    given = spark.sparkContext.getConf()
    for name, value in tuning(rows, spark.sparkContext.defaultParallelism).items():
        if not given.contains(name):
            spark.conf.set(name, value)


def class_archive(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The folder with an archive of classes, if there is one that Java would accept: not if the user's settings put
    something else first in the class path. Without it a run only takes longer to start.
    """
    given = environment.get(CLASSES_VARIABLE, "")
    if not given:
        return None
    folder = Path(given).absolute()
    if not ((folder / CLASS_PATH).is_file() and (folder / ARCHIVE).is_file()):
        log.warning("%s is %s, which has no %s: Java starts without it", CLASSES_VARIABLE, given, ARCHIVE)
        return None
    if _defaults_have("spark.driver.extraClassPath", environment):
        log.info("spark-defaults.conf has a class path, so Java starts without the archive of classes")
        return None
    return folder


def _defaults_have(option: str, environment: Mapping[str, str]) -> bool:
    """Whether Spark's own file of settings has an option, which one that is given here would replace."""
    home = Path(environment.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    folder = Path(environment.get("SPARK_CONF_DIR") or home / "conf")
    try:
        lines = (folder / "spark-defaults.conf").read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return False
    return any(line.strip().startswith(option) for line in lines)


def options_for(
    needs: Needs, scratch: str, is_given: Callable[[str], bool] | None, classes: Path | None = None
) -> dict[str, str]:
    """Options of a session: of its own, or, with `is_given`, of one that spark-submit prepared. That function says of
    an option whether the user has set it. In: also the folder with an archive of classes, for a session of its own.
    """
    options = {**OPTIONS, "spark.sql.warehouse.dir": scratch}
    if is_given is not None:
        return {name: value for name, value in options.items() if not is_given(name)}
    is_long = needs.rows is None or needs.rows > LONG_ROWS
    java = f"{LONG if is_long else SHORT} {STOPS}"
    if classes is not None:
        java += f" -XX:SharedArchiveFile={classes / ARCHIVE}"
        options["spark.driver.extraClassPath"] = str(classes / CLASS_PATH)
    return options | {
        **LOCAL_OPTIONS,
        "spark.driver.memory": needs.memory,
        "spark.driver.extraJavaOptions": java,
        "spark.local.dir": scratch,
        "spark.app.name": needs.run_name or "penstock lag",
    }


@contextmanager
def local_session(needs: Needs) -> Generator[SparkSession]:
    """A Spark session, which is stopped afterwards. Raises CannotRun if there is no Java."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="penstock-lag-") as scratch:
        is_given = _given_to_spark_submit() if started_by_spark_submit() else None
        session = _start(options_for(needs, scratch, is_given, class_archive() if is_given is None else None))
        try:
            yield session
        finally:
            _stop(session)


def _stop(session: SparkSession) -> None:
    try:
        session.stop()
    except (Py4JError, ConnectionError) as error:  # its process is gone; what that means is said where it was noticed
        log.warning("Spark was not there any more to be stopped: %s", type(error).__name__)


def _given_to_spark_submit() -> Callable[[str], bool]:
    SparkContext._ensure_initialized()  # pyright: ignore[reportPrivateUsage] - SparkConf is empty before
    return SparkConf().contains


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
