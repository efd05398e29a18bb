"""The store of rollups: what is refused, what is kept, what goes first, and who may read and write them."""

from __future__ import annotations

import importlib
import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_api.observer_tokens import TOKEN_SCOPES, Scope
from penstock_api.rollup_format import ABOUT_KEY, COLUMNS, Period, RollupAbout, RollupName
from penstock_lag.rollups.files import SCHEMA as JOB_SCHEMA
from penstock_lag.rollups.files import write_rollup
from penstock_lag_rules import rollup_retention
from penstock_lag_rules.rollup_retention import past_retention
from penstock_lag_rules.rollups import BrokerRow, Rollup
from penstock_observer.results import BrokerPod, RejectedResult
from penstock_observer.rollups import RollupStore, check_rollup, surplus
from penstock_observer.scopes import PATH_SCOPES

pa: Any = importlib.import_module("pyarrow")  # it ships no type information
pq: Any = importlib.import_module("pyarrow.parquet")

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOON_MS = 1_700_049_600_000
"""2023-11-15T12:00:00Z."""
NAME = "hour-2023-11-15T11.parquet"
PLACE = BrokerPod("main", "shop", 0)
RUN = BrokerRow(
    ordinal=0,
    instance="i-1",
    epoch=3,
    first_seq=1,
    last_seq=9,
    first_ms=NOON_MS - 90_000,
    last_ms=NOON_MS - 10_000,
    snapshots=9,
    interval_ms=10_000,
    first_complete_seq=1,
)


def a_rollup(name: str = NAME, **about: Any) -> bytes:
    """The file of a rollup with one row, of a broker."""
    values: dict[str, Any] = {"broker": "main", "namespace": "shop", "name": name, "ordinals": (0,), "hours": 1}
    return write_rollup(Rollup((RUN,)), RollupAbout(**(values | about)))


def test_the_list_says_in_which_hours_a_clock_was_set(tmp_path: Path) -> None:
    """Also after a restart, and of an hour that a later run has made again."""
    later = "hour-2023-11-15T10.parquet"
    store = RollupStore(tmp_path, PLACE, 10**6)
    store.put(NAME, a_rollup(clock_set=(0,)), NOON_MS)
    store.put(later, a_rollup(later), NOON_MS)
    for kept in (store, RollupStore(tmp_path, PLACE, 10**6)):
        assert {info.name: info.clock_set for info in kept.rollups} == {NAME: (0,), later: ()}


def hour(number: int) -> RollupName:
    """An hour after noon."""
    return RollupName(NOON_MS + number * HOUR_MS, Period.HOUR)


def day(number: int) -> RollupName:
    """A day after that of noon."""
    return RollupName(NOON_MS - NOON_MS % DAY_MS + number * DAY_MS, Period.DAY)


@pytest.mark.parametrize(
    ("name", "start_ms"),
    [("hour-2023-11-15T11.parquet", NOON_MS - HOUR_MS), ("day-2023-11-15.parquet", NOON_MS - 12 * HOUR_MS)],
)
def test_a_name_says_period_and_start(name: str, start_ms: int) -> None:
    """And it is read back."""
    parsed = RollupName.parse(name)
    assert parsed is not None
    assert (parsed.start_ms, str(parsed)) == (start_ms, name)


@pytest.mark.parametrize(
    "name",
    [
        "hour-2023-11-15.parquet",
        "day-2023-11-15T11.parquet",
        "hour-2023-11-15T24.parquet",
        "day-2023-02-30.parquet",
        "day-2023-11-15.parquet.parquet",
        "../day-2023-11-15.parquet",
        "day-1969-12-31.parquet",
        ".day-2023-11-15.parquet",
    ],
)
def test_nothing_else_is_the_name_of_a_rollup(name: str) -> None:
    """Names become parts of paths."""
    assert RollupName.parse(name) is None


@given(st.integers(min_value=0, max_value=253_402_300_799_999), st.sampled_from(Period))
def test_the_rollup_of_a_moment_contains_it(moment_ms: int, period: Period) -> None:
    """Until the year 9999."""
    name = RollupName.of(period, moment_ms)
    assert name.start_ms <= moment_ms < name.end_ms
    assert RollupName.parse(str(name)) == name


