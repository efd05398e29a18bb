"""Merged segments: their figures are those of the rows that were sealed, and no crash loses or doubles a row."""

from __future__ import annotations

import importlib
import itertools
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lag.naive_figures import naive_figures
from observer.samples import START_MS, a_poll, a_subscription, table_of

from penstock_api.ledger_format import SegmentName
from penstock_api.state_documents import DurationHistogram, SubscriptionState
from penstock_lag.figures.percentiles import Life, grown
from penstock_lag_rules.figures import Figures
from penstock_lag_rules.thresholds import Thresholds
from penstock_observer.ledger import Ledger, SealLimits
from penstock_observer.merge_failures import REST_ROUNDS
from penstock_observer.parquet import SegmentFile
from penstock_observer.retention import RetentionLimits
from penstock_observer.rows import Poll, RowOrigin, rows_of
from penstock_observer.segment_merge import MergeRefused, merge_segments

pq: Any = importlib.import_module("pyarrow.parquet")  # it ships no type information
pa: Any = importlib.import_module("pyarrow")

Row = dict[str, Any]
WRITER = RowOrigin(broker="main", ordinal=0, interval_ms=3 * 3_600_000)
"""So that one poll five hours later makes all others old: twice the interval counts between two segments."""
KEEP = RetentionLimits(age_ms=10**13, bytes=10**13)
SEGMENTS = SealLimits(seconds=60, rows=10**6, bytes=10**12)
NOON_MS = START_MS - START_MS % 3_600_000 + 3_600_000
LATER_MS = NOON_MS + 5 * 3_600_000


def ledger_of(folder: Path, polls: Sequence[Poll]) -> Ledger:
    """A ledger with these polls and, so that they are old, one much later."""
    ledger = Ledger(folder, WRITER, SEGMENTS, KEEP)
    for poll in (*polls, a_poll(LATER_MS, epoch=99)):
        ledger.append(poll)
    ledger.seal(LATER_MS)
    return ledger


def rows_in(ledger: Ledger) -> list[Row]:
    """All rows of the listed segments but those of the last one, by seq."""
    tables = [pq.read_table(ledger.folder / info.name) for info in ledger.segments[:-1]]
    return sorted((row for table in tables for row in table.to_pylist()), key=lambda row: int(row["seq"]))


def merged_rows(ledger: Ledger) -> list[Row]:
    """The rows once nothing is left to merge."""
    while ledger.merge_old():
        pass
    return rows_in(ledger)


