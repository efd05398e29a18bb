"""Rollups on the whole path: from the segments of real observers, by Spark, to the files that the first one keeps."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from lag.observer_server import Served, fill, serving, token_file
from observer.samples import a_poll, a_subscription
from pyspark.sql import SparkSession

from penstock_api.failure import Failure
from penstock_api.rollup_format import Period, RollupName
from penstock_lag.rollups import brokers
from penstock_lag.rollups.brokers import place_of, roll_up_targets
from penstock_lag.rollups.files import read_about, read_rollup
from penstock_lag.rollups.past_hours import PastHours, read_past
from penstock_lag.rollups.plan import Bounds
from penstock_lag.rollups.stores import FolderRollups
from penstock_lag.settings import LagJobSettings
from penstock_lag.targets import Target, targets_of
from penstock_lag_rules import rollup_retention
from penstock_lag_rules.rollups import growth, merged
from penstock_observer.rows import Poll

MIDNIGHT_MS = 1_700_006_400_000
"""2023-11-15T00:00:00Z."""
ORDERS = (0, "psub:durable:global:orders")
NOW = datetime(2023, 11, 15, 3, tzinfo=UTC)
EARLY = datetime(2023, 11, 14, 22, tzinfo=UTC)
HOURS = ["hour-2023-11-14T22.parquet", "hour-2023-11-14T23.parquet"]


def polls(first_minute: int, last_minute: int, **changes: Any) -> list[Poll]:
    """A poll every ten minutes, counted from midnight: 3 messages arrive in each, 2 are accepted."""
    made: list[Poll] = []
    for minute in range(first_minute, last_minute + 1, 10):
        step = (minute + 120) // 10
        orders = a_subscription("orders", depth=step, ready=step, enqueued=3 * step, acked=2 * step, consumers=1)
        made.append(a_poll(MIDNIGHT_MS + minute * 60_000, orders, **changes))
    return made


def settings(folder: Path, *urls: str, **changes: Any) -> LagJobSettings:
    """A run over observers."""
    values: dict[str, Any] = {
        "observers": urls,
        "broker": "main",
        "namespace": "shop",
        "patience_seconds": 0,
        "token_file": token_file(folder),
    }
    return LagJobSettings(**(values | changes))


def roll_up(spark: SparkSession, run: LagJobSettings, bounds: Bounds | None = None) -> list[tuple[Target, Any]]:
    """What a run does after its results."""
    return list(roll_up_targets(spark, targets_of(run), run, bounds))


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
        assert roll_up(spark, settings(tmp_path, observer.url)) == []
        assert stored(observer) == ["day-2023-11-14.parquet", *HOURS]
        hours = [read_rollup(content(observer, name)) for name in HOURS]
        day = content(observer, "day-2023-11-14.parquet")
        assert read_rollup(day) == merged(hours)
        assert (growth(read_rollup(day))[ORDERS].enqueued, growth(read_rollup(day))[ORDERS].acked) == (33, 22)
        assert read_about(day).hours == 2
        assert read_about(day).missing[0] == "22 of 24 hours have no rollup"
        assert read_about(content(observer, HOURS[0])).missing == ("main-0: its polls cover 1 of 60 minutes",)
        before = (tmp_path / "rollups" / HOURS[0]).stat().st_mtime_ns
        assert roll_up(spark, settings(tmp_path, observer.url)) == []
        assert (tmp_path / "rollups" / HOURS[0]).stat().st_mtime_ns == before


@pytest.mark.spark
def test_a_broker_that_was_away_is_added(spark: SparkSession, tmp_path: Path) -> None:
    """Hour and day are written again, with what was there already."""
    with (
        serving(tmp_path / "0", polls(-60, 60), now=lambda: NOW) as first,
        serving(tmp_path / "1", polls(-60, -30), ordinal=1) as second,
    ):
        one_away = settings(tmp_path, first.url, "http://127.0.0.1:9")
        assert roll_up(spark, one_away, Bounds(hours=1)) == []
        about = read_about(content(first, HOURS[1]))
        assert about.ordinals == (0,)
        assert about.missing[0].startswith("main-1: the observer did not answer: ")
        fill(second.api.ledger, polls(-20, 20))
        assert roll_up(spark, settings(tmp_path, first.url, second.url), Bounds(hours=1)) == []
        assert read_about(content(first, HOURS[1])).ordinals == (0, 1)
        lives = read_rollup(content(first, "day-2023-11-14.parquet")).lives
        assert [(life.ordinal, life.snapshots) for life in lives] == [(0, 6), (1, 6)]


@pytest.mark.spark
def test_folders_have_their_rollups_beside_them(spark: SparkSession, tmp_path: Path) -> None:
    """Of the same bytes as over HTTP."""
    with serving(tmp_path, polls(-120, 20), now=lambda: NOW) as observer:
        assert roll_up(spark, settings(tmp_path, observer.url)) == []
        folder = FolderRollups(tmp_path / "beside", "main", "shop")
        beside = {"ledgers": (str(tmp_path / "ledger"),), "rollups": folder.folder, "publish": False}
        assert roll_up(spark, settings(tmp_path, **beside)) == []
        for name in stored(observer):
            assert (tmp_path / "beside" / name).read_bytes() == content(observer, name)
    assert sorted(folder.stored() or {}) == [
        RollupName(MIDNIGHT_MS - 24 * 3_600_000, Period.DAY),
        *[RollupName(MIDNIGHT_MS - hours * 3_600_000, Period.HOUR) for hours in (2, 1)],
    ]


@pytest.mark.spark
def test_an_hour_in_which_the_clock_was_set_has_no_pace(spark: SparkSession, tmp_path: Path) -> None:
    """At 22:30 it was set forward by ten minutes: the 50 minutes that the hour seems to have were 40, and 3 messages in
    ten minutes would be fewer. The next hour is whole, and the day that has both is not told.
    """
    before, after, whole = polls(-120, -90), polls(-70, -60), polls(-50, 20)
    first = replace(after[0], clock_step_ms=600_000)
    with serving(tmp_path, [*before, first, *after[1:], *whole], now=lambda: NOW) as observer:
        run = settings(tmp_path, observer.url)
        assert roll_up(spark, run) == []
        (target,) = targets_of(run)
        store = place_of(target, run).store
        clock_set = {str(name): info.clock_set for name, info in (store.stored() or {}).items()}
        assert clock_set == {HOURS[0]: (0,), HOURS[1]: (), "day-2023-11-14.parquet": (0,)}
        said = "main-0: its clock was set, so how long anything took is not known"
        assert said in read_about(content(observer, HOURS[0])).missing
        assert said not in read_about(content(observer, HOURS[1])).missing
        assert read_past(store, MIDNIGHT_MS - 3_600_000 - 1) == PastHours()
        past = read_past(store, MIDNIGHT_MS + 1_200_000)
        assert (past.hour[ORDERS].arrived, past.hour[ORDERS].elapsed_ms) == (15, 3_000_000)
        assert past.day == {}


@pytest.mark.spark
def test_executors_make_the_same_rollups_as_copies_of_the_segments(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They fetch the segments from the observer; byte for byte."""
    with serving(tmp_path, polls(-120, 20), now=lambda: NOW) as observer:
        for folder, here in (("copies", True), ("served", False)):
            monkeypatch.setattr(brokers, "is_local", lambda _, here=here: here)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
            assert roll_up(spark, settings(tmp_path, observer.url, rollups=tmp_path / folder)) == []
    for name in ("day-2023-11-14.parquet", *HOURS):
        assert (tmp_path / "served" / name).read_bytes() == (tmp_path / "copies" / name).read_bytes()


