"""Makes one thinned segment of several that follow each other.

What stays of a segment: all broker rows, the snapshots of the polls that `merge_plan` keeps, the first and the last
snapshot of each life, and the histograms at the ends of a life. A broker row whose snapshots went says that it is not
complete, so that the absence of a subscription proves nothing there. Readers need no other rule.
Source: docs/reference/lag-job.md, "Merged segments".
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# Reason: pyarrow ships no type information, and makes its functions when it is imported.

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock_api.ledger_format import COLUMNS, SPARSE_COLUMNS, RowKind, SegmentName
from penstock_observer.merge_plan import LoggedPoll, kept_polls
from penstock_observer.parquet import SCHEMA, SegmentFile
from penstock_page.parquet_damage import PARQUET_DAMAGED
from penstock_page.parquet_footer import check_footer

__all__ = ["MergeRefused", "Merged", "SegmentDamaged", "merge_segments"]

ROWS_AT_ONCE: Final = 100_000
"""How many rows are in memory at the same time, or those of one subscription if they are more."""

_READING: Final[dict[str, Any]] = {"partitioning": None, "page_checksum_verification": True}
"""The names of the folders say nothing of the rows."""

_KNOWN: Final = frozenset(column.name for column in COLUMNS)


class MergeRefused(Exception):
    """These segments can't become one; the message says why."""

    def __init__(self, message: str, segment: str | None = None) -> None:
        """`segment`: the name of the file to blame; the others may be merged without it. None: it is not known."""
        super().__init__(message)
        self.segment = segment


class SegmentDamaged(MergeRefused):
    """The contents of one of them can't be read."""

    def __init__(self, segment: str, reason: Exception) -> None:
        """`segment`: the name of its file."""
        super().__init__(f"{segment} can't be read: {reason}", segment)


@dataclass(frozen=True, slots=True)
class Merged:
    """A file that is complete, and not published yet."""

    file: SegmentFile
    rows: int
    bytes: int


def merge_segments(folder: Path, names: Sequence[SegmentName], namespace: str = "") -> Merged:
    """Write a segment that covers what `names` cover, which follow each other in this order. `namespace`: that of the
    Broker; empty if it is not known.

    Raises SegmentDamaged, another MergeRefused, or OSError, with `filename` if one of them was not given; nothing is
    left behind then.
    """
    try:
        return _merged(folder, names, namespace)
    except (pa.ArrowException, UnicodeDecodeError) as error:  # damage that is met behind the reading of one file
        raise MergeRefused(f"one of {names[0]} to {names[-1]} can't be read: {error}") from error


def _merged(folder: Path, names: Sequence[SegmentName], namespace: str) -> Merged:
    paths = [folder / str(name) for name in names]
    for path in paths:
        with _reading(path):
            check_footer(path)
    name = SegmentName(first=names[0].first, last=names[-1].last, epoch=names[0].epoch)
    brokers = pa.concat_tables([_read(path, pc.field("kind") == RowKind.BROKER.value) for path in paths])
    ranges = [*_ranges(paths)]
    kept = _kept(brokers)
    file = SegmentFile(folder, name, namespace, thinned=True)
    try:
        rows = 0
        for low, high in ranges:
            inside = (pc.field("queue_name") >= low) & (pc.field("queue_name") <= high)
            thinned = _thinned(pa.concat_tables([_read(path, inside) for path in paths]), kept)
            rows += thinned.num_rows
            file.write(thinned)
        file.write(_marked(brokers, kept))
        return Merged(file, rows + brokers.num_rows, file.finish())
    except BaseException:
        file.discard()
        raise


def _read(path: Path, which: Any) -> Any:
    """Rows of a segment with all columns of the ledger; those that an earlier release did not have are null."""
    with _reading(path):
        table = pq.read_table(path, filters=which, **_READING)
        table.validate(full=True)  # else damaged text is met later, when nobody knows whose it is
    unknown = [column for column in table.schema.names if column not in _KNOWN]
    if unknown:
        raise MergeRefused(f"{path.name} is of a later release: it has the column {unknown[0]}", path.name)
    with _reading(path):
        columns = [
            table.column(field.name).cast(field.type) if field.name in table.schema.names
            else pa.nulls(table.num_rows, field.type)
            for field in SCHEMA
        ]  # fmt: skip
        return pa.table(columns, schema=SCHEMA)


