"""The ledger folder: when segments are sealed, what a restart finds, and what a full disk does."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from observer.samples import START_MS, a_poll, a_subscription

from penstock_api.failure import CannotRun
from penstock_api.ledger_format import SegmentName
from penstock_api.state_documents import DurationHistogram
from penstock_observer.ledger import Ledger, LedgerFull, SealLimits
from penstock_observer.parquet import write_segment
from penstock_observer.retention import RetentionLimits
from penstock_observer.rows import RowOrigin

pq: Any = importlib.import_module("pyarrow.parquet")  # it ships no type information

WRITER = RowOrigin(broker="main", ordinal=0, interval_ms=10_000)
ROLLING = SealLimits(seconds=60, rows=1000, bytes=10**9)
KEEP = RetentionLimits(age_ms=10**12, bytes=10**12)
HOUR_MS = 3_600_000


def names(ledger: Ledger) -> list[str]:
    """The listed segments."""
    return [info.name for info in ledger.segments]


def visible(folder: Path) -> list[str]:
    """The files that are not hidden."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


class Disk:
    """Writes segments, or fails as a full disk does."""

    def __init__(self) -> None:
        self.full = False

    def write(self, folder: Path, name: SegmentName, rows: Any) -> int:
        """As write_segment."""
        if self.full:
            raise OSError(28, "No space left on device")
        return write_segment(folder, name, rows)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A new ledger."""
    made = Ledger(tmp_path, WRITER, ROLLING, KEEP)
    yield made
    made.close()


def test_a_segment_is_sealed_when_its_first_row_is_old_enough(ledger: Ledger) -> None:
    """60 s after the first poll, with that poll inside."""
    ledger.append(a_poll(START_MS))
    ledger.append(a_poll(START_MS + 59_999))
    assert names(ledger) == []
    ledger.append(a_poll(START_MS + 60_000))
    assert names(ledger) == ["0000000003-000000000001-000000000003.parquet"]
    (info,) = ledger.segments
    assert (info.rows, info.first_ms, info.last_ms) == (3, START_MS, START_MS + 60_000)
    assert info.bytes == (ledger.folder / info.name).stat().st_size


def test_a_segment_is_sealed_by_rows(tmp_path: Path) -> None:
    """A poll is never cut in two."""
    ledger = Ledger(tmp_path, WRITER, SealLimits(seconds=60, rows=4, bytes=10**9), KEEP)
    ledger.append(a_poll(START_MS, a_subscription("a"), a_subscription("b")))
    assert names(ledger) == []
    ledger.append(a_poll(START_MS + 1, a_subscription("a"), a_subscription("b")))
    assert names(ledger) == ["0000000003-000000000001-000000000006.parquet"]
    ledger.close()


def test_a_segment_is_sealed_by_bytes(tmp_path: Path) -> None:
    """One row is more than one byte."""
    ledger = Ledger(tmp_path, WRITER, SealLimits(seconds=60, rows=1000, bytes=1), KEEP)
    ledger.append(a_poll())
    assert names(ledger) == ["0000000003-000000000001-000000000001.parquet"]
    ledger.close()


def test_a_segment_never_spans_an_hour(ledger: Ledger) -> None:
    """22:59:59 and 23:00:00 are in two."""
    end = START_MS - START_MS % HOUR_MS + HOUR_MS
    ledger.append(a_poll(end - 1_000))
    ledger.append(a_poll(end))
    ledger.seal(end)
    assert [(info.first_ms, info.last_ms) for info in ledger.segments] == [(end - 1_000, end - 1_000), (end, end)]


def test_a_segment_has_one_clock(ledger: Ledger) -> None:
    """Set back by a minute: else the rows of both would lie between the same two times. The step is in its row."""
    ledger.append(a_poll(START_MS))
    ledger.append(replace(a_poll(START_MS + 1_000), clock_step_ms=0))
    ledger.append(replace(a_poll(START_MS - 58_000), clock_step_ms=-60_000))
    ledger.append(replace(a_poll(START_MS - 57_000), clock_step_ms=0))
    ledger.seal(START_MS - 57_000)
    assert [(each.first_ms - START_MS, each.last_ms - START_MS) for each in ledger.segments] == [
        (0, 1_000),
        (-58_000, -57_000),
    ]
    steps = [
        row["clock_step_ms"] for each in ledger.segments for row in pq.read_table(ledger.folder / each.name).to_pylist()
    ]
    assert steps == [None, 0, -60_000, 0]


def test_a_segment_has_one_start_and_one_data_folder(ledger: Ledger) -> None:
    """A restarted broker, then one with another volume, whose epoch begins anew; seq goes on through all."""
    ledger.append(a_poll(START_MS))
    ledger.append(a_poll(START_MS + 1, epoch=4))
    ledger.append(a_poll(START_MS + 2, epoch=4, instance_id="i-2"))
    ledger.append(a_poll(START_MS + 3, epoch=1, instance_id="i-2"))
    ledger.append(a_poll(START_MS + 4, epoch=1, instance_id="i-2", started_ms=START_MS + 4))  # of a backup
    ledger.seal(START_MS + 4)
    assert names(ledger) == [
        "0000000003-000000000001-000000000001.parquet",
        "0000000004-000000000002-000000000002.parquet",
        "0000000004-000000000003-000000000003.parquet",
        "0000000001-000000000004-000000000004.parquet",
        "0000000001-000000000005-000000000005.parquet",
    ]


def test_a_restart_goes_on_where_the_last_segment_ended(tmp_path: Path) -> None:
    """Rows that were never sealed are lost, their numbers are free: nobody has seen them."""
    first = Ledger(tmp_path, WRITER, ROLLING, KEEP)
    first.append(a_poll(START_MS))
    first.seal(START_MS)
    first.append(a_poll(START_MS + 1))
    first.close()
    second = Ledger(tmp_path, WRITER, ROLLING, KEEP)
    second.append(a_poll(START_MS + 2))
    second.seal(START_MS + 2)
    assert names(second) == [
        "0000000003-000000000001-000000000001.parquet",
        "0000000003-000000000002-000000000002.parquet",
    ]
    second.close()


def test_what_an_earlier_process_left_half_written_is_removed(tmp_path: Path) -> None:
    """Hidden segments only; files of others stay."""
    (tmp_path / ".0000000003-000000000001-000000000009.parquet").write_bytes(b"PAR1half")
    (tmp_path / "notes.txt").write_text("mine")
    ledger = Ledger(tmp_path, WRITER, ROLLING, KEEP)
    assert visible(tmp_path) == ["notes.txt"]
    assert not (tmp_path / ".0000000003-000000000001-000000000009.parquet").exists()
    assert ledger.segments == ()
    ledger.close()


def test_an_unreadable_segment_is_told_left_out_and_its_numbers_stay_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The rest is served on."""
    (tmp_path / "0000000003-000000000001-000000000009.parquet").write_bytes(b"PAR1 not really")
    with caplog.at_level(logging.ERROR):
        ledger = Ledger(tmp_path, WRITER, ROLLING, KEEP)
    assert "0000000003-000000000001-000000000009.parquet" in caplog.text
    assert ledger.damaged == ("0000000003-000000000001-000000000009.parquet",)
    assert ledger.path_of("0000000003-000000000001-000000000009.parquet") is None
    ledger.append(a_poll())
    ledger.seal(START_MS)
    assert names(ledger) == ["0000000003-000000000010-000000000010.parquet"]
    ledger.close()


