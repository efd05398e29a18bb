"""Rollups on the whole path: from the segments of real observers, by Spark, to the files that the first one keeps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lag.observer_server import TOKEN, Served, fill, serving
from observer.samples import a_poll, a_subscription
from pyspark.sql import SparkSession

from penstock_api.failure import Failure
from penstock_api.rollup_format import Period, RollupName
from penstock_lag.observer_client import Observer
from penstock_lag.rollup_brokers import Ledgers, ledgers_in_folders, ledgers_of_observers, roll_up_broker
from penstock_lag.rollup_files import read_about, read_rollup
from penstock_lag.rollup_plan import Bounds
from penstock_lag.rollup_run import RollupPlace
from penstock_lag.rollup_stores import FolderRollups, ObserverRollups
from penstock_lag_rules.rollups import growth, merged
from penstock_observer.rows import Poll

MIDNIGHT_MS = 1_700_006_400_000
"""2023-11-15T00:00:00Z."""
ORDERS = (0, "psub:durable:global:orders")
NOW = datetime(2023, 11, 15, 3, tzinfo=UTC)
HOURS = ["hour-2023-11-14T22.parquet", "hour-2023-11-14T23.parquet"]


def polls(first_minute: int, last_minute: int, **changes: Any) -> list[Poll]:
    """A poll every ten minutes, counted from midnight: 3 messages arrive in each, 2 are accepted."""
    made: list[Poll] = []
    for minute in range(first_minute, last_minute + 1, 10):
        step = (minute + 120) // 10
        orders = a_subscription("orders", depth=step, ready=step, enqueued=3 * step, acked=2 * step, consumers=1)
        made.append(a_poll(MIDNIGHT_MS + minute * 60_000, orders, **changes))
    return made


def observers(*served: Served) -> list[Observer]:
    """Clients of them."""
    return [Observer(each.url, TOKEN) for each in served]


def place(served: Served) -> RollupPlace:
    """Where the first one keeps rollups."""
    return RollupPlace("main", "shop", ObserverRollups(Observer(served.url, TOKEN), "main", "shop"))


def of(spark: SparkSession, *served: Served) -> Callable[[], Ledgers]:
    """The ledgers that they serve."""
    return partial(ledgers_of_observers, spark, observers(*served), "main", "shop")


def stored(served: Served) -> list[str]:
    """The names of the rollups that it keeps."""
    assert served.api.rollups is not None
    return [info.name for info in served.api.rollups.rollups]


def content(served: Served, name: str) -> bytes:
    """Of a rollup."""
    assert served.api.rollups is not None
    path = served.api.rollups.path_of(name)
    assert path is not None
    return path.read_bytes()


@pytest.mark.spark
def test_closed_hours_and_days_are_kept_once(spark: SparkSession, tmp_path: Path) -> None:
    """22:00 to 00:20 has two closed hours and a closed day, in which 11 steps of 3 messages came: the first snapshot
    is the base. A second run writes nothing.
    """
    with serving(tmp_path, polls(-120, 20), now=lambda: NOW) as observer:
        assert roll_up_broker(spark, of(spark, observer), place(observer), 180, Bounds()) is None
        assert stored(observer) == ["day-2023-11-14.parquet", *HOURS]
        hours = [read_rollup(content(observer, name)) for name in HOURS]
        day = content(observer, "day-2023-11-14.parquet")
        assert read_rollup(day) == merged(hours)
        assert (growth(read_rollup(day))[ORDERS].enqueued, growth(read_rollup(day))[ORDERS].acked) == (33, 22)
        assert read_about(day).hours == 2
        assert read_about(day).missing[0] == "22 of 24 hours have no rows"
        assert read_about(content(observer, HOURS[0])).missing == ("main-0: its polls cover 1 of 60 minutes",)
        before = (tmp_path / "rollups" / HOURS[0]).stat().st_mtime_ns
        assert roll_up_broker(spark, of(spark, observer), place(observer), 180, Bounds()) is None
        assert (tmp_path / "rollups" / HOURS[0]).stat().st_mtime_ns == before


@pytest.mark.spark
def test_a_broker_that_was_away_is_added(spark: SparkSession, tmp_path: Path) -> None:
    """Hour and day are written again, with what was there already."""
    with (
        serving(tmp_path / "0", polls(-60, 60), now=lambda: NOW) as first,
        serving(tmp_path / "1", polls(-60, -30), ordinal=1) as second,
    ):
        away = Observer("http://127.0.0.1:9", TOKEN)
        both = partial(ledgers_of_observers, spark, [*observers(first), away], "main", "shop")
        assert roll_up_broker(spark, both, place(first), 180, Bounds(hours=1)) is None
        about = read_about(content(first, HOURS[1]))
        assert about.ordinals == (0,)
        assert about.missing[0].startswith("main-1: the observer did not answer: ")
        fill(second.api.ledger, polls(-20, 20))
        assert roll_up_broker(spark, of(spark, first, second), place(first), 180, Bounds(hours=1)) is None
        assert read_about(content(first, HOURS[1])).ordinals == (0, 1)
        lives = read_rollup(content(first, "day-2023-11-14.parquet")).lives
        assert [(life.ordinal, life.snapshots) for life in lives] == [(0, 6), (1, 6)]


@pytest.mark.spark
def test_folders_have_their_rollups_beside_them(spark: SparkSession, tmp_path: Path) -> None:
    """Of the same bytes as over HTTP."""
    with serving(tmp_path, polls(-120, 20), now=lambda: NOW) as observer:
        roll_up_broker(spark, of(spark, observer), place(observer), 180, Bounds())
        folder = FolderRollups(tmp_path / "beside")
        read = partial(ledgers_in_folders, spark, [str(tmp_path / "ledger")], "main", "shop")
        assert roll_up_broker(spark, read, RollupPlace("main", "shop", folder), 180, Bounds()) is None
        for name in stored(observer):
            assert (tmp_path / "beside" / name).read_bytes() == content(observer, name)
    assert sorted(folder.stored() or {}) == [
        RollupName(MIDNIGHT_MS - 24 * 3_600_000, Period.DAY),
        *[RollupName(MIDNIGHT_MS - hours * 3_600_000, Period.HOUR) for hours in (2, 1)],
    ]


@pytest.mark.spark
def test_what_goes_wrong_is_said(spark: SparkSession, tmp_path: Path) -> None:
    """An observer that refuses a rollup, here because it keeps them only for a week, is quoted."""
    with serving(tmp_path, polls(-120, 20)) as observer:
        failure = roll_up_broker(spark, of(spark, observer), place(observer), 180, Bounds())
    assert isinstance(failure, Failure)
    assert "shop/main are not complete: the rollup hour-2023-11-14T22.parquet was not stored" in failure.cause
    assert "older than the 7 days" in failure.cause
    assert "result of the run is not affected" in failure.cure


@pytest.mark.spark
def test_an_observer_of_an_earlier_release_keeps_none(spark: SparkSession, tmp_path: Path) -> None:
    """That is no failure."""
    with serving(tmp_path, polls(-120, 20), rollups=False) as observer:
        assert roll_up_broker(spark, of(spark, observer), place(observer), 180, Bounds()) is None
