"""Segments as Parquet files: the Arrow schema of the ledger, writing one file safely, and reading a file's outline.

It must not know when to write or what to keep. Source: docs/reference/lag-job.md, "The ledger".
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# Reason: pyarrow ships no type information; what leaves this module is typed.

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock_api.ledger_format import COLUMNS, HIDDEN_PREFIX, HISTOGRAMS, NAMESPACE_KEY, ColumnType, SegmentName
from penstock_api.whole_files import fsync_folder
from penstock_page.parquet_damage import PARQUET_DAMAGED
from penstock_page.parquet_footer import add_checksum, check_footer

__all__ = ["ARROW_TYPES", "SCHEMA", "Outline", "SegmentFile", "UnreadableSegment", "outline_of", "write_segment"]

ARROW_TYPES: Final[dict[ColumnType, Any]] = {
    ColumnType.TEXT: pa.string(),
    ColumnType.LONG: pa.int64(),
    ColumnType.FLAG: pa.bool_(),
    ColumnType.LONGS: pa.list_(pa.field("element", pa.int64(), nullable=False)),
}

SCHEMA: Final[Any] = pa.schema([pa.field(c.name, ARROW_TYPES[c.type], nullable=c.nullable) for c in COLUMNS])
"""The Arrow schema of every segment."""

ROW_GROUP_ROWS: Final = 32_768
"""So that a reader of some subscriptions need not decode all."""

_FEW_VALUES: Final = [
    *(column.name for column in COLUMNS if column.type is ColumnType.TEXT),
    *(
        "poll",
        "time_ms",
        "ordinal",
        "epoch",
        "started_ms",
        "interval_ms",
        "incarnation",
        "consumers",
        "max_delivery_count",
    ),
]
"""Columns that a dictionary makes small. Totals are smaller without: a dictionary would hold each value once more."""

_STEADY: Final = ("seq", *(f"{name}_{part}.list.element" for name in HISTOGRAMS for part in ("indexes", "counts")))
"""Columns whose values differ little from one to the next. All readers know this encoding; others are smaller still,
but Spark does not read them.
"""

_FORM: Final[dict[str, Any]] = {
    "compression": "zstd",
    "use_dictionary": _FEW_VALUES,
    "column_encoding": dict.fromkeys(_STEADY, "DELTA_BINARY_PACKED"),
    "write_page_checksum": True,  # else half of all flipped bits are read as another number
    # Of every column that each row must have, so that a reader of the footer sees whether it does.
    "write_statistics": ["queue_name", *(column.name for column in COLUMNS if not column.nullable)],
}


class UnreadableSegment(Exception):
    """A file that is named like a segment can't be read as one; the message says why."""


@dataclass(frozen=True, slots=True)
class Outline:
    """What the footer of a segment contains."""

    rows: int
    first_ms: int
    last_ms: int
    thinned: bool = False
    """It holds fewer rows than its name covers."""
    broker: str | None = None
    """Name of the Broker of its rows; None if its footer does not say it."""
    ordinal: int | None = None
    namespace: str | None = None
    """None if it is of an earlier release."""


class SegmentFile:
    """A segment that is being written under a hidden name. Nobody sees it before `publish`."""

    THINNED: Final = b"penstock.thinned"

    def __init__(self, folder: Path, name: SegmentName, namespace: str = "", thinned: bool = False) -> None:
        """`namespace`: that of the Broker; empty if it is not known. Raises OSError."""
        self._folder, self._name = folder, name
        self._hidden = folder / f"{HIDDEN_PREFIX}{name}"
        metadata = {self.THINNED: b"1"} if thinned else dict[bytes, bytes]()
        if namespace:
            metadata[NAMESPACE_KEY] = namespace.encode()
        schema = SCHEMA.with_metadata(metadata) if metadata else SCHEMA
        self._file = self._hidden.open("w+b")
        self._parquet: Any = None
        try:
            self._parquet = pq.ParquetWriter(
                self._file,
                schema,
                **_FORM,
            )
        except BaseException:
            self.discard()
            raise

    def write(self, rows: Any) -> None:
        """Append rows, in row groups of their own. Raises OSError."""
        self._parquet.write_table(rows.cast(self._parquet.schema), row_group_size=ROW_GROUP_ROWS)

    def finish(self) -> int:
        """Write the end of the file and sync it; its size in bytes. Raises OSError."""
        self._parquet.close()
        add_checksum(self._file)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._hidden.stat().st_size

    def publish(self) -> None:
        """Give it its name, durably, in place of a segment that has this name already."""
        self._hidden.rename(self._folder / str(self._name))
        fsync_folder(self._folder)

    def discard(self) -> None:
        """Leave nothing behind."""
        self._hidden.unlink(missing_ok=True)
        if self._parquet is not None:
            self._parquet.is_open = False  # or it would write the end when it is collected, and complain
        self._file.close()


def write_segment(folder: Path, name: SegmentName, rows: Any) -> int:
    """Write a table of rows as one segment and return its size in bytes. The table's metadata may name the namespace.

    The file is written under a hidden name, synced and renamed, then the folder is synced: whoever sees the name sees
    the whole file, also after a loss of power. On OSError nothing is left behind under either name.
    """
    file = SegmentFile(folder, name, (rows.schema.metadata or {}).get(NAMESPACE_KEY, b"").decode())
    try:
        file.write(rows)
        size = file.finish()
    except BaseException:
        file.discard()
        raise
    try:
        file.publish()
    except OSError:  # perhaps after the renaming: the caller keeps the rows, and they come again under another name
        file.discard()
        (folder / str(name)).unlink(missing_ok=True)
        raise
    return size


def outline_of(path: Path) -> Outline:
    """Read the footer of a segment. Raises UnreadableSegment if the file isn't a complete ledger segment."""
    try:
        check_footer(path)
        footer = pq.read_metadata(path)
        names = footer.schema.names
    except PARQUET_DAMAGED as error:
        raise UnreadableSegment(f"{path.name}: {error}") from error
    column = names.index("time_ms") if "time_ms" in names else None
    if column is None or footer.num_rows == 0:
        raise UnreadableSegment(f"{path.name}: not a ledger segment (no rows with a time)")
    ranges = [footer.row_group(group).column(column).statistics for group in range(footer.num_row_groups)]
    if any(statistics is None or not statistics.has_min_max for statistics in ranges):
        raise UnreadableSegment(f"{path.name}: the footer does not contain the times of the rows")
    metadata = footer.metadata or {}
    namespace = metadata.get(NAMESPACE_KEY)
    return Outline(
        rows=int(footer.num_rows),
        first_ms=min(int(statistics.min) for statistics in ranges),
        last_ms=max(int(statistics.max) for statistics in ranges),
        thinned=SegmentFile.THINNED in metadata,
        broker=_of_all_rows(footer, "broker"),
        ordinal=_of_all_rows(footer, "ordinal"),
        namespace=None if namespace is None else namespace.decode(errors="replace"),
    )


def _of_all_rows(footer: Any, name: str) -> Any:
    """What the footer says of a column that is the same in all rows; None if it says nothing."""
    names = footer.schema.names
    statistics = footer.row_group(0).column(names.index(name)).statistics if name in names else None
    return statistics.max if statistics is not None and statistics.has_min_max else None
