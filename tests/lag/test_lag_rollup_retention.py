"""A folder of rollups does not grow for ever, and loses nothing that a run or a history still needs."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_api.rollup_format import Period, RollupAbout, RollupInfo, RollupName
from penstock_lag.rollups import stores
from penstock_lag.rollups.files import about_of, write_rollup
from penstock_lag.rollups.past_hours import read_past
from penstock_lag.rollups.plan import due_days
from penstock_lag.rollups.run import RollupPlace, keep_days
from penstock_lag.rollups.stores import FolderRollups
from penstock_lag_rules import rollup_retention
from penstock_lag_rules.rollup_retention import deletable
from penstock_lag_rules.rollups import Rollup

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MIDNIGHT_MS = 1_700_006_400_000
"""2023-11-15T00:00:00Z."""


def hour(number: int) -> RollupName:
    """An hour after midnight."""
    return RollupName(MIDNIGHT_MS + number * HOUR_MS, Period.HOUR)


def day(number: int) -> RollupName:
    return RollupName(MIDNIGHT_MS + number * DAY_MS, Period.DAY)


def infos(*names: RollupName, hours: int = 24, ordinals: tuple[int, ...] = (0,)) -> dict[RollupName, RollupInfo]:
    """Days are of so many hours."""
    return {
        name: RollupInfo(
            name=str(name), bytes=1, rows=1, hours=hours if name.period is Period.DAY else 1, ordinals=ordinals
        )
        for name in names
    }


def content(name: RollupName) -> bytes:
    about = RollupAbout(broker="main", namespace="shop", name=str(name), ordinals=(0,), hours=1)
    return write_rollup(Rollup(), about)


WEEK = [hour(number) for number in range(-168, 0)]
"""The 168 hours before midnight."""


def test_the_newest_168_hours_and_400_days_stay() -> None:
    """Hours go before days. The two oldest hours are in the day of theirs, the eighth before midnight's."""
    days = [day(-number) for number in range(1, 402)]
    assert deletable(infos(*WEEK, hour(-169), hour(-170), *days), (), MIDNIGHT_MS) == [
        hour(-170),
        hour(-169),
        day(-401),
    ]


@pytest.mark.parametrize(
    ("merged", "gone"),
    [
        (infos(day(-8), hours=2), [hour(-170), hour(-169)]),
        (infos(day(-8), hours=1), []),  # one of the two came later, and the day is to be merged again
        (infos(day(-8), hours=2, ordinals=(1,)), []),  # a broker that was away came later
        ({}, []),  # the run that would have merged them was killed
    ],
    ids=["merged", "merged of one", "without a broker", "not merged"],
)
def test_an_hour_stays_until_its_day_has_it(merged: dict[RollupName, RollupInfo], gone: list[RollupName]) -> None:
    assert deletable(infos(*WEEK, hour(-169), hour(-170)) | merged, (), MIDNIGHT_MS) == gone


def test_a_damaged_hour_goes_with_its_age() -> None:
    """No day can be made of it. One that is not so old stays: the ledger may still have it."""
    assert deletable(infos(*WEEK[1:]), [hour(-169), hour(-168)], MIDNIGHT_MS) == [hour(-169)]


def test_hours_that_are_yet_to_come_drive_out_none() -> None:
    """The broker's clock was ahead by ten days, and was set back."""
    assert deletable(infos(*WEEK, hour(240), hour(241)), (), MIDNIGHT_MS) == []


