"""Rollups whose rows can't be read: they hold up no day, no other hour, and are not tried in every run."""

from __future__ import annotations

from pathlib import Path

import pytest
from lag.test_lag_rollups import a_life, a_run

from penstock_api.rollup_format import RollupAbout, RollupInfo, RollupName
from penstock_lag.ledger.windows import Chosen, Plan
from penstock_lag.rollups.files import read_about, read_rollup, write_rollup
from penstock_lag.rollups.plan import DueHour, due_days
from penstock_lag.rollups.run import RollupPlace, keep_days, keep_hour
from penstock_lag.rollups.stores import FolderRollups
from penstock_lag_rules.rollups import Rollup

NOON_MS = 1_700_049_600_000
"""2023-11-15T12:00:00Z, of the day after those of the tests."""
HOURS = ["hour-2023-11-13T22.parquet", "hour-2023-11-13T23.parquet", "hour-2023-11-14T22.parquet"]


def named(text: str) -> RollupName:
    """The name that is written so."""
    name = RollupName.parse(text)
    assert name is not None
    return name


def rows_of(name: RollupName, ordinal: int = 0) -> Rollup:
    """A poll of one broker with one subscription."""
    about = {"first_ms": name.start_ms, "last_ms": name.start_ms, "ordinal": ordinal}
    seq = name.start_ms // 1000
    return Rollup(
        (a_run(first_seq=seq, last_seq=seq + 9, **about),), (a_life(first_seq=seq, last_seq=seq + 8, **about),)
    )


def damaged(content: bytes) -> bytes:
    """The same file with a page that can't be read; its end, which is all that a list of rollups needs, is whole."""
    return content[:4] + b"\xff" * 200 + content[204:]


@pytest.fixture
def place(tmp_path: Path) -> RollupPlace:
    """Three hours of two days, the first of them damaged."""
    store = FolderRollups(tmp_path, "main", "shop")
    for number, text in enumerate(HOURS):
        about = RollupAbout(broker="main", namespace="shop", name=text, ordinals=(0,), hours=1)
        content = write_rollup(rows_of(named(text)), about)
        store.put(named(text), damaged(content) if number == 0 else content)
    return RollupPlace("main", "shop", store)


def stored(place: RollupPlace) -> dict[RollupName, RollupInfo]:
    """What a run finds."""
    found = place.store.stored()
    assert found is not None
    return found


def test_a_day_is_merged_without_an_hour_that_can_t_be_read_and_so_are_the_days_after_it(place: RollupPlace) -> None:
    """It says which is missing. The next run merges none of them again, unless the hour is there again."""
    first, second = named("day-2023-11-13.parquet"), named("day-2023-11-14.parquet")
    written = keep_days(place, stored(place), NOON_MS, ())
    assert [*written] == [first, second]
    content = place.store.get(first)
    assert [life.first_ms for life in read_rollup(content).lives] == [named(HOURS[1]).start_ms]
    told = read_about(content).missing
    assert told[0] == "22 of 24 hours have no rollup"
    assert told[1].startswith("hour-2023-11-13T22.parquet is missing, because it could not be read: ")
    assert due_days(stored(place), NOON_MS) == []
    assert [day for day, _ in due_days(stored(place), NOON_MS, [named(HOURS[0])])] == [first]


def test_a_broker_that_is_back_is_added_to_an_hour_that_can_t_be_read(place: RollupPlace) -> None:
    """The others are missing in it then, so that they are due again as long as the ledger has them."""
    name = named(HOURS[0])
    plan = Plan(name.start_ms, name.end_ms - 1, windows=(), segments=(), rows=0, missing=())
    info = keep_hour(place, DueHour(name, plan, keeps=True), rows_of(name, ordinal=1))
    assert info.ordinals == (1,)
    told = read_about(place.store.get(name)).missing
    assert told[-1].startswith("the other brokers are missing, because their rollup could not be read: ")
    assert [life.ordinal for life in read_rollup(place.store.get(name)).lives] == [1]


def test_what_is_missing_of_other_brokers_is_not_forgotten_when_one_is_added(place: RollupPlace) -> None:
    """Of the one that is added now it is said anew."""
    name = named(HOURS[1])
    told = ("main-0: rows 7 to 99 of its ledger are gone", "main-1: its observer does not answer", "main-12: no row")
    about = RollupAbout(broker="main", namespace="shop", name=str(name), ordinals=(0,), hours=1, missing=told)
    place.store.put(name, write_rollup(rows_of(name), about))
    plan = Plan(name.start_ms, name.end_ms - 1, (), segments=(Chosen(1, "0-1-9.parquet"),), rows=9, missing=())
    keep_hour(place, DueHour(name, plan, keeps=True), rows_of(name, ordinal=1))
    assert read_about(place.store.get(name)).missing == (
        "main-1: its polls cover 1 of 60 minutes",
        "main-0: rows 7 to 99 of its ledger are gone",
        "main-12: no row",
    )
