"""What is said when Spark fails: of memory with the setting to raise, and of our own exceptions."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError  # pyright: ignore[reportMissingTypeStubs] - it has none
from pyspark.errors import PySparkException

from penstock_api.failure import Failure
from penstock_lag.spark_failures import OutOfMemory, explained


def a_session(exit_code: int) -> Any:
    """As far as it is asked: a Spark process that ended."""
    process = SimpleNamespace(wait=lambda _seconds: exit_code)  # pyright: ignore[reportUnknownLambdaType]
    return SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=process)))


def explain(spark: Any, error: Exception, rows: int | None = None) -> None:
    """Let an exception pass through."""
    with explained(spark, rows):
        raise error


def test_a_task_without_memory_is_said() -> None:
    """With the rows, the setting, and an exit code of its own."""
    with pytest.raises(OutOfMemory, match="Spark ran out of memory, for the 900000 rows of the window") as failed:
        explain(a_session(0), PySparkException("Job aborted.\n\tjava.lang.OutOfMemoryError: Java heap space"), 900_000)
    assert failed.value.exit_code == 4
    assert "spec.lagAnalysis.memory" in failed.value.cure
    assert "--memory" in failed.value.cure


@pytest.mark.parametrize(
    ("exit_code", "told"),
    [(3, "its heap was full, and it ended"), (52, "its heap was full, and it ended"), (-9, "its process was killed")],
)
def test_a_process_that_ended_for_lack_of_memory_is_said(exit_code: int, told: str) -> None:
    """Only a broken connection is seen of it."""
    with pytest.raises(OutOfMemory, match=told), explained(a_session(exit_code)):
        raise Py4JNetworkError("Answer from Java side is empty")


def test_other_failures_are_not_about_memory() -> None:
    """A process that ended otherwise; an exception of ours inside Spark's."""
    with pytest.raises(Failure, match="could not be evaluated: Answer from Java side is empty") as failed:
        explain(a_session(1), Py4JNetworkError("Answer from Java side is empty"))
    assert failed.value.exit_code == 1
    inner = "penstock_lag.ledger.source.SegmentMismatch: x has no column depth"
    with pytest.raises(Failure, match=re.escape(f"evaluated: {inner}\n")):
        explain(a_session(0), PySparkException(f"Job aborted\n  {inner}\n"))


def test_a_file_that_spark_cannot_read_is_named() -> None:
    """Wherever in the trace it stands."""
    told = (
        "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:/x/ordinal=2/y.parquet. SQLSTATE: KD001"
    )
    trace = f"An error occurred while calling o9.getResult.\n: org.apache.spark.SparkException: {told}\n\tat x.Y\n"
    with pytest.raises(Failure, match=re.escape(f"evaluated: {told}\n")):
        explain(a_session(0), PySparkException(trace))
