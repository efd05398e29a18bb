"""Options of the Spark session: what a run sets, and what it leaves to the user."""

from __future__ import annotations

import pytest

from penstock_lag.session import Needs, options_for, runs_here, tuning


def test_a_session_of_its_own_has_the_memory_of_the_run() -> None:
    """A short run does not optimise; a long one, or one of unknown length, does. Both end when the heap is full."""
    short = options_for(Needs("run-1", "2g", 4_000_000), "/tmp/x", None)
    assert (short["spark.driver.memory"], short["spark.master"]) == ("2g", "local[2]")
    assert (short["spark.app.name"], short["spark.local.dir"]) == ("run-1", "/tmp/x")
    java = "spark.driver.extraJavaOptions"
    assert short[java] == "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError"
    for rows in (4_000_001, None):
        assert options_for(Needs("run-1", "1g", rows), "/tmp/x", None)[java] == (
            "-XX:+UseParallelGC -XX:+ExitOnOutOfMemoryError"
        )


def test_what_was_given_to_spark_submit_is_left_alone() -> None:
    """Master, name, memory and Java options are never set there; the rest only if the user has not."""
    given = {"spark.ui.enabled", "spark.sql.session.timeZone", "spark.driver.memory"}
    assert options_for(Needs("run-1", "2g", 9), "/tmp/x", given.__contains__) == {
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.warehouse.dir": "/tmp/x",
    }


@pytest.mark.parametrize(
    ("rows", "cores", "mode", "partitions"),
    [
        (0, 2, "NO_CODEGEN", 1),
        (5_000, 8, "NO_CODEGEN", 2),
        (5_001, 8, "FALLBACK", 2),
        (90_000, 2, "FALLBACK", 2),
        (900_000, 2, "FALLBACK", 3),
        (900_000, 16, "FALLBACK", 16),
        (30_000_000, 2, "FALLBACK", 75),
    ],
)
def test_partitions_follow_from_the_rows(rows: int, cores: int, mode: str, partitions: int) -> None:
    """As many as tasks run at a time, but not for few rows, and no more than 400,000 rows in one."""
    assert tuning(rows, cores) == {
        "spark.sql.codegen.factoryMode": mode,
        "spark.sql.shuffle.partitions": str(partitions),
    }


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,3]", "local-cluster[2,1,1024]"])
def test_executors_of_this_machine_read_the_copies(master: str) -> None:
    """Threads of the driver, or processes that it starts."""
    assert runs_here(master)


@pytest.mark.parametrize("master", ["spark://127.0.0.1:7077", "k8s://https://10.0.0.1", "yarn", "", "localhost"])
def test_executors_of_a_cluster_fetch_the_segments_themselves(master: str) -> None:
    """Also if its manager is on this machine: its workers may not be."""
    assert not runs_here(master)