@pytest.mark.spark
def test_of_two_brokers_one_fails(spark: SparkSession, tmp_path: Path) -> None:
    """The observer of `old` refuses the hour, because there it is not over yet; `main` gets its rollups. Both have the
    same hour and queue, and are computed together.
    """
    with (
        serving(tmp_path / "main", polls(-60, 20), now=lambda: NOW) as main,
        serving(tmp_path / "old", polls(-60, 20, instance_id="i-2"), namespace="old", now=lambda: EARLY) as old,
    ):
        run = settings(tmp_path, main.url)
        there, other = targets_of(run)[0], targets_of(settings(tmp_path, old.url, namespace="old"))[0]
        ((target, failure),) = roll_up_targets(spark, [other, there], run)
        assert target == other
        assert "old/main are not complete: the rollup hour-2023-11-14T23.parquet was not stored" in failure.cause
        assert "ends in the future" in failure.cause
        assert "result of the run is not affected" in failure.cure
        assert stored(main) == ["day-2023-11-14.parquet", HOURS[1]]
        assert [life.instance for life in read_rollup(content(main, HOURS[1])).lives] == ["i-1"]


@pytest.mark.spark
def test_an_hour_that_can_t_be_read_does_not_hold_up_the_next_one(spark: SparkSession, tmp_path: Path) -> None:
    """A page of each of its segments is damaged, and its rows stay in the ledger for two days. The day is merged
    without it. Of the next hour only the first segment is damaged: it is made of the others, and says so.
    """
    with serving(tmp_path, polls(-120, 20), now=lambda: NOW) as observer:
        ledger = observer.api.ledger
        hours = [RollupName.of(Period.HOUR, segment.first_ms).start_ms for segment in ledger.segments]
        next_one = ledger.segments[hours.index(MIDNIGHT_MS - 3_600_000)]
        for segment, start_ms in zip(ledger.segments, hours, strict=True):
            if start_ms == MIDNIGHT_MS - 7_200_000 or segment == next_one:
                damaged = (ledger.folder / segment.name).read_bytes()
                (ledger.folder / segment.name).write_bytes(damaged[:4] + b"\xff" * 200 + damaged[204:])
        ((target, failure),) = roll_up(spark, settings(tmp_path, observer.url))
        assert (target.name, type(failure)) == ("shop/main", Failure)
        assert "the ledger could not be evaluated" in failure.cause
        assert stored(observer) == ["day-2023-11-14.parquet", HOURS[1]]
        assert read_about(content(observer, "day-2023-11-14.parquet")).hours == 1
        (first, *_) = read_about(content(observer, HOURS[1])).missing
        assert first.startswith(f"main-0: segment {next_one.name} is not read, because it is damaged: ")


