"""The result store: what goes in, what is kept, which is the latest."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from observer.samples import END, a_result

from penstock_api.failure import CannotRun
from penstock_observer.results import BrokerPod, RefuseResult, RejectedResult, ResultStore, Store, beyond_size, decide

PLACE = BrokerPod(broker="main", namespace="shop", ordinal=0)
NOW = END + timedelta(minutes=5)


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    """A store of three."""
    return ResultStore(tmp_path, PLACE, keep=3)


def minutes(count: int) -> datetime:
    """A window end."""
    return END + timedelta(minutes=count)


@pytest.mark.parametrize(
    ("stored", "run_name", "end", "expected"),
    [
        ({}, "a", 0, Store(())),
        ({"a": 0}, "b", -1, Store(())),  # an older window still has its place
        ({"a": 0, "b": 1}, "c", 2, Store(("a",))),
        ({"a": 1, "b": 0}, "c", 2, Store(("b",))),
        ({"a": 0, "b": 1}, "a", 3, Store(())),  # the same run again, later
        ({"a": 0, "b": 1, "c": 2}, "d", 3, Store(("b", "a"))),  # the limit was lowered
    ],
)
def test_what_is_stored_and_what_has_to_go(stored: dict[str, int], run_name: str, end: int, expected: Store) -> None:
    """Two are kept."""
    assert decide({name: minutes(at) for name, at in stored.items()}, run_name, minutes(end), keep=2) == expected


@pytest.mark.parametrize(
    ("stored", "run_name", "end", "error"),
    [
        ({"a": 5}, "a", 4, "OlderThanStored"),
        ({"a": 5, "b": 6}, "c", 4, "OlderThanKept"),
    ],
)
def test_what_is_too_old_is_refused(stored: dict[str, int], run_name: str, end: int, error: str) -> None:
    """A late run never replaces a newer one."""
    decision = decide({name: minutes(at) for name, at in stored.items()}, run_name, minutes(end), keep=2)
    assert isinstance(decision, RefuseResult)
    assert decision.error == error


def test_a_folder_that_can_not_be_used_is_one_that_this_machine_lacks(tmp_path: Path) -> None:
    """Code 3, as for the broker's folder; here a file is in its place."""
    (tmp_path / "file").touch()
    with pytest.raises(CannotRun, match=r"the result folder .* can't be used: .*Not a directory") as told:
        ResultStore(tmp_path / "file" / "results", PLACE, keep=3)
    assert told.value.cure == "Make it readable and writable."


def test_a_result_comes_back_byte_for_byte(store: ResultStore) -> None:
    """And is the latest."""
    assert store.put("run-1", a_result(), NOW)
    assert store.get("run-1") == a_result()
    assert store.latest_run() == "run-1"


def test_the_same_bytes_again_change_nothing(store: ResultStore) -> None:
    """A retried PUT is no error."""
    assert store.put("run-1", a_result(), NOW)
    assert not store.put("run-1", a_result(), NOW)


def test_the_latest_is_by_window_end_not_by_arrival(store: ResultStore) -> None:
    """A slow run of an older window comes second."""
    store.put("new", a_result("new", minutes(2)), NOW)
    store.put("old", a_result("old", minutes(1)), NOW)
    assert store.latest_run() == "new"


def test_only_the_newest_are_kept(store: ResultStore, tmp_path: Path) -> None:
    """Three files, whatever came before."""
    for number in range(5):
        store.put(f"run-{number}", a_result(f"run-{number}", minutes(number)), NOW)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-2.json", "run-3.json", "run-4.json"]
    assert store.get("run-1") is None


