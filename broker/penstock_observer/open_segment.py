"""The rows of the segment in progress, as Arrow columns, and which of them get their histograms.

Histograms are most of a ledger's bytes. They are cumulative, so a segment needs those at the ends of a life only; see
penstock_api.ledger_format.HISTOGRAMS.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# Reason: pyarrow ships no type information; what leaves this module is typed.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock_api.ledger_format import NAMESPACE_KEY, SPARSE_COLUMNS, SegmentName
from penstock_api.state_documents import ConsumerTotal
from penstock_observer.parquet import SCHEMA
from penstock_observer.rows import (
    Columns,
    Histograms,
    Poll,
    RowOrigin,
    columns_of,
    consumer_column,
    histogram_columns,
    histograms_of,
)

__all__ = ["LastHistograms", "Life", "OpenSegment"]

BUCKET_BYTES: Final = 16
"""Of a bucket in memory."""

Life = tuple[str, int]
"""Queue name and incarnation."""


@dataclass(frozen=True, slots=True)
class LastHistograms:
    """The newest histograms of a life that the segments before this one have."""

    histograms: Histograms
    repeated: bool
    """False: the segment before left them out."""


@dataclass(slots=True)
class LifeEnds:
    """The first and the last row of a life in this segment."""

    first_row: int
    first: Histograms
    last_row: int
    last: Histograms
    is_empty: bool
    """No message in the last row."""
    first_consumers: tuple[ConsumerTotal, ...] = ()
    last_consumers: tuple[ConsumerTotal, ...] = ()


@dataclass(slots=True)
class OpenSegment:
    """Polls of one data folder, one epoch and one hour."""

    writer: RowOrigin
    epoch: int
    first_seq: int
    opened_ms: int
    before: Mapping[Life, LastHistograms] = field(default_factory=dict[Life, LastHistograms])
    """Of the segment before, if it is of the same run of the broker."""
    rows: int = 0
    bytes: int = 0
    """Estimated, in memory; only used to decide when to seal."""
    first_ms: int = 0
    last_ms: int = 0
    _tables: list[Any] = field(default_factory=list[Any])
    _lives: dict[Life, LifeEnds] = field(default_factory=dict[Life, LifeEnds])

    @property
    def name(self) -> SegmentName:
        """The name of the segment that would be sealed now."""
        return SegmentName(first=self.first_seq, last=self.first_seq + self.rows - 1, epoch=self.epoch)

    def add(self, poll: Poll) -> None:
        """Add the rows of a poll."""
        table = _table(columns_of(poll, self.writer, self.first_seq + self.rows), len(poll.subscriptions) + 1)
        self._tables.append(table)
        self.bytes += table.nbytes
        now_ms = poll.broker.now_ms
        self.first_ms = now_ms if self.rows == 0 else min(self.first_ms, now_ms)
        self.last_ms = max(self.last_ms, now_ms)
        for row, state in enumerate(poll.subscriptions, self.rows):
            life, found = (state.queue_name, state.incarnation), histograms_of(state)
            ends = self._lives.get(life)
            if ends is None:
                consumers = state.consumer_totals
                self._lives[life] = LifeEnds(row, found, row, found, state.depth == 0, consumers, consumers)
                self.bytes += BUCKET_BYTES * sum(len(each.counts) for each in found)
            else:
                ends.last_row, ends.last, ends.is_empty = row, found, state.depth == 0
                ends.last_consumers = state.consumer_totals
        self.rows += len(poll.subscriptions) + 1

    def table(self) -> Any:
        """The rows in the order of the file: by queue and seq, the broker's at the end. Its metadata say whose."""
        repeated: dict[int, Histograms] = {}
        consumers: dict[int, tuple[ConsumerTotal, ...]] = {}
        for life, ends in self._lives.items():
            found = self._rows_with_histograms(life, ends)
            repeated |= found
            both = {ends.first_row: ends.first_consumers, ends.last_row: ends.last_consumers}
            consumers |= {row: both[row] for row in found}
        columns = histogram_columns(repeated, self.rows) | consumer_column(consumers, self.rows)
        rows, wide = pa.concat_tables(self._tables), _table(columns, self.rows)
        for name in SPARSE_COLUMNS:
            rows = rows.set_column(rows.schema.get_field_index(name), name, wide.column(name))
        ordered = rows.combine_chunks().sort_by([("queue_name", "ascending"), ("seq", "ascending")])
        namespace = self.writer.namespace
        return ordered.replace_schema_metadata({NAMESPACE_KEY: namespace.encode()} if namespace else None)

    def rows_of(self, queue_name: str) -> list[dict[str, Any]]:
        """The rows of one subscription by seq, without histograms; may be called while a thread adds."""
        tables = tuple(self._tables)
        return [row for table in tables for row in _rows_of(table, queue_name)]

    def last_histograms(self) -> dict[Life, LastHistograms]:
        """What this segment and those before it say, for the next one."""
        return {
            life: LastHistograms(ends.last, bool(self._rows_with_histograms(life, ends)))
            for life, ends in self._lives.items()
        }

    def _rows_with_histograms(self, life: Life, ends: LifeEnds) -> dict[int, Histograms]:
        before = self.before.get(life)
        if before is None:
            return {ends.first_row: ends.first, ends.last_row: ends.last}
        if ends.is_empty and before.histograms == ends.last:
            return {}
        if before.repeated:
            return {ends.last_row: ends.last}
        return {ends.first_row: ends.first, ends.last_row: ends.last}


def _rows_of(table: Any, queue_name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.filter(pc.field("queue_name") == queue_name).to_pylist()
    return found


def _table(columns: Columns, rows: int) -> Any:
    """Columns that are not given are of Arrow's type null."""
    found = [pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(rows) for field in SCHEMA]
    return pa.table(found, names=SCHEMA.names)