def test_a_folder_stays_as_large_as_it_is_run_by_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in each of 120 hours, where 30 hours and 3 days are kept. Each day is merged of all its hours, the paces
    of the past day have their hours, and no day is merged a second time because hours of it are gone.
    """
    monkeypatch.setattr(rollup_retention, "KEPT", {Period.HOUR: 30, Period.DAY: 3})
    store = FolderRollups(tmp_path, "main", "shop")
    place = RollupPlace("main", "shop", store)
    for number in range(120):
        now_ms = hour(number).end_ms
        stored = store.stored() or {}
        for name in store.prune(stored, now_ms):
            del stored[name]
        store.put(hour(number), content(hour(number)))
        stored |= infos(hour(number))
        merged = keep_days(place, stored, now_ms, [hour(number)])
        assert {name: info.hours for name, info in merged.items()} == (
            {day(number // 24): 24} if number % 24 == 23 else {}
        )
        read_past(store, now_ms)
        assert {hour(each) for each in range(max(number - 23, 0), number + 1)} <= set(store.stored() or {})
    found = sorted(store.stored() or {})
    assert [name for name in found if name.period is Period.DAY] == [day(number) for number in range(1, 5)]
    assert [name for name in found if name.period is Period.HOUR] == [hour(number) for number in range(89, 120)]
    assert {path.name for path in tmp_path.iterdir()} == {str(name) for name in found}


def test_a_run_that_is_killed_while_it_prunes_leaves_what_another_can_work_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each number of deletions: nothing is due again, and the next run deletes the rest."""
    monkeypatch.setattr(rollup_retention, "KEPT", {Period.HOUR: 2, Period.DAY: 1})
    names = [*(hour(number) for number in (*range(-30, -20), -3, -2)), day(-2), day(-1)]
    hours = {day(-2): 6, day(-1): 6}

    def fill() -> FolderRollups:
        for path in tmp_path.iterdir():
            path.unlink()
        for name in names:
            about = RollupAbout(broker="main", namespace="shop", name=str(name), hours=hours.get(name, 1), ordinals=())
            (tmp_path / str(name)).write_bytes(write_rollup(Rollup(), about))
        return FolderRollups(tmp_path, "main", "shop")

    store = fill()
    all_of_it = store.prune(store.stored() or {}, MIDNIGHT_MS)
    assert all_of_it == [*(hour(number) for number in range(-30, -20)), day(-2)]
    unlink = Path.unlink

    class Killed(BaseException):
        pass

    for last in range(len(all_of_it)):
        store, left = fill(), last

        def killed(path: Path, missing_ok: bool = False) -> None:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            unlink(path, missing_ok=missing_ok)

        stored = store.stored() or {}
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", killed)
            with pytest.raises(Killed):
                store.prune(stored, MIDNIGHT_MS)
        stored = store.stored() or {}
        assert due_days(stored, MIDNIGHT_MS) == []
        assert store.prune(stored, MIDNIGHT_MS) == all_of_it[last:]
        assert sorted(store.stored() or {}) == sorted(set(names) - set(all_of_it))


def test_what_another_run_prunes_meanwhile_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two are gone between the list of the folder and the reading of their ends, when the first one is read."""
    store = FolderRollups(tmp_path, "main", "shop")
    names = [hour(-3), hour(-2), hour(-1)]
    for name in names:
        store.put(name, content(name))

    def pruned(path: Path) -> RollupAbout:
        for name in names:
            if str(name) != path.name:
                (tmp_path / str(name)).unlink(missing_ok=True)
        return about_of(path)

    monkeypatch.setattr(stores, "about_of", pruned)
    assert len(store.stored() or {}) == 1


def test_what_can_t_be_deleted_is_told_and_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Another run has deleted the oldest meanwhile; then the folder is read-only."""
    store = FolderRollups(tmp_path, "main", "shop")
    stored = infos(*WEEK, hour(-169), hour(-170), day(-8), hours=2)
    with caplog.at_level(logging.INFO):
        assert store.prune(stored, MIDNIGHT_MS) == [hour(-170), hour(-169)]
    assert f"deleted 2 rollups past their retention in {tmp_path}, the first hour-2023-11-07T22.parquet" in caplog.text
    (tmp_path / str(hour(-170))).mkdir()
    with caplog.at_level(logging.ERROR):
        assert store.prune(stored, MIDNIGHT_MS) == []
    assert f"old rollups in {tmp_path} can't be deleted: " in caplog.text
    assert os.listdir(tmp_path) == [str(hour(-170))]


@given(
    st.sets(st.integers(min_value=-600, max_value=-1), max_size=400),
    st.sets(st.integers(min_value=-60, max_value=-1), max_size=60),
    st.integers(min_value=1, max_value=24),
    st.booleans(),
)
def test_what_stays_is_enough_for_the_same_days(
    hours: set[int], days: set[int], merged: int, lacks_a_broker: bool
) -> None:
    """Whatever there is: no day becomes due, or is due of less, because of what was deleted, and the newest hours and
    days stay.
    """
    stored = infos(*map(hour, hours)) | infos(*map(day, days), hours=merged, ordinals=() if lacks_a_broker else (0,))
    gone = deletable(stored, (), MIDNIGHT_MS)
    left = {name: info for name, info in stored.items() if name not in gone}
    assert due_days(left, MIDNIGHT_MS) == due_days(stored, MIDNIGHT_MS)
    newest = sorted(map(hour, hours))[-168:]
    assert set(newest) <= set(left)
    assert set(map(day, days)) <= set(left), "there are at most 60"
