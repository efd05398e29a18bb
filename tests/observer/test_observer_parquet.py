"""Segments on disk: what is written is read back, with the schema of the contract, and never seen half done."""

from __future__ import annotations

import importlib
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from observer.samples import START_MS, a_poll, a_subscription, table_of

from penstock_api.ledger_format import COLUMNS, SegmentName
from penstock_api.state_documents import DurationHistogram
from penstock_observer.parquet import Outline, UnreadableSegment, outline_of, write_segment
from penstock_observer.rows import Row, RowOrigin, rows_of

pq: Any = importlib.import_module("pyarrow.parquet")  # it ships no type information

WRITER = RowOrigin(broker="main", ordinal=0, interval_ms=10_000)
NAME = SegmentName(first=1, last=2, epoch=3)


def two_rows() -> list[Row]:
    """A subscription and its broker."""
    state = a_subscription(depth=5, ready=5, hold=DurationHistogram(indexes=(3,), counts=(2,), sum_ms=4))
    return rows_of(a_poll(START_MS, state), WRITER, 1)


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    """Every value, lists as lists."""
    write_segment(tmp_path, NAME, table_of(two_rows()))
    back: list[dict[str, Any]] = pq.read_table(tmp_path / str(NAME)).to_pylist()
    written = [dict(row) for row in two_rows()]
    written[0] |= {"hold_indexes": [3], "hold_counts": [2]}
    written[0] |= {name: [] for name in ("sojourn_indexes", "sojourn_counts", "wait_indexes", "wait_counts")}
    assert back == written


def test_the_file_has_the_columns_of_the_contract_in_their_order(tmp_path: Path) -> None:
    """Names, order and nullability; lists hold no nulls."""
    write_segment(tmp_path, NAME, table_of(two_rows()))
    schema = pq.read_schema(tmp_path / str(NAME))
    assert [(field.name, field.nullable) for field in schema] == [(c.name, c.nullable) for c in COLUMNS]
    assert str(schema.field("sojourn_counts").type) == "list<element: int64 not null>"
    assert str(schema.field("time_ms").type) == "int64"
    assert str(schema.field("durable").type) == "bool"


def test_the_outline_is_read_from_the_footer(tmp_path: Path) -> None:
    """Rows and the span of time."""
    rows = [*rows_of(a_poll(), WRITER, 1), *rows_of(a_poll(START_MS + 10_000), WRITER, 2)]
    write_segment(tmp_path, NAME, table_of(rows))
    assert outline_of(tmp_path / str(NAME)) == Outline(
        rows=2, first_ms=START_MS, last_ms=START_MS + 10_000, broker="main", ordinal=0
    )


def test_a_torn_file_is_unreadable_and_named(tmp_path: Path) -> None:
    """Cut in the middle, empty, or something else altogether."""
    path = tmp_path / str(NAME)
    write_segment(tmp_path, NAME, table_of(two_rows()))
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"PAR1 nonsense PAR1"):
        path.write_bytes(damaged)
        with pytest.raises(UnreadableSegment, match="0000000003-000000000001-000000000002"):
            outline_of(path)


def test_a_file_with_a_damaged_name_of_a_column_is_unreadable(tmp_path: Path) -> None:
    """Of an earlier release, without a checksum. Arrow reads its footer, and fails only when the name is asked for."""
    path = tmp_path / str(NAME)
    write_segment(tmp_path, NAME, table_of(two_rows()))
    path.write_bytes(path.read_bytes().replace(b"queue_name", b"queue\xffname").replace(b"PSFC", b"none"))
    with pytest.raises(UnreadableSegment, match=r"0000000003-000000000001-000000000002.*can't decode byte 0xff"):
        outline_of(path)


def test_nobody_ever_sees_a_part_of_a_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the time of the fsync there is only the hidden name; afterwards only the real one."""
    seen: list[list[str]] = []

    def spy(descriptor: int) -> None:
        seen.append(sorted(os.listdir(tmp_path)))

    monkeypatch.setattr(os, "fsync", spy)
    write_segment(tmp_path, NAME, table_of(two_rows()))
    assert seen == [[f".{NAME}"], [str(NAME)]]  # the file's own, then the folder's


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No space left: the error is told and neither name remains."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_segment(tmp_path, NAME, table_of(two_rows()))
    assert list(tmp_path.iterdir()) == []


def test_a_segment_whose_name_could_not_be_made_durable_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger keeps its rows and writes them again with more of them, under a name that covers this one."""
    sync = os.fsync

    def broken(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(5, "Input/output error")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output error"):
        write_segment(tmp_path, NAME, table_of(two_rows()))
    assert list(tmp_path.iterdir()) == []
