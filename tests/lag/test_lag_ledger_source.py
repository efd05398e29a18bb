"""Segments as Spark sees them: exact types, files of other releases, and files that are none."""

from __future__ import annotations

import importlib
import io
from pathlib import Path
from typing import Any

import pytest
from lag.observer_server import Served, serving, token_file
from lag.spark_frames import rows_of_polls
from observer.samples import START_MS, a_poll, a_subscription, table_of
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, BooleanType, LongType, StringType

from penstock_api.failure import Failure
from penstock_api.ledger_format import COLUMNS, RowKind, SegmentName
from penstock_api.state_documents import DurationHistogram
from penstock_lag.ledger.schema import LEDGER
from penstock_lag.ledger.segment_footers import bytes_needed, footer_in, footer_of
from penstock_lag.ledger.source import SegmentMismatch, ServedSegment, check_segment, packed, read_ledger, to_batches
from penstock_observer.parquet import UnreadableSegment as OutlineUnreadable
from penstock_observer.parquet import outline_of, write_segment
from penstock_observer.segment_merge import MergeRefused, merge_segments
from penstock_page.segment_rows import UnreadableSegment as RowsUnreadable
from penstock_page.segment_rows import rows_in, snapshots_in

pa: Any = importlib.import_module("pyarrow")  # it ships no type information
pq: Any = importlib.import_module("pyarrow.parquet")

NAME = SegmentName(first=1, last=2, epoch=3)


def a_segment(folder: Path) -> Any:
    """The table of a segment as the observer writes it."""
    state = a_subscription(depth=5, sojourn=DurationHistogram(indexes=(3,), counts=(2,), sum_ms=4))
    write_segment(folder, NAME, table_of(rows_of_polls([a_poll(START_MS, state)])))
    return pq.read_table(folder / str(NAME))


def content(table: Any) -> bytes:
    """A table as a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def read_back(table: Any) -> list[dict[str, Any]]:
    """The rows that Spark would get."""
    rows: list[dict[str, Any]] = pa.Table.from_batches(to_batches(content(table), "x.parquet")).to_pylist()
    return rows


def segments_of(observer: Served, token: Path, ledger: int = 0) -> list[ServedSegment]:
    """All that an observer serves."""
    return [ServedSegment(ledger, info.name, observer.url, str(token)) for info in observer.api.ledger.segments]


def test_the_three_schemas_are_one() -> None:
    """Spark's and the contract; Arrow's is held to the contract in test_observer_parquet."""
    assert LEDGER.names == [column.name for column in COLUMNS]
    kinds = {"text": StringType(), "long": LongType(), "flag": BooleanType(), "longs": ArrayType(LongType())}
    assert [field.dataType for field in LEDGER.fields] == [kinds[column.type.value] for column in COLUMNS]


def test_values_are_unchanged(tmp_path: Path) -> None:
    """All of them."""
    table = a_segment(tmp_path)
    assert read_back(table) == table.to_pylist()


def test_batches_have_the_types_that_spark_insists_on(tmp_path: Path) -> None:
    """No required fields, no large or dictionary types, lists of nullable elements."""
    (batch,) = to_batches(content(a_segment(tmp_path)), "x.parquet")
    assert all(field.nullable for field in batch.schema)
    assert {str(field.type) for field in batch.schema} == {"string", "int64", "bool", "list<element: int64>"}


def test_a_segment_of_an_earlier_release_lacks_optional_columns(tmp_path: Path) -> None:
    """They are null."""
    older = a_segment(tmp_path).drop_columns(["hold_indexes", "max_delivery_count"])
    assert read_back(older)[0]["max_delivery_count"] is None
    assert read_back(older)[0]["hold_indexes"] is None
    assert read_back(older)[0]["depth"] == 5


def test_a_segment_of_a_later_release_has_more_columns(tmp_path: Path) -> None:
    """They are left out, wherever they stand."""
    table = a_segment(tmp_path)
    newer = table.add_column(0, "priority", pa.array([1, 2]))
    assert read_back(newer) == table.to_pylist()


def test_a_segment_with_a_damaged_name_of_a_column_is_named(tmp_path: Path) -> None:
    """Its end is read, too, where only that is looked at."""
    path = tmp_path / "x.parquet"
    pq.write_table(a_segment(tmp_path), path)
    content = path.read_bytes().replace(b"queue_name", b"queue\xffname")
    with pytest.raises(SegmentMismatch, match=r"x\.parquet can't be read: 'utf-8' codec"):
        check_segment(content, "x.parquet")
    with pytest.raises(SegmentMismatch, match=r"x\.parquet can't be read: 'utf-8' codec"):
        list(to_batches(content, "x.parquet"))
    with pytest.raises(Failure, match=r"^x\.parquet can't be read: 'utf-8' codec"):
        footer_in(content, "x.parquet")


def test_a_flipped_bit_in_the_name_of_a_column_is_not_a_segment_of_an_earlier_release(tmp_path: Path) -> None:
    """Such a segment lacks columns. This one said that 7 messages were moved, and would say none to every reader."""
    write_segment(tmp_path, NAME, table_of(rows_of_polls([a_poll(START_MS, a_subscription(moved=7))])))
    path = tmp_path / str(NAME)
    path.write_bytes(path.read_bytes().replace(b"\x05moved", b"\x05mowed"))
    assert "mowed" in pq.read_schema(path).names
    said = "its footer does not agree with its checksum"
    content = path.read_bytes()
    with pytest.raises(SegmentMismatch, match=said):
        check_segment(content, "x.parquet")
    with pytest.raises(SegmentMismatch, match=said):
        list(to_batches(content, "x.parquet"))
    with pytest.raises(Failure, match=said):
        footer_in(content[-bytes_needed(content) :], "x.parquet")
    with pytest.raises(Failure, match=said):
        footer_of(path)
    with pytest.raises(OutlineUnreadable, match=said):
        outline_of(path)
    with pytest.raises(MergeRefused, match=said):
        merge_segments(tmp_path, [NAME])
    with pytest.raises(RowsUnreadable, match=said):
        list(snapshots_in(path, ["psub:durable:global:orders"]))
    with pytest.raises(RowsUnreadable, match=said):
        list(rows_in(path, 0))


def test_what_is_no_segment_is_named(tmp_path: Path) -> None:
    """No Parquet at all; a required column missing; another type."""
    table = a_segment(tmp_path)
    with pytest.raises(SegmentMismatch, match=r"x\.parquet can't be read"):
        list(to_batches(b"<html>", "x.parquet"))
    with pytest.raises(SegmentMismatch, match=r"x\.parquet has no column time_ms"):
        read_back(table.drop_columns(["time_ms"]))
    position = table.schema.get_field_index("depth")
    text = table.set_column(position, "depth", pa.array(["5", None]))
    with pytest.raises(SegmentMismatch, match=r"x\.parquet: column depth is string, not int64"):
        read_back(text)


@pytest.mark.parametrize(
    ("most_rows", "packs"),
    [(100, [[1, 41, 61], [101], [201]]), (59, [[1], [41], [61], [101], [201]]), (230, [[1, 41, 61, 101], [201]])],
)
def test_small_segments_share_a_task(most_rows: int, packs: list[list[int]]) -> None:
    """In their order, 40, 20, 40, 100 and 150 rows by their names; one with more than a task's rows is alone."""
    ends = {1: 40, 41: 60, 61: 100, 101: 200, 201: 350}
    segments = [
        ServedSegment(0, str(SegmentName(first=first, last=last, epoch=3)), "http://x") for first, last in ends.items()
    ]
    found = [[segments.index(segment) for segment in pack.segments] for pack in packed(segments, most_rows)]
    assert [[list(ends)[place] for place in pack] for pack in found] == packs