def test_a_damaged_result_is_told_once_and_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Runs have names of their own, so nothing would take its place. One of a later release stays, after a rollback."""
    (tmp_path / "run-1.json").write_bytes(b"{")
    later = a_result("run-2", END).replace(b'"version":1', b'"version":9')
    (tmp_path / "run-2.json").write_bytes(later)
    for _ in range(2):
        assert ResultStore(tmp_path, PLACE, keep=3).latest_run() is None
    assert len(caplog.records) == 1
    assert "result run-1.json is damaged and is deleted" in caplog.text
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("run-2.json", later)]


def test_a_result_that_the_disk_does_not_give_keeps_no_observer_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("run-1", "run-2"):
        (tmp_path / f"{name}.json").write_bytes(a_result(name, END))
    read = Path.read_bytes

    def failing(path: Path) -> bytes:
        if path.name == "run-2.json":
            raise OSError(5, "Input/output error")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", failing)
    assert ResultStore(tmp_path, PLACE, keep=3).latest_run() == "run-1"
    monkeypatch.setattr(Path, "read_bytes", read)
    assert ResultStore(tmp_path, PLACE, keep=3).latest_run() == "run-2"


def test_a_restart_finds_the_latest_again(store: ResultStore, tmp_path: Path) -> None:
    """Half-written files go, unreadable ones are left out."""
    store.put("run-1", a_result("run-1", minutes(1)), NOW)
    store.put("run-2", a_result("run-2", minutes(2)), NOW)
    (tmp_path / ".run-3.json").write_text("half")
    (tmp_path / "run-4.json").write_text("{")
    again = ResultStore(tmp_path, PLACE, keep=3)
    assert again.latest_run() == "run-2"
    assert again.get("run-4") is None
    assert not (tmp_path / ".run-3.json").exists()


@pytest.mark.parametrize(
    ("run_name", "body", "error", "told"),
    [
        ("run-1", b"{", "NotAResult", "document: Invalid JSON"),
        ("run-1", b"{}", "NotAResult", "broker: is required"),
        ("run-1", a_result(version=0), "OtherVersion", "version 0, but this observer accepts version 1"),
        ("run-1", a_result(version=2), "OtherVersion", "version 2, but this observer accepts version 1"),
        ("other", a_result(), "BadRunName", "the document is of run 'run-1', but the URL names 'other'"),
        ("latest", a_result("latest"), "BadRunName", "'latest' can't name a run"),
        ("../x", a_result("../x"), "BadRunName", "can't name a run"),
        (".hidden", a_result(".hidden"), "BadRunName", "can't name a run"),
        ("run-1", a_result(end=NOW + timedelta(hours=2)), "FutureWindow", "ends in the future"),
    ],
)
def test_what_is_no_result_is_refused(store: ResultStore, run_name: str, body: bytes, error: str, told: str) -> None:
    """With a word for programs and a sentence for people; nothing is stored."""
    with pytest.raises(RejectedResult) as refused:
        store.put(run_name, body, NOW)
    assert (refused.value.error, refused.value.conflict) == (error, False)
    assert told in refused.value.message
    assert store.latest_run() is None


def test_the_result_of_another_broker_is_refused(store: ResultStore) -> None:
    """A job with the wrong address must not overwrite somebody's lag."""
    with pytest.raises(RejectedResult, match="shop/other, but this observer belongs to shop/main") as refused:
        store.put("run-1", a_result(broker="other"), NOW)
    assert (refused.value.error, refused.value.conflict) == ("OtherBroker", True)


def test_results_are_kept_by_ordinal_0_only(tmp_path: Path) -> None:
    """So that there is one latest."""
    store = ResultStore(tmp_path, BrokerPod("main", "shop", 1), keep=3)
    with pytest.raises(RejectedResult, match="ordinal 0") as refused:
        store.put("run-1", a_result(), NOW)
    assert refused.value.error == "NotKeptHere"


def test_results_beyond_their_bytes_go_oldest_first() -> None:
    """Three of 40 bytes within 100: the oldest goes; the latest stays even if it is too large alone."""
    stored = {"b": (minutes(1), 40), "a": (minutes(0), 40), "c": (minutes(2), 40)}
    assert beyond_size(stored, 100) == ("a",)
    assert beyond_size(stored, 120) == ()
    assert beyond_size(stored, 10) == ("a", "b")
    assert beyond_size({}, 0) == ()


