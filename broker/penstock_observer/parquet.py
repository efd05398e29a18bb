"""Segments as Parquet files: the Arrow schema of the ledger, writing one file safely, and reading a file's outline.

The only module of the observer that knows Arrow. It must not know when to write or what to keep. Source:
docs/reference/lag-job.md, "Ledger".
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# Reason: pyarrow ships no type information; what leaves this module is typed.

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock_api.ledger_format import COLUMNS, HIDDEN_PREFIX, ColumnType, SegmentName
from penstock_observer.rows import Row

__all__ = ["SCHEMA", "Outline", "UnreadableSegment", "fsync_folder", "outline_of", "write_segment"]

_ARROW: Final[dict[ColumnType, Any]] = {
    ColumnType.TEXT: pa.string(),
    ColumnType.LONG: pa.int64(),
    ColumnType.FLAG: pa.bool_(),
    ColumnType.LONGS: pa.list_(pa.field("element", pa.int64(), nullable=False)),
}

SCHEMA: Final[Any] = pa.schema([pa.field(c.name, _ARROW[c.type], nullable=c.nullable) for c in COLUMNS])
"""The Arrow schema of every segment."""


class UnreadableSegment(Exception):
    """A file that is named like a segment can't be read as one; the message says why."""


@dataclass(frozen=True, slots=True)
class Outline:
    """What the footer of a segment contains."""

    rows: int
    first_ms: int
    last_ms: int


def write_segment(folder: Path, name: SegmentName, rows: Sequence[Row]) -> int:
    """Write rows as one segment and return its size in bytes.

    The file is written under a hidden name, synced and renamed, then the folder is synced: whoever sees the name sees
    the whole file, also after a loss of power. On OSError nothing is left behind under either name.
    """
    table = pa.table({c.name: [row[c.name] for row in rows] for c in COLUMNS}, schema=SCHEMA)
    hidden = folder / f"{HIDDEN_PREFIX}{name}"
    try:
        with hidden.open("wb") as file:
            pq.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        size = hidden.stat().st_size
        hidden.rename(folder / str(name))
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise
    fsync_folder(folder)
    return size


def fsync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def outline_of(path: Path) -> Outline:
    """Read the footer of a segment. Raises UnreadableSegment if the file isn't a complete ledger segment."""
    try:
        footer = pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        raise UnreadableSegment(f"{path.name}: {error}") from error
    column = footer.schema.names.index("time_ms") if "time_ms" in footer.schema.names else None
    if column is None or footer.num_rows == 0:
        raise UnreadableSegment(f"{path.name}: not a ledger segment (no rows with a time)")
    ranges = [footer.row_group(group).column(column).statistics for group in range(footer.num_row_groups)]
    if any(statistics is None or not statistics.has_min_max for statistics in ranges):
        raise UnreadableSegment(f"{path.name}: the footer does not contain the times of the rows")
    return Outline(
        rows=int(footer.num_rows),
        first_ms=min(int(statistics.min) for statistics in ranges),
        last_ms=max(int(statistics.max) for statistics in ranges),
    )