@pytest.mark.spark
def test_one_task_reads_several_segments(spark: SparkSession, tmp_path: Path) -> None:
    """Five segments of two rows. Nothing is lost, nothing is there twice."""
    polls = [a_poll(START_MS + 10_000 * step, a_subscription(depth=step)) for step in range(5)]
    with serving(tmp_path, polls, rows_per_segment=2) as observer:
        frame = read_ledger(spark, segments_of(observer, token_file(tmp_path)), 0, RowKind.BROKER, ["seq"])
        assert frame.rdd.getNumPartitions() == 1
        assert sorted(row.seq for row in frame.collect()) == [2, 4, 6, 8, 10]


@pytest.mark.spark
def test_spark_reads_only_the_kind_and_the_columns_that_are_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    """In the order of the ledger; the kind itself need not be among them."""
    polls = [a_poll(START_MS, a_subscription(depth=5)), a_poll(START_MS + 10_000)]
    with serving(tmp_path, polls) as observer:
        served = segments_of(observer, token_file(tmp_path))
        frame = read_ledger(spark, served, 0, RowKind.SUBSCRIPTION, ["queue_name", "seq"])
        assert [row.asDict() for row in frame.collect()] == [{"seq": 1, "queue_name": "psub:durable:global:orders"}]
        brokers = read_ledger(spark, served, 0, RowKind.BROKER, ["seq"])
        assert sorted(row.seq for row in brokers.collect()) == [2, 3]


@pytest.mark.spark
def test_spark_reads_segments_from_an_observer(spark: SparkSession, tmp_path: Path) -> None:
    """Two segments, two partitions, every value as the writer had it, but the number of the ledger as ordinal."""
    state = a_subscription(depth=5, durable=False, wait=DurationHistogram(indexes=(-1, 3), counts=(2, 1), sum_ms=4))
    polls = [a_poll(START_MS, state), a_poll(START_MS + 10_000)]
    with serving(tmp_path, polls, rows_per_segment=1) as observer:
        served = segments_of(observer, token_file(tmp_path), ledger=7)
        frame = read_ledger(spark, served)
        found = [row.asDict() for row in frame.collect()]
        assert frame.schema == LEDGER
    assert len(served) == 2
    expected = [{**row, "ordinal": 7} for row in rows_of_polls(polls)]
    empty: list[int] = []
    expected[0] |= {"wait_indexes": [-1, 3], "wait_counts": [2, 1]}
    expected[0] |= dict.fromkeys(("sojourn_indexes", "sojourn_counts", "hold_indexes", "hold_counts"), empty)
    assert sorted(found, key=lambda row: row["seq"]) == expected