def test_a_store_keeps_as_many_bytes_as_it_may(tmp_path: Path) -> None:
    """Room for two documents; the third takes the place of the first, also after a restart."""
    limit = 2 * len(a_result("run-1")) + 10
    store = ResultStore(tmp_path, PLACE, keep=20, keep_bytes=limit)
    for number in range(3):
        store.put(f"run-{number}", a_result(f"run-{number}", minutes(number)), NOW)
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["run-1", "run-2"]
    again = ResultStore(tmp_path, PLACE, keep=20, keep_bytes=limit)
    again.put("run-3", a_result("run-3", minutes(3)), NOW)
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["run-2", "run-3"]
    assert again.latest_run() == "run-3"


def test_results_that_are_yet_to_come_make_place_for_those_of_now(store: ResultStore, tmp_path: Path) -> None:
    """The clock was a day ahead, for more results than are kept; then it is right. The first result is a late one."""
    day = timedelta(days=1)
    store.put("before", a_result("before", minutes(0)), NOW)
    for number in range(2):
        store.put(f"ahead-{number}", a_result(f"ahead-{number}", minutes(number) + day), NOW + day)
    assert store.latest_run() == "ahead-1"
    assert store.put("late", a_result("late", minutes(-5)), NOW)
    assert store.latest_run() == "before"
    assert store.put("now", a_result("now", minutes(1)), NOW)
    assert store.latest_run() == "now"
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["before", "late", "now"]


def test_after_a_clock_was_set_back_by_minutes_the_next_result_is_the_latest(
    store: ResultStore, tmp_path: Path
) -> None:
    """It was 20 minutes ahead. Else the last result of then would be the latest for 20 minutes, and hide that a broker
    is missing since.
    """
    ahead = timedelta(minutes=20)
    for number in range(2):
        store.put(f"ahead-{number}", a_result(f"ahead-{number}", minutes(number) + ahead), NOW + ahead)
    assert store.put("now", a_result("now", minutes(1)), NOW)
    assert store.latest_run() == "now"
    assert [path.stem for path in tmp_path.iterdir()] == ["now"]


def test_a_result_that_ends_a_little_ahead_stays_behind_a_later_one(store: ResultStore, tmp_path: Path) -> None:
    """The clocks of two brokers differ; results come in their order, or late."""
    for number in (6, 8):
        store.put(f"run-{number}", a_result(f"run-{number}", minutes(number)), NOW)
    assert store.latest_run() == "run-8"
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["run-6", "run-8"]


def test_a_run_that_was_stored_with_a_time_to_come_can_be_stored_again(store: ResultStore, tmp_path: Path) -> None:
    """Runs may have the same name for ever."""
    day = timedelta(days=1)
    for number in range(3):
        store.put(f"run-{number}", a_result(f"run-{number}", minutes(number) + day), NOW + day)
    assert store.put("run-2", a_result("run-2", minutes(0)), NOW)
    assert store.latest_run() == "run-2"
    assert [path.stem for path in tmp_path.iterdir()] == ["run-2"]


def test_results_that_come_at_once_are_stored_one_after_another(tmp_path: Path) -> None:
    """Two requests are two threads. With room for one, each removes what came before it, and nothing twice."""
    store = ResultStore(tmp_path, PLACE, keep=1)
    bodies = {f"run-{number}": a_result(f"run-{number}", minutes(0)) for number in range(200)}

    def put(name: str) -> bool:
        return store.put(name, bodies[name], NOW)

    with ThreadPoolExecutor(8) as pool:
        stored = list(pool.map(put, bodies))
    assert all(stored)
    (kept,) = [path.stem for path in tmp_path.iterdir()]
    assert store.get(kept) == bodies[kept]
