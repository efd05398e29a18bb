"""What a failure of Spark was about: the exception of ours inside it, or memory, with the setting to raise.

Spark runs in a process of its own. If that runs out of heap it ends itself at once, so that nothing goes on half dead;
what is seen here is then a connection that broke, and the exit code of the process.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportAttributeAccessIssue=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false
# Reason: py4j's objects have no types, and PySpark has no other way to the process.

from __future__ import annotations

import re
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from typing import ClassVar, Final

from py4j.protocol import Py4JError, Py4JNetworkError  # pyright: ignore[reportMissingTypeStubs] - it has none
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock_api.failure import Failure
from penstock_api.observer_api import SEGMENT

__all__ = ["GONE", "OutOfMemory", "SegmentGone", "explained", "unreadable"]

GONE: Final = "If a segment is gone, its retention is shorter than the window: run again, or raise --retain-seconds."
BROKEN: Final = (Py4JNetworkError, ConnectionError, EOFError)
"""What is raised when the connection to Spark's process breaks."""
FILE: Final = "[FAILED_READ_FILE"
"""What Spark says before the name of a file that can't be read."""
_GONE: Final = re.compile(re.escape(SEGMENT.format(name="")) + r"\S+ answered 404")
"""What an observer's client says, here or in a worker of Spark's, if a segment that was listed is not there."""
PATIENCE_SECONDS: Final = 10


class OutOfMemory(Failure):
    """Spark had too little memory."""

    exit_code: ClassVar[int] = 4


class SegmentGone(Failure):
    """A segment that was listed is not served any more: it was merged into a larger one, or it was deleted."""


def unreadable(reason: str) -> Failure:
    """The failure of a run that could not read the rows of a window. In: why, without a full stop."""
    of_what = SegmentGone if _GONE.search(reason) else Failure
    return of_what(f"the ledger could not be evaluated: {reason}", GONE)


@contextmanager
def explained(spark: SparkSession, rows: int | None = None) -> Generator[None]:
    """Failures of Spark as Failure, in sentences."""
    try:
        yield
    except (PySparkException, Py4JError, *BROKEN) as error:
        cause = _lack_of_memory(spark, error)
        if cause is not None:
            raise OutOfMemory(*_told(cause, rows)) from error
        raise unreadable(innermost(str(error))) from error


def innermost(trace: str) -> str:
    """The line of a Spark error that names our own exception, else the one that names a file, else its first line."""
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith(("penstock_lag.", "penstock_api."))]
    files = [line[line.index(FILE) :] for line in lines if FILE in line]
    return (ours or files or lines or ["no reason was given"])[0]


def _told(cause: str, rows: int | None) -> tuple[str, str]:
    of_rows = "" if rows is None else f", for the {rows} rows of the window"
    return (
        f"Spark ran out of memory{of_rows}: {cause}.",
        "Raise spec.lagAnalysis.memory of the Broker (by hand: --memory; spark-submit: spark.driver.memory, or "
        "spark.executor.memory if it was an executor), or give a shorter window.",
    )


def _lack_of_memory(spark: SparkSession, error: Exception) -> str | None:
    trace = str(error)
    if "java.lang.OutOfMemoryError" in trace or "UNABLE_TO_ACQUIRE_MEMORY" in trace:
        return "a task found no memory in Spark's heap"
    if not isinstance(error, BROKEN):
        return None
    match _exit_code(spark):
        case 3 | 52:  # -XX:+ExitOnOutOfMemoryError; Spark's own handler
            return "its heap was full, and it ended"
        case -9:
            return "its process was killed, as the kernel does if the memory of the machine or the pod is used up"
        case _:
            return None


def _exit_code(spark: SparkSession) -> int | None:
    """None while it runs, or if spark-submit started it."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    try:
        return None if process is None else int(process.wait(PATIENCE_SECONDS))
    except subprocess.TimeoutExpired:
        return None
