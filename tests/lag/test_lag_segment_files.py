"""Which segments are read, and how copies of what observers serve are made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

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
        files = download([observer], plan, scratch, first=7)
        assert len(files) == len(plan.segments) == 2
        assert plan.bytes == sum(segment.bytes for segment in served.api.ledger.segments)
        for file in files:
            copy = scratch / "ordinal=7" / str(file.name)
            assert file.ordinal == 7
            assert file.path == f"file:{copy}"
            assert copy.read_bytes() == (served.api.ledger.folder / str(file.name)).read_bytes()


def test_a_segment_that_is_none_or_gone_is_named(tmp_path: Path) -> None:
    """Its file was overwritten, or removed, after it was listed."""
    with serving(tmp_path, POLLS) as served:
        observer = Observer(served.url, TOKEN)
        plan = planned(observer)
        segment = served.api.ledger.folder / plan.segments[1].name
        for spoil, told, expected in (
            (lambda: segment.write_bytes(b"<html>"), SegmentMismatch, f"{segment.name} can't be read"),
            (segment.unlink, ObserverError, "answered 404"),
        ):
            spoil()
            scratch = tmp_path / told.__name__
            scratch.mkdir()
            with pytest.raises(told, match=expected):
                download([observer], plan, scratch)


def test_segments_that_do_not_fit_on_the_disk_are_not_fetched(tmp_path: Path) -> None:
    """The message says what to change."""
    plan = replace(make_plan([], 1, 1, None, 0), bytes=10**18)
    with pytest.raises(Failure, match=r"1000000000000000000 bytes, and .* bytes free") as failed:
        download([], plan, tmp_path)
    assert "--window" in failed.value.cure and "TMPDIR" in failed.value.cure