def test_both_sides_have_the_columns_of_the_contract() -> None:
    """In their order."""
    assert tuple(JOB_SCHEMA.names) == tuple(column.name for column in COLUMNS)
    assert check_rollup(a_rollup())[1] == 1


def test_rollups_of_an_earlier_release_are_kept_and_taken(tmp_path: Path) -> None:
    """They have no `purged`. Those that were kept are still there after an upgrade, and a job that is upgraded later
    than the observer goes on writing.
    """
    earlier = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(a_rollup())).drop_columns(["first_purged", "last_purged"]), earlier)
    (tmp_path / NAME).write_bytes(earlier.getvalue())
    store = RollupStore(tmp_path, PLACE, 10**6)
    assert [info.name for info in store.rollups] == [NAME]
    store = RollupStore(tmp_path / "other", PLACE, 10**6)
    assert store.put(NAME, earlier.getvalue(), NOON_MS)


def test_a_rollup_is_kept_and_found_again(tmp_path: Path) -> None:
    """Also by the next process; a hidden file of an unfinished write goes."""
    store = RollupStore(tmp_path, PLACE, 10**6)
    content = a_rollup()
    assert store.put(NAME, content, NOON_MS)
    assert not store.put(NAME, content, NOON_MS), "the same bytes"
    (tmp_path / f".{NAME}").write_bytes(b"half")
    (tmp_path / "hour-2023-11-15T10.parquet").write_bytes(b"damaged")
    again = RollupStore(tmp_path, PLACE, 10**6)
    assert [(info.name, info.rows, info.bytes, info.ordinals) for info in again.rollups] == [
        (NAME, 1, len(content), (0,))
    ]
    path = again.path_of(NAME)
    assert path is not None
    assert path.read_bytes() == content
    assert not (tmp_path / f".{NAME}").exists()
    assert again.path_of("hour-2023-11-15T10.parquet") is None


