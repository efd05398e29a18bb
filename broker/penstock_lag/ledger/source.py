"""A Spark data source that reads ledger segments over HTTP: a large segment is a partition, small ones share one.

Options: ``segments`` (JSON list of the fields of ServedSegment), ``pack_rows``, ``patience_seconds``, ``kind`` and
``columns`` (separated by commas): only the rows of this kind and only these columns are decoded and handed over,
because Spark can't ask a Python data source for less than its schema.

Planning and reading happen in Python workers, so nothing here holds a connection, and the token itself is never an
option, because Spark's query plans show the options. Two properties of Spark matter here: it checks Arrow types
exactly, but only on the first batch; and it reads an empty list of partitions as one partition.
Source: docs/reference/lag-job.md, "How Spark reads the ledger".
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# Reason: pyarrow ships no type information.

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock_api.ledger_format import COLUMNS, ColumnType, LedgerColumn, RowKind, SegmentName
from penstock_api.observer_api import SEGMENT
from penstock_lag.ledger.schema import LEDGER
from penstock_lag.observer_client import Observer
from penstock_lag.settings import read_token
from penstock_page.parquet_damage import PARQUET_DAMAGED
from penstock_page.parquet_footer import check_footer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "LedgerSource",
    "SegmentMismatch",
    "SegmentPack",
    "ServedSegment",
    "check_segment",
    "packed",
    "read_ledger",
    "to_batches",
]

BATCH_ROWS: Final = 65_536
PACK_ROWS: Final = 100_000
"""Segments that have so many rows together at most are read by one task: to start a task costs more than to read a
small segment.
"""
FORMAT: Final = "penstock_ledger"
_KIND: Final = "kind"


class SegmentMismatch(Exception):
    """A file is not a segment of this ledger; the message names the file and the column."""


@dataclass(frozen=True, slots=True)
class ServedSegment:
    """One segment to read, where it is served, and the paths of the files with token and certificates (may be empty)
    on whatever machine reads it.
    """

    ledger: int
    """The number of its ledger in the run, which stands in the column `ordinal` of its rows: two Brokers of a run may
    have the same name in different namespaces.
    """
    name: str
    url: str
    token_file: str = ""
    ca_file: str = ""

    @property
    def rows(self) -> int:
        """For how many rows its name has room; 0 if it is not the name of a segment."""
        name = SegmentName.parse(self.name)
        return 0 if name is None else name.rows


@dataclass(frozen=True)
class SegmentPack(InputPartition):
    """The segments that one task reads, one after another."""

    segments: tuple[ServedSegment, ...]


class LedgerSource(DataSource):
    """The data source that this module describes."""

    @classmethod
    def name(cls) -> str:
        """The name for ``spark.read.format``."""
        return FORMAT

    def schema(self) -> StructType:
        """The ledger's schema, or as much of it as the option ``columns`` asks for; no other is supported."""
        return StructType([LEDGER[column.name] for column in _asked(dict(self.options))])

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the listed segments. Raises SegmentMismatch if asked for another schema."""
        if schema != self.schema():
            raise SegmentMismatch("the ledger has one schema; name the columns in the options")
        return LedgerReader(dict(self.options))


class LedgerReader(DataSourceReader):
    """Reads segments in Python workers."""

    def __init__(self, options: dict[str, str]) -> None:
        self._segments = [ServedSegment(*fields) for fields in json.loads(options["segments"])]
        self._pack_rows = int(options.get("pack_rows", PACK_ROWS))
        self._patience_seconds = float(options.get("patience_seconds", "0"))
        self._kind = RowKind(options["kind"]) if options.get("kind") else None
        self._columns = _asked(options)

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per pack of segments."""
        return packed(self._segments, self._pack_rows)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of the segments of a pack as Arrow batches."""
        if not isinstance(partition, SegmentPack):  # Spark's stand-in for an empty list: nothing to read
            return
        for segment in partition.segments:
            content = self._observer(segment).get(SEGMENT.format(name=segment.name))
            for batch in to_batches(content, segment.name, self._kind, self._columns):
                yield _numbered(batch, segment.ledger)

    def _observer(self, segment: ServedSegment) -> Observer:
        token = read_token(Path(segment.token_file) if segment.token_file else None)
        ca_file = Path(segment.ca_file) if segment.ca_file else None
        return Observer(segment.url, token, ca_file, self._patience_seconds)


def packed(segments: Sequence[ServedSegment], most_rows: int) -> list[SegmentPack]:
    """In the given order. The names of the segments of a pack have room for so many rows at most, or it is a single
    segment.
    """
    packs: list[list[ServedSegment]] = []
    rows = 0
    for segment in segments:
        rows += segment.rows
        if not packs or rows > most_rows:
            packs.append([])
            rows = segment.rows
        packs[-1].append(segment)
    return [SegmentPack(tuple(pack)) for pack in packs]


def read_ledger(
    spark: SparkSession,
    segments: Sequence[ServedSegment],
    patience_seconds: float = 0,
    kind: RowKind | None = None,
    columns: Sequence[str] = (),
) -> DataFrame:
    """The rows of segments: those of one kind, or all; some columns, or all."""
    spark.dataSource.register(LedgerSource)
    for_each_task = sum(segment.rows for segment in segments) // spark.sparkContext.defaultParallelism
    return (
        spark.read.format(FORMAT)
        .option("pack_rows", str(min(PACK_ROWS, for_each_task)))
        .option("segments", json.dumps([astuple(segment) for segment in segments]))
        .option("patience_seconds", str(patience_seconds))
        .option("kind", "" if kind is None else kind.value)
        .option("columns", ",".join(columns))
        .load()
    )


def to_batches(
    content: bytes, name: str, kind: RowKind | None = None, columns: Sequence[LedgerColumn] = COLUMNS
) -> Iterator[Any]:
    """Arrow batches of the rows of one kind, or all, with exactly the schema of the given columns.

    Columns that later releases append are left out; optional ones that an earlier release did not have are null. Raises
    SegmentMismatch if a required column is missing or one has another type.
    """
    wanted = {column.name for column in columns} | {_KIND}
    try:
        check_footer(content)
        file = pq.ParquetFile(io.BytesIO(content), page_checksum_verification=True)
        table = file.read([found for found in file.schema_arrow.names if found in wanted])
    except PARQUET_DAMAGED as error:
        raise SegmentMismatch(f"{name} can't be read: {error}") from error
    if kind is not None:
        table = table.filter(pc.field(_KIND) == kind.value)
    arrays = [_column(table, column, name) for column in columns]
    fields = [pa.field(column.name, _arrow(column.type)) for column in columns]
    yield from pa.Table.from_arrays(arrays, schema=pa.schema(fields)).to_batches(max_chunksize=BATCH_ROWS)


def check_segment(content: bytes, name: str) -> None:
    """Look at the columns of a file, and read all of its pages. Raises SegmentMismatch as `to_batches` does."""
    try:
        check_footer(content)
        file = pq.ParquetFile(io.BytesIO(content), page_checksum_verification=True)
        empty = file.schema_arrow.empty_table()
        _ = empty.schema.names  # here a damaged name is found
        for _ in file.iter_batches(BATCH_ROWS):
            pass
    except PARQUET_DAMAGED as error:
        raise SegmentMismatch(f"{name} can't be read: {error}") from error
    for column in COLUMNS:
        _column(empty, column, name)


def _numbered(batch: Any, ledger: int) -> Any:
    """The batch with the number of its ledger as ordinal, if it has this column."""
    position = batch.schema.get_field_index("ordinal")
    if position < 0:
        return batch
    return batch.set_column(position, batch.schema.field(position), pa.repeat(pa.scalar(ledger), batch.num_rows))


def _asked(options: Mapping[str, str]) -> tuple[LedgerColumn, ...]:
    """The columns that the options ask for, in the order of the ledger; all of them without that option."""
    names = options.get("columns", "")
    asked = frozenset(names.split(",")) if names else frozenset(LEDGER.names)
    return tuple(column for column in COLUMNS if column.name in asked)


def _column(table: Any, column: LedgerColumn, name: str) -> Any:
    wanted = _arrow(column.type)
    if column.name not in table.schema.names:
        if column.nullable:
            return pa.nulls(table.num_rows, wanted)
        raise SegmentMismatch(f"{name} has no column {column.name}")
    found = table.column(column.name)
    if not _same(found.type, wanted):
        raise SegmentMismatch(f"{name}: column {column.name} is {found.type}, not {wanted}")
    return found.cast(wanted)


def _same(found: Any, wanted: Any) -> bool:
    if pa.types.is_list(found) and pa.types.is_list(wanted):
        return bool(found.value_type == wanted.value_type)
    return bool(found == wanted)


def _arrow(kind: ColumnType) -> Any:
    match kind:
        case ColumnType.TEXT:
            return pa.string()
        case ColumnType.LONG:
            return pa.int64()
        case ColumnType.FLAG:
            return pa.bool_()
        case ColumnType.LONGS:
            return pa.list_(pa.field("element", pa.int64()))
        case _:
            assert_never(kind)
