"""Options of the Spark session: what a run sets, and what it leaves to the user."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_lag.session import Needs, class_archive, options_for, runs_here, tuning


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
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.warehouse.dir": "/tmp/x",
    }


def test_an_archive_of_classes_is_for_a_session_of_its_own() -> None:
    """Java takes it only if its jar is first in the class path. Under spark-submit Java has started already."""
    found = options_for(Needs("run-1", "1g", 9), "/tmp/x", None, Path("/opt/classes"))
    assert found["spark.driver.extraClassPath"] == "/opt/classes/spark.jar"
    assert found["spark.driver.extraJavaOptions"] == (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError"
        " -XX:SharedArchiveFile=/opt/classes/spark.jsa"
    )
    assert "spark.driver.extraClassPath" not in options_for(Needs("run-1", "1g", 9), "/tmp/x", None)


def test_an_archive_that_is_not_whole_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One that is being made has no spark.jsa yet. Java would start without even its own archive."""
    named = {"PENSTOCK_LAG_CLASSES": str(tmp_path)}
    assert class_archive({}) is None
    assert class_archive({"PENSTOCK_LAG_CLASSES": ""}) is None
    assert caplog.messages == []
    (tmp_path / "spark.jar").touch()
    assert class_archive(named) is None
    assert caplog.messages == [f"PENSTOCK_LAG_CLASSES is {tmp_path}, which has no spark.jsa: Java starts without it"]
    (tmp_path / "spark.jsa").touch()
    assert class_archive(named) == tmp_path


def test_a_class_path_of_the_user_is_not_replaced(tmp_path: Path) -> None:
    """A connector for an object store comes this way. Java would refuse the archive behind it."""
    for name in ("spark.jar", "spark.jsa"):
        (tmp_path / name).touch()
    settings = tmp_path / "spark-defaults.conf"
    for named in ("SPARK_CONF_DIR", "SPARK_HOME"):
        environment = {"PENSTOCK_LAG_CLASSES": str(tmp_path), named: str(tmp_path)}
        settings.write_text("# spark.driver.extraClassPath /opt/s3/*\nspark.executor.extraClassPath /opt/s3/*\n")
        assert class_archive(environment) == tmp_path
        settings.write_text("spark.ui.enabled true\n spark.driver.extraClassPath=/opt/s3/*\n")
        assert class_archive(environment) is None
        settings.unlink()
        assert class_archive(environment) == tmp_path
        settings = tmp_path / "conf" / "spark-defaults.conf"
        settings.parent.mkdir(exist_ok=True)


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
