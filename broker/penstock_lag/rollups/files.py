"""Rollups as Parquet files: rows to bytes and back. A file is checked when it is read, because it may be anything.

Source: penstock_api.rollup_format.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# Reason: pyarrow ships no type information; what leaves this module is typed.

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from penstock_api.ledger_format import HISTOGRAMS, ColumnType, RowKind
from penstock_api.rollup_format import ABOUT_KEY, COLUMNS, ENDS, LATER_COLUMNS, TOTALS, RollupAbout
from penstock_lag_rules.figures import Growth
from penstock_lag_rules.rollups import BrokerRow, Buckets, LifeRow, Rollup
from penstock_page.parquet_damage import PARQUET_DAMAGED
from penstock_page.parquet_footer import add_checksum, check_footer

__all__ = ["BadRollup", "about_of", "read_about", "read_rollup", "write_rollup"]

_ARROW: Final[dict[ColumnType, Any]] = {
    ColumnType.TEXT: pa.string(),
    ColumnType.LONG: pa.int64(),
    ColumnType.FLAG: pa.bool_(),
    ColumnType.LONGS: pa.list_(pa.field("element", pa.int64(), nullable=False)),
}
SCHEMA: Final[Any] = pa.schema([pa.field(c.name, _ARROW[c.type], nullable=c.nullable) for c in COLUMNS])
"""The Arrow schema of every rollup."""

_TEXTS: Final = [column.name for column in COLUMNS if column.type is ColumnType.TEXT]
_STEADY: Final = [f"{column.name}.list.element" for column in COLUMNS if column.type is ColumnType.LONGS]
"""Values that differ little from one to the next."""

_FORM: Final[dict[str, Any]] = {
    "compression": "zstd",
    "use_dictionary": [*_TEXTS, "ordinal", "epoch", "started_ms", "incarnation"],
    "column_encoding": dict.fromkeys(_STEADY, "DELTA_BINARY_PACKED"),
    "write_statistics": False,
    "write_page_checksum": True,
}

_LIFE_COLUMNS: Final = tuple(each.name for each in fields(LifeRow) if each.name in SCHEMA.names)
_ABSENT: Final[Mapping[str, None]] = dict.fromkeys(("owner_namespace", "owner_name", "max_age_ms"))
"""What these are in a row that was read without them; all others are 0."""
_RUN_COLUMNS: Final = tuple(each.name for each in fields(BrokerRow))


class BadRollup(Exception):
    """A file is no rollup; the message says why, without its full stop."""


def write_rollup(rollup: Rollup, about: RollupAbout) -> bytes:
    """The file of a rollup: the same rows give the same bytes."""
    rows = [*map(_run_values, rollup.runs), *map(_life_values, rollup.lives)]
    schema = SCHEMA.with_metadata({ABOUT_KEY: about.model_dump_json(by_alias=True).encode()})
    table = pa.table(
        {field.name: pa.array([row.get(field.name) for row in rows], field.type) for field in schema}, schema=schema
    )
    content = io.BytesIO()
    pq.write_table(table, content, **_FORM)
    add_checksum(content)
    return content.getvalue()


def read_about(content: bytes) -> RollupAbout:
    """What a file says about itself. Raises BadRollup."""
    return _opened(io.BytesIO(content))[1]


def about_of(path: Path) -> RollupAbout:
    """The same of a file on this machine, without loading its rows. Raises BadRollup or OSError."""
    with path.open("rb") as file:
        return _opened(file)[1]


def read_rollup(content: bytes, columns: frozenset[str] | None = None) -> Rollup:
    """The rows of a file; with `columns`, those of the required and these, and 0 or nothing for the others. Raises
    BadRollup.
    """
    file, _ = _opened(io.BytesIO(content))
    wanted = [column.name for column in COLUMNS if columns is None or not column.nullable or column.name in columns]
    there = file.schema_arrow.names
    try:
        rows: list[Mapping[str, Any]] = file.read(columns=[name for name in wanted if name in there]).to_pylist()
        runs = tuple(_run(row) for row in rows if row["kind"] == RowKind.BROKER.value)
        return Rollup(runs, tuple(_life(row) for row in rows if row["kind"] == RowKind.SUBSCRIPTION.value))
    except (pa.ArrowException, OSError, TypeError, ValueError) as error:
        raise BadRollup(f"its rows can't be read: {error}") from error


def _opened(source: IO[bytes]) -> tuple[Any, RollupAbout]:
    try:
        check_footer(source)
        file = pq.ParquetFile(source, page_checksum_verification=True)
        types = {field.name: field.type for field in file.schema_arrow}
    except PARQUET_DAMAGED as error:
        raise BadRollup(f"it is no Parquet file: {error}") from error
    found = (file.schema_arrow.metadata or {}).get(ABOUT_KEY)
    if found is None:
        raise BadRollup("its metadata do not say what it is about")
    try:
        about = RollupAbout.model_validate_json(found)
    except ValidationError as error:
        raise BadRollup("its metadata can't be understood") from error
    needed = [column for column in COLUMNS if column.name in types or column.name not in LATER_COLUMNS]
    wrong = [column.name for column in needed if types.get(column.name) != _ARROW[column.type]]
    if wrong:
        raise BadRollup(f"its column {wrong[0]} is absent, or of another type")
    return file, about


def _run_values(row: BrokerRow) -> dict[str, Any]:
    return {"kind": RowKind.BROKER.value, **{name: getattr(row, name) for name in _RUN_COLUMNS}}


def _life_values(row: LifeRow) -> dict[str, Any]:
    values: dict[str, Any] = {"kind": RowKind.SUBSCRIPTION.value}
    values |= {name: getattr(row, name) for name in _LIFE_COLUMNS}
    for end, totals, buckets in (("first", row.first, row.first_buckets), ("last", row.last, row.last_buckets)):
        values |= {f"{end}_{total}": getattr(totals, total) for total in TOTALS}
        for name, found in buckets.items():
            values[f"{end}_{name}_indexes"] = [at for at, _ in found]
            values[f"{end}_{name}_counts"] = [count for _, count in found]
    return values


def _run(row: Mapping[str, Any]) -> BrokerRow:
    return BrokerRow(**{name: row.get(name, 0) for name in _RUN_COLUMNS})


def _life(row: Mapping[str, Any]) -> LifeRow:
    totals = {end: Growth(**{total: row.get(f"{end}_{total}") or 0 for total in TOTALS}) for end in ENDS}
    buckets = {end: _buckets(row, end) for end in ENDS}
    return LifeRow(
        **{name: row.get(name, _ABSENT.get(name, 0)) for name in _LIFE_COLUMNS},
        first=totals["first"],
        last=totals["last"],
        first_buckets=buckets["first"],
        last_buckets=buckets["last"],
    )


def _buckets(row: Mapping[str, Any], end: str) -> dict[str, Buckets]:
    found: dict[str, Buckets] = {}
    for name in HISTOGRAMS:
        indexes = row.get(f"{end}_{name}_indexes")
        if indexes is not None:
            found[name] = tuple(zip(indexes, row[f"{end}_{name}_counts"] or (), strict=True))
    return found