@contextmanager
def _reading(path: Path) -> Generator[None]:
    """Whatever is met of damage is of this file."""
    try:
        yield
    except PARQUET_DAMAGED as error:
        # The disk's errors have a number; Arrow's own, of damaged rows, have none. A file that is gone stays so.
        is_gone = isinstance(error, FileNotFoundError)
        if isinstance(error, OSError) and error.errno is not None and not is_gone:
            error.filename = str(path)
            raise
        raise SegmentDamaged(path.name, error) from error


def _ranges(paths: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """First and last name of queues that fit into memory together, in the order of names."""
    rows: dict[str, int] = {}
    for path in paths:
        with _reading(path):
            for found in pc.value_counts(pq.read_table(path, columns=["queue_name"], **_READING)["queue_name"]):
                queue, count = found["values"].as_py(), found["counts"].as_py()
                if queue is not None:
                    rows[queue] = rows.get(queue, 0) + count
    ordered = sorted(rows, key=str.encode)  # the order of Arrow
    first, together = None, 0
    for at, queue in enumerate(ordered):
        if first is not None and together + rows[queue] > ROWS_AT_ONCE:
            yield first, ordered[at - 1]
            first, together = None, 0
        first = queue if first is None else first
        together += rows[queue]
    if first is not None:
        yield first, ordered[-1]


def _kept(brokers: Any) -> Any:
    names = ("seq", "time_ms", "complete", "instance", "started_ms")
    polls = zip(*(brokers[name].to_pylist() for name in names), strict=True)
    kept = kept_polls(LoggedPoll(*poll) for poll in polls)
    return pa.array(sorted(kept), pa.int64())


def _marked(brokers: Any, kept: Any) -> Any:
    complete = pc.and_kleene(brokers["complete"], pc.is_in(brokers["seq"], kept))
    return brokers.set_column(brokers.schema.get_field_index("complete"), SCHEMA.field("complete"), complete)


def _thinned(rows: Any, kept: Any) -> Any:
    """The rows that stay, by queue and seq, with the histograms that stay."""
    rows = rows.combine_chunks().sort_by([("queue_name", "ascending"), ("seq", "ascending")])
    begins = _life_begins(rows)
    ends = pa.concat_arrays([begins.slice(1), pa.array([True])])
    told = _told(rows, begins)
    in_kept_poll = pc.is_in(rows["poll"].combine_chunks(), kept)
    stays = pc.or_(pc.or_(in_kept_poll, pc.or_(begins, ends)), told)
    places = pc.if_else(told, pa.array(range(rows.num_rows), pa.int64()), None).filter(stays)
    thinned = rows.filter(stays)
    for name in SPARSE_COLUMNS:
        field = SCHEMA.field(name)
        thinned = thinned.set_column(thinned.schema.get_field_index(name), field, rows[name].take(places))
    return thinned


def _life_begins(rows: Any) -> Any:
    """True for the first row of each life."""
    changed = pa.array([False] * (rows.num_rows - 1), pa.bool_())
    for name in ("queue_name", "instance", "incarnation", "started_ms"):
        column = rows[name].combine_chunks()
        if name == "started_ms":  # null: of an earlier release
            column = pc.fill_null(column, 0)
        changed = pc.or_(changed, pc.not_equal(column.slice(1), column.slice(0, rows.num_rows - 1)))
    return pa.concat_arrays([pa.array([True]), changed])


def _told(rows: Any, begins: Any) -> Any:
    """True for the rows whose histograms stay: the last that has them in each life, and the first of the life."""
    has = rows["sojourn_indexes"].combine_chunks().is_valid()
    seq = rows["seq"].combine_chunks()
    lives = pa.table({"life": pc.cumulative_sum(begins.cast(pa.int64())), "told": pc.if_else(has, seq, None)})
    last = lives.group_by("life").aggregate([("told", "max")])["told_max"].combine_chunks().drop_null()
    return pc.or_(pc.is_in(seq, last), pc.and_(has, begins))
