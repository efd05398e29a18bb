"""The snapshots of subscriptions in segments of the ledger, read with the columns that a page needs.

Files are a path or a file object; which segments belong to a time is the caller's business. Columns that an earlier
release did not write are absent and count as not known. Source: penstock_api.ledger_format.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# Reason: pyarrow ships no type information, and adds the functions of its module compute at run time.
# What leaves this module is typed.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock_api.ledger_format import HISTOGRAMS, RowKind
from penstock_lag_rules.figures import TOTALS, Growth
from penstock_lag_rules.history import Snapshot
from penstock_page.parquet_damage import PARQUET_DAMAGED
from penstock_page.parquet_footer import check_footer

__all__ = ["UnreadableSegment", "rows_in", "snapshots_in", "snapshots_in_rows"]

COLUMNS: Final = (
    *("queue_name", "time_ms", "instance", "epoch", "incarnation", "started_ms"),
    *("depth", "ready", "in_flight", "scheduled", "stranded", "oldest_available_ms", "consumers", "credit"),
    *TOTALS,
)
BATCH_ROWS: Final = 65_536

_DAMAGED: Final[tuple[type[Exception], ...]] = (*PARQUET_DAMAGED, KeyError)
"""What reading a file may raise that is damaged, or is no segment."""


class UnreadableSegment(Exception):
    """A segment can't be read; the message says why."""


def snapshots_in(segment: Path | IO[bytes], queue_names: Iterable[str]) -> Iterator[tuple[str, Snapshot]]:
    """Queue name and snapshot of each row of these subscriptions, in the file's order. Raises UnreadableSegment."""
    names = pa.array(list(queue_names), pa.string())
    try:
        check_footer(segment)
        with pq.ParquetFile(segment, page_checksum_verification=True) as file:
            there = [name for name in ("kind", *COLUMNS) if name in file.schema_arrow.names]
            for batch in file.iter_batches(BATCH_ROWS, columns=there):
                yield from _snapshots(_chosen(batch, names))
    except _DAMAGED as error:
        raise UnreadableSegment(str(error)) from error


def snapshots_in_rows(rows: Iterable[Mapping[str, Any]]) -> list[Snapshot]:
    """The snapshots in rows of subscriptions that are not in a file yet."""
    return [_snapshot(row) for row in rows]


def rows_in(
    segment: Path | IO[bytes], begin_ms: int, histograms: Set[str] = frozenset()
) -> Iterator[Mapping[str, Any]]:
    """All rows from `begin_ms` on, with all columns but those of other histograms than these (such as `hold`), in the
    order of the file. Raises UnreadableSegment.
    """
    left_out = tuple(f"{name}_" for name in HISTOGRAMS if name not in histograms)
    try:
        check_footer(segment)
        with pq.ParquetFile(segment, page_checksum_verification=True) as file:
            there = [name for name in file.schema_arrow.names if not name.startswith(left_out)]
            for batch in file.iter_batches(BATCH_ROWS, columns=there):
                yield from batch.filter(pc.greater_equal(batch["time_ms"], begin_ms)).to_pylist()
    except _DAMAGED as error:
        raise UnreadableSegment(str(error)) from error


def _chosen(batch: Any, names: Any) -> Any:
    is_subscription = pc.equal(batch["kind"], RowKind.SUBSCRIPTION.value)
    return batch.filter(pc.and_kleene(is_subscription, pc.is_in(batch["queue_name"], value_set=names)))


def _snapshots(batch: Any) -> Iterator[tuple[str, Snapshot]]:
    for row in batch.to_pylist():
        yield str(row["queue_name"]), _snapshot(row)


def _snapshot(row: Mapping[str, Any]) -> Snapshot:
    return Snapshot(
        time_ms=row["time_ms"],
        life=(row["instance"], row["epoch"], row["incarnation"], row.get("started_ms") or 0),
        depth=row["depth"],
        ready=row["ready"],
        in_flight=row["in_flight"],
        scheduled=row["scheduled"],
        stranded=row.get("stranded") or 0,
        oldest_available_ms=row["oldest_available_ms"],
        consumers=row["consumers"],
        credit=row["credit"],
        usable_credit=row["credit"],
        totals=Growth(**{name: row.get(name) or 0 for name in TOTALS}),
    )