def test_an_unreadable_segment_counts_until_somebody_removes_it(tmp_path: Path) -> None:
    """The alert ends without a restart."""
    spoilt = tmp_path / "0000000003-000000000001-000000000009.parquet"
    spoilt.write_bytes(b"PAR1 not really")
    ledger = Ledger(tmp_path, WRITER, ROLLING, KEEP)
    assert (ledger.damaged, ledger.bytes) == ((spoilt.name,), 15)
    spoilt.unlink()
    ledger.seal(START_MS)
    assert (ledger.damaged, ledger.bytes) == ((), 0)
    ledger.close()


def test_a_volume_that_does_not_say_what_is_there_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken volume, which answers with an error whether the damaged file is still there: it may be, so it counts."""
    spoilt = tmp_path / "0000000003-000000000001-000000000009.parquet"
    spoilt.write_bytes(b"PAR1 not really")
    ledger = Ledger(tmp_path, WRITER, ROLLING, KEEP)
    told = Path.stat

    def broken(path: Path, *, follow_symlinks: bool = True) -> Any:
        if path == spoilt:
            raise OSError(5, "Input/output error")
        return told(path, follow_symlinks=follow_symlinks)

    ledger.append(a_poll())
    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", broken)
        ledger.seal(START_MS)
    assert (names(ledger), ledger.damaged) == (["0000000003-000000000010-000000000010.parquet"], (spoilt.name,))
    assert spoilt.read_bytes() == b"PAR1 not really"
    ledger.close()


def test_a_segment_whose_name_lies_is_left_out(tmp_path: Path, ledger: Ledger) -> None:
    """The name says five rows, the file holds one."""
    ledger.append(a_poll())
    ledger.seal(START_MS)
    ledger.close()
    (tmp_path / names(ledger)[0]).rename(tmp_path / "0000000003-000000000001-000000000005.parquet")
    again = Ledger(tmp_path, WRITER, ROLLING, KEEP)
    assert again.segments == ()
    assert again.damaged == ("0000000003-000000000001-000000000005.parquet",)
    again.close()


def test_retention_removes_files_oldest_first(tmp_path: Path) -> None:
    """By age here; each poll is a segment of its own."""
    ledger = Ledger(
        tmp_path, WRITER, SealLimits(seconds=60, rows=1, bytes=10**9), RetentionLimits(age_ms=5_000, bytes=10**12)
    )
    for seconds in (0, 4, 9, 10):
        ledger.append(a_poll(START_MS + seconds * 1000))
    assert names(ledger) == [
        "0000000003-000000000003-000000000003.parquet",
        "0000000003-000000000004-000000000004.parquet",
    ]
    assert visible(tmp_path) == names(ledger)
    ledger.close()


def test_a_clock_that_jumps_by_three_days_and_back_loses_no_poll(tmp_path: Path) -> None:
    """A poll a minute for an hour, one three days ahead, and on; 48 hours are kept."""
    keep = RetentionLimits(age_ms=48 * 3_600_000, bytes=10**12)
    ledger = Ledger(tmp_path, WRITER, SealLimits(seconds=60, rows=10, bytes=10**9), keep)
    assert ledger.begins_ms == 0
    days_ms = 3 * 86_400_000
    times = [START_MS + 60_000 * minute for minute in range(60)]
    times += [times[-1] + days_ms, times[-1] + 10_000]
    steps = [0] * 60 + [days_ms, -days_ms]
    for time_ms, step_ms in zip(times, steps, strict=True):
        ledger.append(replace(a_poll(time_ms), clock_step_ms=step_ms))
    ledger.seal(times[-1] + days_ms)
    assert sum(info.rows for info in ledger.segments) == 62
    assert ledger.begins_ms == START_MS
    ledger.close()


def test_a_full_disk_is_told_and_the_rows_wait(tmp_path: Path) -> None:
    """They are in the first segment that can be written again; nothing is lost or doubled."""
    disk = Disk()
    ledger = Ledger(tmp_path, WRITER, SealLimits(seconds=1, rows=1000, bytes=10**9), KEEP, disk.write)
    disk.full = True
    ledger.append(a_poll(START_MS))
    with pytest.raises(LedgerFull, match="No space left on device") as told:
        ledger.append(a_poll(START_MS + 1_000))
    assert "Free space on the ledger volume" in str(told.value)
    assert (ledger.waiting_rows, ledger.failed_writes, ledger.dropped_rows) == (2, 1, 0)
    disk.full = False
    ledger.append(a_poll(START_MS + 2_000))
    assert names(ledger) == ["0000000003-000000000001-000000000003.parquet"]
    assert (ledger.waiting_rows, ledger.dropped_rows) == (0, 0)
    ledger.close()


def test_rows_that_wait_for_the_disk_are_bounded(tmp_path: Path) -> None:
    """Four segments' worth; then they are given up and counted, and the gap shows in the names."""
    disk = Disk()
    disk.full = True
    ledger = Ledger(tmp_path, WRITER, SealLimits(seconds=3600, rows=2, bytes=10**9), KEEP, disk.write)
    for second in range(9):
        try:
            ledger.append(a_poll(START_MS + second))
        except LedgerFull:
            continue
    assert (ledger.waiting_rows, ledger.dropped_rows) == (0, 9)
    disk.full = False
    ledger.append(a_poll(START_MS + 10))
    ledger.append(a_poll(START_MS + 11))
    assert names(ledger) == ["0000000003-000000000010-000000000011.parquet"]
    ledger.close()


