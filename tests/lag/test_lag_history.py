"""The history of a range: periods that add up, the table, the range that is asked for, and the whole path once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from lag.observer_server import serving
from lag.test_lag_rollup_run import MIDNIGHT_MS, NOW, polls, settings
from lag.test_lag_rollups import a_life, hours_of, snapshots
from pyspark.sql import SparkSession

from penstock_api.failure import Failure, Misuse
from penstock_api.lag_history import LagHistory
from penstock_api.rollup_format import Period, RollupName
from penstock_lag.rollups.backfill import backfill, hand_out
from penstock_lag.rollups.history_periods import period_history
from penstock_lag.rollups.history_table import as_history_table
from penstock_lag.settings import LagJobSettings
from penstock_lag.targets import targets_of
from penstock_lag_rules.figures import Growth
from penstock_lag_rules.rollups import LifeRow, Rollup, growth, merged

HOUR_MS = 3_600_000
NAME = RollupName(MIDNIGHT_MS, Period.HOUR)
NOW_MS = MIDNIGHT_MS + 3 * HOUR_MS


@given(snapshots())
def test_the_periods_add_up(rows: list[LifeRow]) -> None:
    """What the hours say together is what the day says: nothing is lost between two of them."""
    hours = hours_of(rows)
    pairs = zip([None, *hours[:-1]], hours, strict=True)
    told = [period_history(NAME, hour, before, 1, ()) for before, hour in pairs]
    (grew,) = growth(merged(hours)).values()
    found = [one for period in told for one in period.subscriptions]
    assert sum(one.arrived for one in found) == grew.enqueued
    assert sum(one.accepted for one in found) == grew.acked
    assert sum(one.lost for one in found) == grew.lost


def test_the_figures_of_a_period() -> None:
    """3,000 message-seconds in 100 s are 30 messages in the mean. After the hour before, 40 came, and 25 were accepted
    within 8 to 9 ms.
    """
    before = a_life(
        last=Growth(enqueued=10, acked=5),
        first_buckets={"sojourn": ((24, 1),)},
        last_buckets={"sojourn": ((24, 5),)},
    )
    life = a_life(
        owner_namespace="shop",
        owner_name="orders",
        first_seq=20,
        last_seq=30,
        first_ms=MIDNIGHT_MS,
        last_ms=MIDNIGHT_MS + 100_000,
        last_depth=20,
        max_depth=33,
        depth_area=3_000_000,
        max_age_ms=61_999,
        max_consumers=4,
        first=Growth(enqueued=12, acked=7),
        last=Growth(enqueued=50, acked=30, expired=2, moved=3),
        first_buckets={"sojourn": ((24, 7),)},
        last_buckets={"sojourn": ((24, 30),)},
    )
    made = period_history(NAME, Rollup((), (life,)), Rollup((), (before,)), 1, ("a sentence",))
    told = made.model_copy(update={"missing": ("\x1b[2J",)})
    ends: dict[str, Any] = {"from_time": made.start, "to_time": made.end}
    table = as_history_table(LagHistory(broker="main", namespace="shop", periods=(told,), **ends))
    assert "MISSING 2023-11-15 00:00: \ufffd[2J\n" in table, "nothing in a table can control the terminal"
    document = made.model_dump(by_alias=True, mode="json", exclude_none=True)
    assert document == {
        "start": "2023-11-15T00:00:00Z",
        "end": "2023-11-15T01:00:00Z",
        "hours": 1,
        "missing": ["a sentence"],
        "subscriptions": [
            {
                "queueName": "q",
                "ordinal": 0,
                "ownerNamespace": "shop",
                "ownerName": "orders",
                "arrived": 40,
                "accepted": 25,
                "redelivered": 0,
                "expired": 2,
                "deadLettered": 0,
                "dropped": 0,
                "lostAtRestart": 0,
                "lost": 2,
                "moved": 3,
                "purged": 0,
                "messages": 20,
                "mostMessages": 33,
                "meanMessages": 30,
                "oldestAgeSeconds": 61,
                "sojournP50Millis": 8,
                "sojournP95Millis": 8,
                "sojournP99Millis": 8,
                "leastConsumers": 1,
                "mostConsumers": 4,
            }
        ],
    }


def at(hour: int, day: int = 14) -> datetime:
    """A time in November 2023."""
    return datetime(2023, 11, day, hour, tzinfo=UTC)


def refused(run: LagJobSettings) -> str:
    """What is said of a range that can't be. Spark is not started for that."""
    with pytest.raises(Misuse) as error:
        backfill(run, targets_of(run)[0], _never, lambda: NOW_MS)
    return error.value.cause


