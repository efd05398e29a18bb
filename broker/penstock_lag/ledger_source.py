"""A Spark data source that reads ledger segments over HTTP: one segment, one partition.

Options: ``segments`` (JSON list of [observer URL, segment name]), ``token_file`` and ``ca_file`` (paths, may be
empty), ``patience_seconds``. Planning and reading happen in Python workers, so nothing here holds a connection, and
the token itself is never an option, because Spark's query plans show the options. Two properties of Spark matter here:
it checks Arrow types exactly, but only on the first batch; and it reads an empty list of partitions as one partition.
Source: docs/reference/lag-job.md, "How Spark reads the ledger".
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# Reason: pyarrow ships no type information.

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock_api.ledger_format import COLUMNS, ColumnType, LedgerColumn
from penstock_api.observer_api import SEGMENT
from penstock_lag.observer_client import Observer
from penstock_lag.schema import LEDGER
from penstock_lag.settings import read_token

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["LedgerSource", "SegmentMismatch", "read_ledger", "to_batches"]

BATCH_ROWS: Final = 65_536
FORMAT: Final = "penstock_ledger"


class SegmentMismatch(Exception):
    """A file is not a segment of this ledger; the message names the file and the column."""


@dataclass(frozen=True)
class SegmentPartition(InputPartition):
    """One segment to read."""

    url: str
    name: str


class LedgerSource(DataSource):
    """The data source that this module describes."""

    @classmethod
    def name(cls) -> str:
        """The name for ``spark.read.format``."""
        return FORMAT

    def schema(self) -> StructType:
        """The ledger's schema; no other is supported."""
        return LEDGER

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the listed segments. Raises SegmentMismatch if asked for another schema."""
        if schema != LEDGER:
            raise SegmentMismatch("the ledger has one schema; select columns after reading")
        return LedgerReader(dict(self.options))


class LedgerReader(DataSourceReader):
    """Reads segments in Python workers."""

    def __init__(self, options: dict[str, str]) -> None:
        pairs: list[list[str]] = json.loads(options["segments"])
        self._segments = [SegmentPartition(url, name) for url, name in pairs]
        self._token_file = Path(options["token_file"]) if options.get("token_file") else None
        self._ca_file = Path(options["ca_file"]) if options.get("ca_file") else None
        self._patience_seconds = float(options.get("patience_seconds", "0"))

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per segment."""
        return list(self._segments)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one segment as Arrow batches."""
        if not isinstance(partition, SegmentPartition):  # Spark's stand-in for an empty list: nothing to read
            return
        observer = Observer(partition.url, read_token(self._token_file), self._ca_file, self._patience_seconds)
        yield from to_batches(observer.get(SEGMENT.format(name=partition.name)), partition.name)


def read_ledger(
    spark: SparkSession,
    segments: Sequence[tuple[str, str]],
    token_file: Path | None,
    ca_file: Path | None,
    patience_seconds: float = 0,
) -> DataFrame:
    """The rows of segments given as (observer URL, name)."""
    spark.dataSource.register(LedgerSource)
    return (
        spark.read.format(FORMAT)
        .option("segments", json.dumps([list(pair) for pair in segments]))
        .option("token_file", str(token_file or ""))
        .option("ca_file", str(ca_file or ""))
        .option("patience_seconds", str(patience_seconds))
        .load()
    )


def to_batches(content: bytes, name: str) -> Iterator[Any]:
    """Arrow batches with exactly the ledger's schema.

    Columns that later releases append are left out; optional ones that an earlier release did not have are null. Raises
    SegmentMismatch if a required column is missing or one has another type.
    """
    try:
        table = pq.read_table(io.BytesIO(content))
    except pa.ArrowException as error:
        raise SegmentMismatch(f"{name} can't be read: {error}") from error
    columns = [_column(table, column, name) for column in COLUMNS]
    fields = [pa.field(column.name, _arrow(column.type)) for column in COLUMNS]
    yield from pa.Table.from_arrays(columns, schema=pa.schema(fields)).to_batches(max_chunksize=BATCH_ROWS)


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