def test_rows_of_two_epochs_never_share_a_segment_even_with_a_full_disk(tmp_path: Path) -> None:
    """The older ones are given up: their file name could not be honest."""
    disk = Disk()
    ledger = Ledger(tmp_path, WRITER, ROLLING, KEEP, disk.write)
    ledger.append(a_poll(START_MS))
    disk.full = True
    with pytest.raises(LedgerFull):
        ledger.append(a_poll(START_MS + 1, epoch=4))
    disk.full = False
    ledger.seal(START_MS + 2)
    assert names(ledger) == ["0000000004-000000000002-000000000002.parquet"]
    assert ledger.dropped_rows == 1
    ledger.close()


def test_a_full_disk_still_lets_old_segments_go(tmp_path: Path) -> None:
    """Else it could never be written again."""
    disk = Disk()
    ledger = Ledger(
        tmp_path,
        WRITER,
        SealLimits(seconds=60, rows=1, bytes=10**9),
        RetentionLimits(age_ms=1_000, bytes=10**12),
        disk.write,
    )
    ledger.append(a_poll(START_MS))
    ledger.append(a_poll(START_MS + 100))
    disk.full = True
    with pytest.raises(LedgerFull):
        ledger.append(a_poll(START_MS + 1_050))
    assert names(ledger) == ["0000000003-000000000002-000000000002.parquet"]
    ledger.close()


