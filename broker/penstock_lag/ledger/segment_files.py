"""Segments as Parquet files that Spark reads itself: those of a ledger's folder, or copies of what observers serve.

Spark's own reader needs no Python worker, takes only the columns that a step asks for, and costs a fraction of a Python
data source. Copies go to the scratch folder of the run and are deleted with it. Source: docs/reference/lag-job.md, "How
Spark runs".
"""

from __future__ import annotations

import shutil
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from penstock_api.failure import Failure
from penstock_api.ledger_format import RowKind, SegmentName
from penstock_api.observer_api import SEGMENT
from penstock_lag.ledger.rows import LedgerRows, Place
from penstock_lag.ledger.schema import LEDGER
from penstock_lag.ledger.source import SegmentMismatch, ServedSegment, check_segment
from penstock_lag.ledger.windows import Chosen, Plan
from penstock_lag.observer_client import Observer

__all__ = [
    "Copies",
    "SegmentFile",
    "checked_reader",
    "download",
    "native_rows",
    "room_for_copies",
    "served_rows",
    "with_places",
]

NUMBER: Final = "ordinal"
"""The column in which Spark puts the number that is in the name of a folder."""

THREADS: Final = 4
"""Each holds one segment in memory; a merged one has 128 MiB at most."""
SPARE_BYTES: Final = 256 * 1024 * 1024
"""What the copies must leave free for Spark's own temporary files."""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment, and where Spark finds it."""

    ordinal: int
    """The number of its ledger in the run: the ordinal, if the run is about one Broker."""
    name: SegmentName
    path: str


@dataclass(frozen=True, slots=True)
class Copies:
    """Of the planned segments of a Broker."""

    files: Sequence[SegmentFile]
    damaged: Mapping[Chosen, str]
    """Those that can't be read, and why (a sentence without its full stop)."""


def room_for_copies(scratch: Path) -> int:
    """How many bytes of segments fit into the scratch folder, beside Spark's own files."""
    return max(shutil.disk_usage(scratch).free - SPARE_BYTES, 0)


def download(observers: Sequence[Observer], plan: Plan, scratch: Path, first: int = 0) -> Copies:
    """Copy the planned segments of a Broker into the scratch folder, a few at a time, and check each. Its ledgers are
    numbered from `first` on. Raises Failure if they don't fit; ObserverError if one can't be had, and then no more are
    fetched; SegmentMismatch if all are damaged.
    """
    _check_space(scratch, plan.bytes)
    folders = {ordinal: scratch / f"{NUMBER}={first + ordinal}" for ordinal in {each.ordinal for each in plan.segments}}
    for folder in folders.values():
        folder.mkdir()

    def one(chosen: Chosen) -> SegmentFile | SegmentMismatch:
        content = observers[chosen.ordinal].get(SEGMENT.format(name=chosen.name))
        try:
            check_segment(content, chosen.name)
        except SegmentMismatch as error:
            return error
        path = folders[chosen.ordinal] / chosen.name
        path.write_bytes(content)
        return SegmentFile(first + chosen.ordinal, _parsed(chosen.name), _address(path))

    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="segment")
    try:
        found = list(zip(plan.segments, pool.map(one, plan.segments), strict=True))
    finally:
        pool.shutdown(cancel_futures=True)
    files = [file for _, file in found if isinstance(file, SegmentFile)]
    damaged = {chosen: error for chosen, error in found if isinstance(error, SegmentMismatch)}
    if damaged and not files:
        raise next(iter(damaged.values()))
    return Copies(files, {chosen: str(error) for chosen, error in damaged.items()})


def checked_reader(spark: SparkSession) -> DataFrameReader:
    """Reads Parquet files whose pages are compared with their checksums, if they have any."""
    return spark.read.option("parquet.page.verify-checksum.enabled", "true")


def native_rows(spark: SparkSession, files: Sequence[SegmentFile], copies: Path | None = None) -> LedgerRows:
    """The rows of these segments as the steps ask for them. Columns that later releases append are left out; optional
    ones that an earlier release did not have are null. Of files in the folder of copies, the folder of each says which
    ledger it is of, not the rows: two Brokers of a run may have the same name in different namespaces.
    """
    reader = checked_reader(spark)
    if copies is not None:
        reader = reader.option("basePath", _address(copies))

    def of_kind(kind: RowKind, columns: Sequence[str], places: Sequence[Place] | None = None) -> DataFrame:
        wanted = files if places is None else with_places(files, places)
        frame = reader.schema(LEDGER).parquet(*(file.path for file in wanted))
        return frame.where(F.col("kind") == kind.value).select(*columns)

    return of_kind


def served_rows(segments: Sequence[ServedSegment], read: Callable[..., DataFrame]) -> LedgerRows:
    """The rows of segments that observers serve, for executors that can't see copies on this machine. In:
    ledger_source.read_ledger without its segments.
    """
    files = {SegmentFile(each.ledger, _parsed(each.name), each.name): each for each in segments}

    def of_kind(kind: RowKind, columns: Sequence[str], places: Sequence[Place] | None = None) -> DataFrame:
        wanted = list(files) if places is None else with_places(list(files), places)
        return read([files[file] for file in wanted], kind=kind, columns=columns)

    return of_kind


def with_places(files: Sequence[SegmentFile], places: Sequence[Place]) -> list[SegmentFile]:
    """The segments that have one of these rows, by their names alone."""
    by_ordinal: dict[int, list[int]] = {}
    for ordinal, seq in sorted(places):
        by_ordinal.setdefault(ordinal, []).append(seq)

    def has_one(file: SegmentFile) -> bool:
        seqs = by_ordinal.get(file.ordinal, [])
        at = bisect_left(seqs, file.name.first)
        return at < len(seqs) and seqs[at] <= file.name.last

    return [file for file in files if has_one(file)]


def _check_space(scratch: Path, needed: int) -> None:
    free = shutil.disk_usage(scratch).free
    if needed + SPARE_BYTES > free:
        raise Failure(
            f"the segments of the window are {needed} bytes, and {scratch} has {free} bytes free.",
            "Give a shorter --window, or set TMPDIR to a folder on a larger volume.",
        )


def _address(path: Path) -> str:
    """As Hadoop reads it: nothing in it is escaped."""
    return f"file:{path}"


def _parsed(name: str) -> SegmentName:
    parsed = SegmentName.parse(name)
    if parsed is None:
        raise ValueError(f"{name} was planned, but is not the name of a segment")
    return parsed