def _never(_: object) -> Any:
    raise AssertionError("Spark was started")


@pytest.mark.parametrize(
    ("begin", "end", "said"),
    [
        (at(5), at(5), "--from is not before --to."),
        (at(5), at(4), "--from is not before --to."),
        (at(4, 15), at(5, 15), "--from is in the future."),
        (at(2, 15), at(4, 15), "--to is in the future."),
        (datetime(2022, 1, 1, tzinfo=UTC), at(5), "--from and --to are more than 400 days apart."),
    ],
)
def test_a_range_that_can_not_be(tmp_path: Path, begin: datetime, end: datetime, said: str) -> None:
    """It is three o'clock on the 15th."""
    assert refused(settings(tmp_path, "http://127.0.0.1:9", from_time=begin, to_time=end)) == said


@pytest.mark.parametrize(
    "changed",
    [
        {"from_time": None, "to_time": at(5)},
        {"from_time": at(4), "as_of": at(5)},
        {"from_time": at(4), "observers": (), "ledgers": ("x",), "publish": False},
    ],
)
def test_options_that_do_not_go_together(tmp_path: Path, changed: dict[str, Any]) -> None:
    """Said before anything is done."""
    with pytest.raises(Misuse):
        replace(settings(tmp_path, "http://127.0.0.1:9"), **changed)


def _names(found: LagHistory) -> Sequence[tuple[int, int, list[int]]]:
    """Of each period the hour of its start, its hours, and what arrived."""
    return [(each.start.hour, each.hours, [one.arrived for one in each.subscriptions]) for each in found.periods]


@pytest.mark.spark
def test_a_backfill_on_the_whole_path(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """6 polls an hour, 3 messages each; what came between 22:50 and 23:00 belongs to 23:00. The hour from 00:00 is not
    over. Nothing is written without a place; then the ledger is lost, and the rollups still tell it.
    """
    span = {"from_time": at(21), "to_time": datetime(2023, 11, 15, 1, tzinfo=UTC)}

    def told(*urls: str, **changes: Any) -> LagHistory:
        run = settings(tmp_path, *urls, **{**span, **changes})
        history = backfill(run, targets_of(run)[0], lambda _: nullcontext(spark), lambda: NOW_MS)
        hand_out(run, history)
        return history

    expected: list[tuple[int, int, list[int]]] = [(21, 0, []), (22, 1, [15]), (23, 1, [18]), (0, 0, [])]
    with serving(tmp_path, polls(-120, 20), now=lambda: NOW) as observer:
        assert _names(told(observer.url, publish=False)) == expected
        kept = observer.api.rollups
        assert kept is not None
        assert list(kept.rollups) == []
        made = told(observer.url)
        assert _names(made) == expected
        names = ("day-2023-11-14.parquet", "hour-2023-11-14T22.parquet", "hour-2023-11-14T23.parquet")
        assert made.written == names
        assert tuple(each.name for each in kept.rollups) == names
        assert told(observer.url).written == names, "they are computed again"
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == [
        *("2023-11-14", "22:00", "psub:durable:global:orders"),
        *("15", "10", "0", "5", "5", "2", "-", "-", "1-1"),
    ]
    assert lines[3] == ("MISSING 2023-11-14 21:00: there is no rollup, and the ledger has no closed hour of it")
    with serving(tmp_path / "empty", [], now=lambda: NOW) as observer:
        with pytest.raises(Failure, match="there is no ledger and no rollup of shop/main"):
            told(observer.url)
        again = told(observer.url, rollups=tmp_path / "rollups")
        assert (_names(again), again.written) == (expected, ())