@pytest.mark.spark
def test_a_run_deletes_what_is_past_its_retention_in_a_folder(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hours are kept here, of the five from 22:00 to 03:00. The next run deletes both hours before midnight, which
    are in their day, and computes neither again. The hour after midnight stays: its day is not over.
    """
    monkeypatch.setattr(rollup_retention, "KEPT", {Period.HOUR: 2, Period.DAY: 400})
    folder = tmp_path / "kept"
    with serving(tmp_path, polls(-120, 190)) as observer:
        run = settings(tmp_path, observer.url, rollups=folder, publish=False)
        assert roll_up(spark, run, Bounds(hours=10)) == []
        early = ["hour-2023-11-15T00.parquet", "hour-2023-11-15T01.parquet", "hour-2023-11-15T02.parquet"]
        day = "day-2023-11-14.parquet"
        assert sorted(path.name for path in folder.iterdir()) == [day, *HOURS, *early]
        before = (folder / day).read_bytes()
        fill(observer.api.ledger, polls(200, 250))
        assert roll_up(spark, run, Bounds(hours=10)) == []
        assert sorted(path.name for path in folder.iterdir()) == [day, *early, "hour-2023-11-15T03.parquet"]
        assert (folder / day).read_bytes() == before
        assert read_about(before).hours == 2


@pytest.mark.spark
def test_without_a_place_there_are_no_rollups(spark: SparkSession, tmp_path: Path) -> None:
    """An observer of an earlier release has none, and --no-publish writes none: neither is a failure."""
    with serving(tmp_path, polls(-120, 20), rollups=False) as observer:
        assert roll_up(spark, settings(tmp_path, observer.url)) == []
        assert roll_up(spark, settings(tmp_path, "http://127.0.0.1:9", publish=False)) == []