def test_a_damaged_rollup_is_told_once_and_goes_with_its_age(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at each start for a year; and it does not drive out a good one."""
    monkeypatch.setattr(rollup_retention, "KEPT", {Period.HOUR: 2, Period.DAY: 1})
    (tmp_path / str(hour(-3))).write_bytes(b"damaged")
    for store in (RollupStore(tmp_path, PLACE, 10**6) for _ in range(3)):
        assert (store.rollups, store.path_of(str(hour(-3)))) == ((), None)
    assert [record.getMessage() for record in caplog.records] == [
        "rollup hour-2023-11-15T09.parquet is damaged, and what it told is lost unless the lag job makes it again, "
        "which it does as long as the ledger has that time: the body is no Parquet file: Parquet file size is 7 bytes, "
        "smaller than the minimum file footer (8 bytes); the file is now "
        "hour-2023-11-15T09.parquet.damaged and is deleted with the rollups of its age"
    ]
    store = RollupStore(tmp_path, PLACE, 10**6)
    there = {f"{hour(-3)}.damaged"}
    for number in (-4, -2):
        assert store.put(str(hour(number)), a_rollup(str(hour(number))), NOON_MS)
        there.add(str(hour(number)))
        assert {path.name for path in tmp_path.iterdir()} == there
    assert store.put(str(hour(-1)), a_rollup(str(hour(-1))), NOON_MS)
    assert {path.name for path in tmp_path.iterdir()} == {str(hour(-2)), str(hour(-1))}


def test_a_rollup_that_is_made_again_takes_the_place_of_the_damaged_one(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"damaged")
    store = RollupStore(tmp_path, PLACE, 10**6)
    assert store.put(NAME, a_rollup(), NOON_MS)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert [info.name for info in RollupStore(tmp_path, PLACE, 10**6).rollups] == [NAME]


def test_damaged_rollups_make_room_before_any_other(tmp_path: Path) -> None:
    """The oldest first, until all are within the limit."""
    for number in (-2, -3, -4):
        (tmp_path / str(hour(number))).write_bytes(bytes(1000))
    content = a_rollup()
    store = RollupStore(tmp_path, PLACE, len(content) + 1500)
    assert store.put(NAME, content, NOON_MS)
    assert {path.name for path in tmp_path.iterdir()} == {NAME, f"{hour(-2)}.damaged"}


def test_a_rollup_of_a_later_release_stays_under_its_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After a rollback. It is not damaged, and the later release finds it again, unless another takes its place."""
    (tmp_path / NAME).write_bytes(a_rollup(version=2))
    store = RollupStore(tmp_path, PLACE, 10**6)
    assert (store.rollups, caplog.records) == ((), [])
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert store.put(NAME, a_rollup(), NOON_MS)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_rollup_that_the_disk_does_not_give_keeps_no_observer_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it set aside: the disk may give it tomorrow."""
    read = Path.read_bytes

    def failing(path: Path) -> bytes:
        if path.name == NAME:
            raise OSError(5, "Input/output error")
        return read(path)

    other = str(hour(-2))
    (tmp_path / NAME).write_bytes(a_rollup())
    (tmp_path / other).write_bytes(a_rollup(other))
    monkeypatch.setattr(Path, "read_bytes", failing)
    assert [info.name for info in RollupStore(tmp_path, PLACE, 10**6).rollups] == [other]
    monkeypatch.setattr(Path, "read_bytes", read)
    assert [info.name for info in RollupStore(tmp_path, PLACE, 10**6).rollups] == [other, NAME]


def _without_a_column() -> bytes:
    table = pq.read_table(io.BytesIO(a_rollup()))
    body = io.BytesIO()
    pq.write_table(table.drop_columns(["depth_area"]), body)
    return body.getvalue()


def _without_metadata() -> bytes:
    body = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(a_rollup())).replace_schema_metadata({}), body)
    return body.getvalue()


def _nonsense() -> bytes:
    body = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(a_rollup())).replace_schema_metadata({ABOUT_KEY: b"{"}), body)
    return body.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        pytest.param("x.parquet", a_rollup(), "BadRollupName", id="no name of a rollup"),
        pytest.param(NAME, b"nothing", "NotARollup", id="no Parquet"),
        pytest.param(NAME, a_rollup().replace(b"depth_area", b"depth\xffarea"), "NotARollup", id="damaged name"),
        pytest.param(NAME, _without_metadata(), "NotARollup", id="says nothing"),
        pytest.param(NAME, _nonsense(), "NotARollup", id="says nonsense"),
        pytest.param(NAME, _without_a_column(), "NotARollup", id="lacks a column"),
        pytest.param(NAME, a_rollup(version=2), "OtherVersion", id="later version"),
        pytest.param(NAME, a_rollup("hour-2023-11-15T10.parquet"), "BadRollupName", id="another hour"),
        pytest.param(NAME, a_rollup(broker="other"), "OtherBroker", id="another Broker"),
        pytest.param(str(hour(1)), a_rollup(str(hour(1))), "FutureRollup", id="not over yet"),
    ],
)
def test_what_is_no_rollup_of_this_broker_is_refused(tmp_path: Path, name: str, content: bytes, error: str) -> None:
    """Nothing is written."""
    store = RollupStore(tmp_path, PLACE, 10**6)
    with pytest.raises(RejectedResult) as refused:
        store.put(name, content, NOON_MS)
    assert refused.value.error == error
    assert list(tmp_path.iterdir()) == []


def test_only_the_first_observer_keeps_rollups(tmp_path: Path) -> None:
    """As with results."""
    with pytest.raises(RejectedResult) as refused:
        RollupStore(tmp_path, BrokerPod("main", "shop", 1), 10**6).put(NAME, a_rollup(), NOON_MS)
    assert refused.value.error == "NotKeptHere"


def test_the_newest_168_hours_and_400_days_are_kept() -> None:
    """Of 170 hours and 401 days the oldest go."""
    names = [*(hour(-number) for number in range(1, 171)), *(day(-number) for number in range(1, 402))]
    assert past_retention(names, NOON_MS) == [day(-401), hour(-170), hour(-169)]
    assert surplus(dict.fromkeys(names, 1), 1000, NOON_MS) == [day(-401), hour(-170), hour(-169)]


FULL = [hour(-number) for number in range(1, 169)]


def test_a_clock_set_forward_by_days_expires_no_rollup() -> None:
    """By ten days: the week that is kept is still the newest there is. The hour that comes takes the place of one."""
    sizes = dict.fromkeys(FULL, 1)
    assert surplus(sizes, 1000, NOON_MS + 10 * DAY_MS) == []
    assert surplus({**sizes, hour(239): 1}, 1000, NOON_MS + 10 * DAY_MS) == [hour(-168)]


def test_a_rollup_that_is_yet_to_come_drives_out_no_other() -> None:
    """The clock was set back: the hour of ten days ahead is kept beside those of the week, and the newest hours are
    those that the next day needs. By bytes it goes after the old hours, before the days.
    """
    sizes = {**dict.fromkeys(FULL, 1), hour(240): 1, day(-1): 1}
    assert surplus(sizes, 1000, NOON_MS) == []
    assert surplus({**sizes, hour(0): 1}, 1000, NOON_MS + HOUR_MS) == [hour(-168)]
    gone = surplus(sizes, 26, NOON_MS)
    assert gone == [*(hour(-number) for number in range(168, 26, -1)), hour(240), day(-1)]


def test_only_rollups_that_are_yet_to_come_are_limited_too() -> None:
    """A clock that was set back by years."""
    assert past_retention([hour(1000 + number) for number in range(170)], NOON_MS) == [hour(1000), hour(1001)]


def test_an_hour_older_than_those_that_are_kept_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would go at once."""
    monkeypatch.setattr(rollup_retention, "KEPT", {Period.HOUR: 2, Period.DAY: 1})
    store = RollupStore(tmp_path, PLACE, 10**6)
    for number in (-5, -3):
        assert store.put(str(hour(number)), a_rollup(str(hour(number))), NOON_MS)
    with pytest.raises(RejectedResult) as refused:
        store.put(str(hour(-6)), a_rollup(str(hour(-6))), NOON_MS)
    assert (refused.value.error, refused.value.conflict) == ("OlderThanKept", True)
    assert refused.value.message == "hour-2023-11-15T06.parquet is older than the 2 newest hours, which are kept"
    assert store.put(str(hour(-4)), a_rollup(str(hour(-4))), NOON_MS)
    assert [info.name for info in store.rollups] == [str(hour(-4)), str(hour(-3))]


def test_beyond_the_limit_the_oldest_hours_go_before_any_day() -> None:
    """Hours from which the next day is made stay longer than days: hour -26 began 26 hours before the newest ended, and
    -27 is older. The newest hour stays in any case.
    """
    sizes = {hour(-1): 4, hour(-26): 4, hour(-27): 4, hour(-28): 4, day(-3): 4, day(-2): 4}
    assert surplus(sizes, 20, NOON_MS) == [hour(-28)]
    assert surplus(sizes, 16, NOON_MS) == [hour(-28), hour(-27)]
    assert surplus(sizes, 8, NOON_MS) == [hour(-28), hour(-27), day(-3), day(-2)]
    assert surplus(sizes, 1, NOON_MS) == [hour(-28), hour(-27), day(-3), day(-2), hour(-26)]


def test_who_reads_and_who_writes_rollups() -> None:
    """By the table of decision 70."""
    readers = {name for name, scopes in TOKEN_SCOPES.items() if Scope.READ_ROLLUPS in scopes}
    writers = {name for name, scopes in TOKEN_SCOPES.items() if Scope.WRITE_ROLLUPS in scopes}
    assert readers == {"token", "lag.token", "ledger.token", "page.token"}
    assert writers == {"token", "lag.token"}
    assert PATH_SCOPES["PUT", "/v1/rollups/{name}"] is Scope.WRITE_ROLLUPS
    assert PATH_SCOPES["GET", "/v1/rollups/{name}"] is Scope.READ_ROLLUPS
    assert PATH_SCOPES["GET", "/v1/rollups"] is Scope.READ_ROLLUPS


def test_noon_is_noon() -> None:
    """The constant that the names are typed from."""
    assert datetime.fromtimestamp(NOON_MS / 1000, UTC).isoformat() == "2023-11-15T12:00:00+00:00"