def state(name: str, total: int, **changes: Any) -> SubscriptionState:
    """A subscription that has got `total` messages and given away most of them."""
    sojourn = DurationHistogram(indexes=(8, 40), counts=(total + 1, total // 3 + 1), sum_ms=total)
    return a_subscription(
        name, depth=total % 7, ready=total % 7, enqueued=total, acked=total - total % 7, delivered=total,
        expired=total // 9, sojourn=sojourn, wait=sojourn, hold=sojourn, **changes,
    )  # fmt: skip


TURN = st.tuples(
    st.sampled_from([10, 10, 10, 20, 60]),  # seconds since the poll before
    st.sampled_from(["", "", "", "", "", "incomplete", "restart", "volume", "backup"]),
    st.lists(st.sampled_from(["stay", "stay", "stay", "away", "rebound"]), min_size=3, max_size=3),
    st.integers(0, 50),
)


def polls_of(turns: Sequence[tuple[int, str, list[str], int]]) -> list[Poll]:
    """Queues that come, go and are bound anew, over restarts, replaced volumes, and backups whose broker has the epoch
    of the one before. The first poll is complete.

    A complete poll lists every queue, and no incarnation is given twice. So a queue that was away in one has a new
    incarnation when it is back, unless a restart is between: its end may not have been on disk.
    """
    now_ms, epoch, folder, started_ms, polls = NOON_MS, 3, 1, 0, [a_poll(NOON_MS, started_ms=0)]
    totals, incarnations, ended = [0, 0, 0], [10, 20, 30], [False] * 3
    for seconds, event, queues, more in turns:
        now_ms += seconds * 1000
        if event in ("restart", "volume", "backup"):
            started_ms = now_ms
            totals, epoch, folder = [0, 0, 0], epoch + (event == "restart"), folder + (event == "volume")
            ended = [False] * 3
        states: list[SubscriptionState] = []
        for number, what in enumerate(queues):
            if what == "rebound" or (what == "stay" and ended[number]):
                incarnations[number], totals[number] = incarnations[number] + 1, 0
            ended[number] = what == "away" and (ended[number] or event != "incomplete")
            totals[number] += more * number
            if what != "away":
                changes = {"incarnation": incarnations[number], "dropped": len(polls), "consumers": len(polls) % 3}
                states.append(state(f"q{number}", totals[number], **changes))
        complete = event != "incomplete"
        polls.append(
            a_poll(now_ms, *states, complete=complete, epoch=epoch, instance_id=f"i-{folder}", started_ms=started_ms)
        )
    return polls


def kept_figures(found: Figures) -> tuple[object, ...]:
    """What is defined to stay the same: everything but what was least and most between two snapshots."""
    window = found.window
    return (found.standing, window.growth, window.first_depth, window.elapsed_ms)


def growth_of_histograms(rows: Sequence[Row], name: str) -> object:
    """What came into each bucket over all lives of a queue, each counted from its first histogram."""
    lives: dict[object, Life] = {}
    for row in rows:
        if row["queue_name"] == name and row["sojourn_indexes"] is not None:
            found = {"indexes": row["sojourn_indexes"], "counts": row["sojourn_counts"]}
            life = (row["instance"], row["epoch"], row["incarnation"], row["started_ms"])
            first = lives[life]["first"] if life in lives else found
            lives[life] = {"first": first, "last": found}  # type: ignore[typeddict-item]
    return grown(lives.values())


@given(st.lists(TURN, min_size=3, max_size=40))
@settings(max_examples=25, deadline=None)
def test_the_figures_of_merged_segments_are_those_of_what_was_sealed(
    turns: list[tuple[int, str, list[str], int]],
) -> None:
    """Over the whole, and over each part that begins and ends with a complete poll that was kept."""
    thresholds = Thresholds()
    with tempfile.TemporaryDirectory() as folder:
        polls = polls_of(turns)
        ledger = ledger_of(Path(folder), polls)
        before, after = rows_in(ledger), merged_rows(ledger)
        names = [SegmentName.parse(info.name) for info in ledger.segments]
        ledger.close()
    raw = [dict(row) for row in rows_by_hand(polls)]
    assert len(before) == len(raw)
    brokers = [[row for row in rows if row["kind"] == "broker"] for rows in (raw, after)]
    unmarked = [[{**row, "complete": None} for row in rows] for rows in brokers]
    assert unmarked[0] == unmarked[1]  # nothing of the coverage is lost
    assert all(a is not None and b is not None and a.last + 1 == b.first for a, b in itertools.pairwise(names))
    kept = [row["seq"] for row in brokers[1] if row["complete"]]
    for first, last in {(1, raw[-1]["seq"]), (kept[0], kept[-1]), (kept[len(kept) // 2], kept[-1])}:
        expected, found = (
            naive_figures([row for row in rows if first <= row["poll"] <= last], thresholds) for rows in (raw, after)
        )
        assert {name: (kept_figures(one), lives) for name, (one, lives) in found.items()} == {
            name: (kept_figures(one), lives) for name, (one, lives) in expected.items()
        }
    for number in range(3):
        name = f"psub:durable:global:q{number}"
        assert growth_of_histograms(after, name) == growth_of_histograms(raw, name)


def rows_by_hand(polls: Sequence[Poll]) -> list[Any]:
    """The rows with all histograms."""
    rows: list[Any] = []
    for poll in polls:
        rows += rows_of(poll, WRITER, len(rows) + 1)
    return rows


def steady(minutes: int) -> list[Poll]:
    """Two queues, polled every ten seconds."""
    return [a_poll(NOON_MS + 10_000 * step, state("a", 5 * step), state("b", 3 * step)) for step in range(minutes * 6)]


def test_after_a_merge_there_is_a_snapshot_a_minute_and_the_listing_says_how_many_rows(tmp_path: Path) -> None:
    """Half an hour of 180 polls: 540 rows are covered. Of each queue stay 30 snapshots, and the first."""
    ledger = ledger_of(tmp_path, steady(30))
    assert ledger.merge_old()
    assert ledger.merge_old()
    assert ledger.merge_old()
    rows = merged_rows(ledger)
    (whole, _) = ledger.segments
    assert (whole.name, whole.rows) == ("0000000003-000000000001-000000000540.parquet", 180 + 2 * 31)
    assert (whole.first_ms, whole.last_ms) == (NOON_MS, NOON_MS + 1_790_000)
    assert whole.bytes == (tmp_path / whole.name).stat().st_size
    times = [row["time_ms"] - NOON_MS for row in rows if row["queue_name"] == "psub:durable:global:a"]
    assert times == [0, *range(50_000, 1_800_000, 60_000)]
    told = [row["time_ms"] - NOON_MS for row in rows if row["queue_name"] and row["hold_sum_ms"] is not None]
    assert told == [0, 0, 1_790_000, 1_790_000]
    ledger.close()
    again = Ledger(tmp_path, WRITER, SEGMENTS, KEEP)
    assert [info.name for info in again.segments] == [whole.name, "0000000099-000000000541-000000000541.parquet"]
    assert not again.merge_old()
    again.close()


def test_the_last_snapshot_of_a_life_stays_whenever_it_was(tmp_path: Path) -> None:
    """A queue is bound anew after 80 s: what was dropped until then is in no other row. 60 s has the histograms."""
    polls = [
        a_poll(
            NOON_MS + 10_000 * step,
            a_subscription("a", incarnation=11 if step < 9 else 12, dropped=step if step < 9 else 0),
        )
        for step in range(12)
    ]
    ledger = ledger_of(tmp_path, polls)
    found = [
        (row["time_ms"] - NOON_MS, row["incarnation"], row["dropped"])
        for row in merged_rows(ledger)
        if row["kind"] == "subscription"
    ]
    ledger.close()
    assert found == [(0, 11, 0), (50_000, 11, 5), (60_000, 11, 6), (80_000, 11, 8), (90_000, 12, 0), (110_000, 12, 0)]


def test_a_segment_of_an_earlier_release_is_merged_with_all_its_figures(tmp_path: Path) -> None:
    """Every row had histograms, and the last columns were not there."""
    rows = rows_by_hand(steady(2))
    name = SegmentName(first=1, last=36, epoch=3)
    write_old(tmp_path / str(name), table_of(rows).drop(["moved", "stranded", "repeated", "started_ms"]))
    ledger = Ledger(tmp_path, WRITER, SEGMENTS, KEEP)
    ledger.append(a_poll(LATER_MS))
    ledger.seal(LATER_MS)
    found = [row for row in merged_rows(ledger) if row["queue_name"] == "psub:durable:global:b"]
    assert [row["enqueued"] for row in found] == [0, 15, 33]
    assert [row["hold_counts"] for row in found] == [[1, 1], None, [34, 12]]
    assert [row["moved"] for row in found] == [None, None, None]
    ledger.close()


def write_old(path: Path, table: Any) -> None:
    """As the release before wrote it."""
    pq.write_table(table, path, compression="zstd")


def test_a_segment_of_a_later_release_stays_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its further columns would be lost. It is said once, and the others are merged."""
    table = table_of(rows_by_hand(steady(2)))
    write_old(tmp_path / "0000000003-000000000001-000000000036.parquet", table.append_column("later", table["seq"]))
    ledger = Ledger(tmp_path, WRITER, SEGMENTS, KEEP)
    for poll in (*(replace_epoch(poll) for poll in steady(3)), a_poll(LATER_MS)):
        ledger.append(poll)
    ledger.seal(LATER_MS)
    merged_rows(ledger)
    merged_rows(ledger)
    assert [info.rows for info in ledger.segments] == [36, 18 + 2 * 4, 1]
    assert caplog.text.count("is of a later release: it has the column later") == 1
    ledger.close()


@pytest.mark.parametrize("column", ["oldest_hold_ms", "queue_name"])
def test_a_damaged_segment_stays_as_it_is(column: str, tmp_path: Path) -> None:
    """Whichever byte of its first row group it is. A large segment has several, and its footer says nothing of it."""
    name = SegmentName(first=1, last=36, epoch=3)
    path = tmp_path / str(name)
    rows = table_of(rows_by_hand(steady(2))).sort_by([("queue_name", "ascending"), ("seq", "ascending")])
    pq.write_table(rows, path, row_group_size=12, use_dictionary=["queue_name"], compression="none")
    whole, chunks = path.read_bytes(), pq.read_metadata(path).row_group(0)
    (chunk,) = [each for each in map(chunks.column, range(chunks.num_columns)) if each.path_in_schema == column]
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    told: list[str] = []
    for at in range(begin, begin + chunk.total_compressed_size):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            merge_segments(tmp_path, [name]).file.discard()
        except (MergeRefused, OSError) as error:
            told.append(str(error))
        assert list(tmp_path.iterdir()) == [path]
    assert any(each.startswith(f"{name} can't be read: ") for each in told)


def test_what_a_merge_finds_damaged_is_counted_until_its_file_is_gone(tmp_path: Path) -> None:
    """Its footer is sound, so that the start finds nothing. It stays in the list: a reader may want its other rows."""
    ledger_of(tmp_path, steady(3)).close()
    spoilt = sorted(tmp_path.glob("0*.parquet"))[1]
    whole = spoilt.read_bytes()
    spoilt.write_bytes(whole[:4] + b"\xff" * 200 + whole[204:])
    ledger = Ledger(tmp_path, WRITER, SEGMENTS, KEEP)
    assert (len(ledger.segments), [*ledger.damaged]) == (4, [])
    assert not ledger.merge_old()
    assert (len(ledger.segments), [*ledger.damaged]) == (4, [spoilt.name])
    ledger.close()
    again = Ledger(tmp_path, WRITER, SEGMENTS, KEEP)
    again.merge_old()
    assert [*again.damaged] == [spoilt.name]
    spoilt.unlink()
    again.seal(LATER_MS)
    assert (len(again.segments), [*again.damaged]) == (3, [])
    again.close()


@pytest.mark.parametrize("fault", ["damaged", "later", "removed", "text"])
def test_the_others_are_merged_without_a_segment_that_cannot_be(
    fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Those before it and those after it, whatever is wrong with it, and only it is named. Else one damaged file would
    keep all of its quarter of an hour apart, for as long as the observer runs.
    """
    ledger = ledger_of(tmp_path, steady(10))
    names = [info.name for info in ledger.segments]
    spoil(tmp_path / names[3], fault)
    ledger.merge_old()
    assert [ledger.merge_old() for _ in range(4)] == [True, True, False, False]
    listed = [info.name for info in ledger.segments]
    before, after = f"{names[0][:24]}{names[2][24:]}", f"{names[4][:24]}{names[8][24:]}"
    assert listed == [before, *([] if fault == "removed" else [names[3]]), after, names[9]]
    assert [*ledger.damaged] == ([names[3]] if fault in ("damaged", "text") else [])
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith(f"segment {names[3]} can't be merged: ")
    ledger.close()


def spoil(path: Path, fault: str) -> None:
    """So that this segment can't be merged. Its text was written by an earlier release, without checksums."""
    whole = path.read_bytes()
    match fault:
        case "damaged":
            path.write_bytes(whole[:4] + b"\xff" * 200 + whole[204:])
        case "later":
            table = pq.read_table(path)
            write_old(path, table.append_column("later", table["seq"]))
        case "text":
            pq.write_table(pq.read_table(path), path, compression="none")
            path.write_bytes(path.read_bytes().replace(b"i-1", b"i\xff1"))
        case _:
            path.unlink()


def test_no_flipped_bit_is_merged_as_another_number(tmp_path: Path) -> None:
    """Wherever it is in the pages: without checksums, half of them would be."""
    ledger = ledger_of(tmp_path, steady(2))
    name = SegmentName.parse(ledger.segments[0].name)
    assert name is not None
    path = tmp_path / str(name)
    whole = path.read_bytes()
    pages = len(whole) - int.from_bytes(whole[-8:-4], "little") - 8
    refused, merged = 0, {_merged_rows(tmp_path, name)}
    for at in range(100, pages, pages // 60):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        try:
            merged.add(_merged_rows(tmp_path, name))
        except (MergeRefused, OSError):
            refused += 1
    assert (len(merged), refused >= 50) == (1, True)
    ledger.close()


def _merged_rows(folder: Path, name: SegmentName) -> str:
    """Of a segment that is merged alone, which is not published."""
    file = merge_segments(folder, [name]).file
    rows = pq.read_table(folder / f".{name}").to_pylist()
    file.discard()
    return repr(rows)


def test_a_merge_that_the_disk_refused_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in every round, because each attempt reads all of them; and it is told once."""
    ledger = ledger_of(tmp_path, steady(3))
    before, wanted = [*ledger.segments], merged_copy(ledger, tmp_path.parent / f"{tmp_path.name}-copy")
    attempts = 0

    def full(_: SegmentFile) -> int:
        nonlocal attempts
        attempts += 1
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(SegmentFile, "finish", full)
        for _ in range(3 * REST_ROUNDS):
            assert not ledger.merge_old()
    assert attempts == 3
    assert [*ledger.segments] == before
    assert [record.getMessage() for record in caplog.records] == [
        f"segments {before[0].name} to {before[2].name} can't be merged: [Errno 28] No space left on device; "
        "the observer tries again"
    ]
    for _ in range(REST_ROUNDS):
        ledger.merge_old()
    assert merged_rows(ledger) == wanted
    assert len(ledger.segments) == 2
    ledger.close()


def merged_copy(ledger: Ledger, folder: Path) -> list[Row]:
    """The rows that a ledger has once it is merged; that ledger stays as it is."""
    shutil.copytree(ledger.folder, folder)
    copy = Ledger(folder, WRITER, SEGMENTS, KEEP)
    rows = merged_rows(copy)
    copy.close()
    return rows


def replace_epoch(poll: Poll) -> Poll:
    """After a restart."""
    return replace(poll, broker=poll.broker.model_copy(update={"epoch": 4}))


def test_a_reader_of_an_old_name_is_told_that_it_is_gone(tmp_path: Path) -> None:
    """No path any more, for any of the merged ones."""
    ledger = ledger_of(tmp_path, steady(5))
    names = [info.name for info in ledger.segments[:-1]]
    assert all(ledger.path_of(name) for name in names)
    merged_rows(ledger)
    assert not any(ledger.path_of(name) for name in names)
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == [info.name for info in ledger.segments]
    ledger.close()


MERGE_AND_DIE = """
import os, pathlib, signal, sys
from penstock_observer.ledger import Ledger, SealLimits
from penstock_observer.retention import RetentionLimits
from penstock_observer.rows import RowOrigin

limits = SealLimits(60, 10**6, 10**12), RetentionLimits(10**13, 10**13)
ledger = Ledger(pathlib.Path(sys.argv[1]), RowOrigin("main", 0, 10800000), *limits)
left = int(sys.argv[2])

def deadly(act):
    def step(*given, **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return act(*given, **named)
    return step

os.fsync, pathlib.Path.rename, pathlib.Path.unlink = map(deadly, (os.fsync, pathlib.Path.rename, pathlib.Path.unlink))
ledger.merge_old()
"""


def test_a_kill_at_any_step_of_a_merge_loses_no_row_and_doubles_none(tmp_path: Path) -> None:
    """Before each sync, rename and deletion: file, name, folder, then three names that go."""
    made = tmp_path / "made"
    ledger = ledger_of(made, steady(3))
    sealed = rows_in(ledger)
    ledger.close()
    steps = 0
    while True:
        steps += 1
        folder = tmp_path / str(steps)
        shutil.copytree(made, folder)
        ended = subprocess.run([sys.executable, "-c", MERGE_AND_DIE, str(folder), str(steps)], timeout=100)
        again = Ledger(folder, WRITER, SEGMENTS, KEEP)
        found = rows_in(again)
        merged = merged_rows(again)
        names = [info.name for info in again.segments]
        assert sorted(path.name for path in folder.glob("*.parquet")) == names
        assert not again.damaged
        again.close()
        assert found in (sealed, merged)
        assert [row["seq"] for row in merged if row["kind"] == "broker"] == [
            row["seq"] for row in sealed if row["kind"] == "broker"
        ]
        assert names == ["0000000003-000000000001-000000000054.parquet", "0000000099-000000000055-000000000055.parquet"]
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL
    assert steps == 7