def test_no_name_leads_out_of_the_folder(tmp_path: Path, ledger: Ledger) -> None:
    """Only listed segments have a path."""
    (tmp_path / "secret").write_text("x")
    for name in ("secret", "../secret", ".lock", "0000000003-000000000001-000000000001.parquet", ""):
        assert ledger.path_of(name) is None


def test_a_ledger_has_one_writer(tmp_path: Path, ledger: Ledger) -> None:
    """A second observer on the folder would use the same numbers. It ends as a second broker does: with code 3."""
    with pytest.raises(CannotRun, match="in use by another observer"):
        Ledger(tmp_path, WRITER, ROLLING, KEEP)
    assert ledger.segments == ()


def test_a_folder_that_cannot_be_made_is_a_clear_failure(tmp_path: Path) -> None:
    """A file in its place."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(CannotRun, match="can't be used") as told:
        Ledger(tmp_path / "file" / "ledger", WRITER, ROLLING, KEEP)
    assert "--ledger" in told.value.cure


def test_a_write_that_does_not_fit_takes_the_oldest_segments_until_it_does(tmp_path: Path) -> None:
    """A quota, say, which the space of the volume does not show. The newest stays."""

    class Quota:
        """Room for three segments."""

        def write(self, folder: Path, name: SegmentName, rows: Any) -> int:
            """As write_segment."""
            if len(visible(folder)) >= 3:
                raise OSError(122, "Disk quota exceeded")
            return write_segment(folder, name, rows)

    rolling = SealLimits(seconds=60, rows=1, bytes=10**9)
    ledger = Ledger(tmp_path, WRITER, rolling, KEEP, Quota().write)
    for second in range(6):
        ledger.append(a_poll(START_MS + second * 1000))
    assert names(ledger) == [f"0000000003-{seq:012d}-{seq:012d}.parquet" for seq in (4, 5, 6)]
    assert (ledger.failed_writes, ledger.dropped_rows) == (0, 0)
    ledger.close()


def test_a_disk_that_fails_otherwise_costs_no_old_segment(tmp_path: Path) -> None:
    """An I/O error is not cured by deleting."""

    def write(folder: Path, name: SegmentName, rows: Any) -> int:
        if name.first == 3:
            raise OSError(5, "Input/output error")
        return write_segment(folder, name, rows)

    ledger = Ledger(tmp_path, WRITER, SealLimits(seconds=60, rows=1, bytes=10**9), KEEP, write)
    ledger.append(a_poll(START_MS))
    ledger.append(a_poll(START_MS + 1000))
    with pytest.raises(LedgerFull, match="Input/output error"):
        ledger.append(a_poll(START_MS + 2000))
    assert len(names(ledger)) == 2
    ledger.close()


def told_seqs(ledger: Ledger) -> list[int]:
    """The rows that have histograms."""
    rows = [row for name in names(ledger) for row in pq.read_table(ledger.folder / name).to_pylist()]
    return sorted(row["seq"] for row in rows if row["hold_counts"] is not None)


def test_histograms_are_told_once_per_segment_and_again_after_what_may_have_been_lost(tmp_path: Path) -> None:
    """Each segment has two polls; a restart of the broker, dropped rows and a restart of the observer begin anew."""
    disk, rolling = Disk(), SealLimits(seconds=3600, rows=4, bytes=10**9)
    ledger = Ledger(tmp_path, WRITER, rolling, KEEP, disk.write)

    def append(count: int, **broker: Any) -> None:
        hold = DurationHistogram(indexes=(8,), counts=(count,), sum_ms=count)
        ledger.append(a_poll(START_MS + count, a_subscription("a", hold=hold), **broker))

    for count in (1, 2, 3, 4):
        append(count)
    assert told_seqs(ledger) == [1, 3, 7]
    append(5, epoch=4)
    append(6, epoch=4)
    assert told_seqs(ledger) == [1, 3, 7, 9, 11]
    disk.full = True
    append(7, epoch=4)
    with pytest.raises(LedgerFull):
        append(8, epoch=4)
    with pytest.raises(LedgerFull):
        append(9, epoch=5)  # the rows that wait are given up
    disk.full = False
    append(10, epoch=5)
    assert told_seqs(ledger)[-2:] == [17, 19]
    ledger.close()
    ledger = Ledger(tmp_path, WRITER, rolling, KEEP, disk.write)
    append(11, epoch=5)
    append(12, epoch=5)
    assert told_seqs(ledger)[-2:] == [21, 23]
    ledger.close()
