"""Which segments are read, and how copies of what observers serve are made."""

from __future__ import annotations

import importlib
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lag.observer_server import TOKEN, serving
from observer.samples import START_MS, a_poll, a_subscription

from penstock_api.failure import Failure
from penstock_api.ledger_format import SegmentName
from penstock_lag.ledger.segment_files import SegmentFile, download, with_places
from penstock_lag.ledger.served_segments import list_segments
from penstock_lag.ledger.source import SegmentMismatch
from penstock_lag.ledger.windows import Plan, make_plan
from penstock_lag.observer_client import Observer, ObserverError

pq: Any = importlib.import_module("pyarrow.parquet")  # it ships no type information

POLLS = [a_poll(START_MS + 10_000 * step, a_subscription(depth=step)) for step in range(6)]


def planned(observer: Observer) -> Plan:
    """A plan for all segments that it lists."""
    return make_plan(list_segments([observer], "main", "shop"), 900_000, 180_000, None, 0)


def test_only_segments_with_a_wanted_row_are_read() -> None:
    """Both ends belong to a segment; seq counts for each ordinal on its own."""
    files = [SegmentFile(0, SegmentName(first=first, last=first + 9, epoch=1), "x") for first in (1, 11, 21, 31)]
    files.append(SegmentFile(1, SegmentName(first=11, last=20, epoch=1), "y"))
    found = with_places(files, [(0, 31), (0, 10), (0, 21), (0, 30), (1, 10), (1, 21)])
    assert [(file.ordinal, file.name.first) for file in found] == [(0, 1), (0, 21), (0, 31)]


def test_copies_have_the_bytes_of_the_segments(tmp_path: Path) -> None:
    """Each in the folder with the number of its ledger, under its own name."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with serving(tmp_path, POLLS) as served:
        observer = Observer(served.url, TOKEN)
        plan = planned(observer)
        files = download([observer], plan, scratch, first=7).files
        assert len(files) == len(plan.segments) == 2
        assert plan.bytes == sum(segment.bytes for segment in served.api.ledger.segments)
        for file in files:
            copy = scratch / "ordinal=7" / str(file.name)
            assert file.ordinal == 7
            assert file.path == f"file:{copy}"
            assert copy.read_bytes() == (served.api.ledger.folder / str(file.name)).read_bytes()


def test_a_damaged_segment_is_left_out_and_named_unless_all_are(tmp_path: Path) -> None:
    """One of two was cut or overwritten, or has a flipped bit that makes another number; then the other one, too."""
    with serving(tmp_path, POLLS) as served:
        observer = Observer(served.url, TOKEN)
        plan = planned(observer)
        first, second = (served.api.ledger.folder / each.name for each in plan.segments)
        whole = second.read_bytes()
        pages = len(whole) - int.from_bytes(whole[-8:-4], "little") - 8
        flipped = (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(100, pages, 7))
        other = next(content for content in flipped if _is_another(content, whole))
        for number, content in enumerate([b"", b"<html>", whole[:1000], whole[:-1], other]):
            second.write_bytes(content)
            scratch = tmp_path / str(number)
            scratch.mkdir()
            copies = download([observer], plan, scratch)
            assert [str(file.name) for file in copies.files] == [first.name]
            ((chosen, reason),) = copies.damaged.items()
            assert (chosen, reason.startswith(f"{second.name} can't be read: ")) == (plan.segments[1], True)
            assert [path.name for path in scratch.glob("*/*")] == [first.name]
        first.write_bytes(b"")
        (tmp_path / "none").mkdir()
        with pytest.raises(SegmentMismatch, match=f"{first.name} can't be read"):
            download([observer], plan, tmp_path / "none")


def _is_another(content: bytes, whole: bytes) -> bool:
    """For a reader that does not look at checksums it is a segment with other rows."""
    try:
        rows = [row for batch in _batches(content) for row in batch.to_pylist()]
    except (OSError, ValueError):
        return False
    return rows != [row for batch in _batches(whole) for row in batch.to_pylist()]


def _batches(content: bytes) -> Any:
    return pq.ParquetFile(io.BytesIO(content)).iter_batches()


def test_a_segment_that_is_gone_is_named(tmp_path: Path) -> None:
    """Its file was removed after it was listed."""
    with serving(tmp_path, POLLS) as served:
        observer = Observer(served.url, TOKEN)
        plan = planned(observer)
        segment = served.api.ledger.folder / plan.segments[1].name
        segment.unlink()
        (tmp_path / "scratch").mkdir()
        with pytest.raises(ObserverError, match="answered 404"):
            download([observer], plan, tmp_path / "scratch")


def test_segments_that_do_not_fit_on_the_disk_are_not_fetched(tmp_path: Path) -> None:
    """The message says what to change."""
    plan = replace(make_plan([], 1, 1, None, 0), bytes=10**18)
    with pytest.raises(Failure, match=r"1000000000000000000 bytes, and .* bytes free") as failed:
        download([], plan, tmp_path)
    assert "--window" in failed.value.cure and "TMPDIR" in failed.value.cure
