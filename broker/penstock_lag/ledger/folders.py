"""Ledgers that Spark reads where they are: folders on this machine or a shared volume, or in an object store.

A folder is listed through Hadoop's file systems, so every address that this Spark knows can be given (`/data`,
`file:///data`, `s3a://bucket/ledger`), with the user's own settings. What is in a segment is asked of the segment: its
name says which rows, and one job over a few columns says from when they are and whose. Source:
docs/reference/lag-job.md, "Read the ledger where it is".
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportOptionalMemberAccess=false, reportPrivateUsage=false, reportCallIssue=false, reportOptionalCall=false
# Reason: py4j's objects have no types, and PySpark has no other way to Hadoop's file systems.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from py4j.protocol import Py4JJavaError  # pyright: ignore[reportMissingTypeStubs] - it has none
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock_api.failure import Failure
from penstock_api.ledger_format import HIDDEN_PREFIX, SegmentName
from penstock_api.observer_api import SegmentInfo, SegmentList
from penstock_lag.ledger.schema import LEDGER, REQUIRED
from penstock_lag.ledger.segment_files import SegmentFile
from penstock_lag.ledger.segment_footers import footer_of
from penstock_lag.ledger.windows import AbsentBroker, PresentBroker

__all__ = ["LedgerFolder", "list_ledgers", "rows_in"]

Outline = Mapping[str, Any]  # Any: a row of Spark's


@dataclass(frozen=True, slots=True)
class LedgerFolder:
    """What a folder has, as an observer would list it, and the files."""

    broker: PresentBroker | AbsentBroker
    files: tuple[SegmentFile, ...]


def list_ledgers(spark: SparkSession, paths: Sequence[str], broker: str, namespace: str) -> list[LedgerFolder]:
    """One entry per path, in their order, which is that of the ordinals. Raises Failure if a folder can't be listed or
    a file in it is no segment.
    """
    return [_ledger(spark, ordinal, path, broker, namespace) for ordinal, path in enumerate(paths)]


def rows_in(paths: Sequence[str]) -> int | None:
    """How many rows the segments of folders on this machine have, by their names, before there is a session to ask;
    None if one is elsewhere.
    """
    folders = [Path(path) for path in paths]
    if not all(folder.is_dir() for folder in folders):
        return None
    names = [SegmentName.parse(file.name) for folder in folders for file in folder.iterdir()]
    return sum(name.rows for name in names if name is not None)


def _ledger(spark: SparkSession, ordinal: int, path: str, broker: str, namespace: str) -> LedgerFolder:
    found = [
        (SegmentFile(ordinal, name, uri), size)
        for file, uri, size in _files(spark, path)
        if not file.startswith(HIDDEN_PREFIX) and (name := SegmentName.parse(file)) is not None
    ]
    if not found:
        return LedgerFolder(AbsentBroker(ordinal, f"{path} has no segment of a ledger"), ())
    files = [file for file, _ in found]
    outlines = _outlines(spark, path, files)
    strange = _strange(files, outlines)
    if strange is not None:
        raise Failure(f"{strange}.", "Move the file elsewhere, or give another folder as --ledger.")
    other = next((o for o in outlines.values() if (o["broker"], o["ordinal"]) != (broker, ordinal)), None)
    if other is not None:
        whose = f"{other['broker']}-{other['ordinal']}"
        reason = f"{path} is the ledger of {whose}, not of {broker}-{ordinal}; check the order of --ledger"
        return LedgerFolder(AbsentBroker(ordinal, reason), ())
    listed = tuple(_info(file, size, outlines[str(file.name)]) for file, size in found)
    about = SegmentList(broker=broker, namespace=namespace, ordinal=ordinal, reachable=True, segments=listed)
    return LedgerFolder(PresentBroker(ordinal, about), tuple(files))


def _files(spark: SparkSession, path: str) -> list[tuple[str, str, int]]:
    """Name, address and size of each file in a folder."""
    jvm, context = cast(Any, spark.sparkContext._jvm), spark.sparkContext._jsc
    try:
        folder = jvm.org.apache.hadoop.fs.Path(path)
        statuses = folder.getFileSystem(context.hadoopConfiguration()).listStatus(folder)
    except Py4JJavaError as error:
        reason = str(error.java_exception.toString()).splitlines()[0]
        raise Failure(f"the ledger {path} can't be listed: {reason}.", "Give --ledger a folder that exists.") from error
    return [(status.getPath().getName(), status.getPath().toString(), int(status.getLen())) for status in statuses]


def _outlines(spark: SparkSession, path: str, files: Sequence[SegmentFile]) -> dict[str, Outline]:
    """By file name: times, owner, and how many rows have each required column. On this machine the ends of the files
    say it; elsewhere Spark reads those columns.
    """
    if Path(path).is_dir():
        return {str(file.name): footer_of(Path(path) / str(file.name)) for file in files}
    named = (
        spark.read.schema(LEDGER)
        .parquet(*(file.path for file in files))
        .groupBy(F.element_at(F.split(F.input_file_name(), "/"), -1).alias("file"))
    )
    rows = named.agg(
        F.count(F.lit(1)).alias("rows"),
        F.min("time_ms").alias("first_ms"),
        F.max("time_ms").alias("last_ms"),
        F.max("broker").alias("broker"),
        F.max("ordinal").alias("ordinal"),
        *[F.count(name).alias(f"with_{name}") for name in REQUIRED],
    ).collect()
    return {row["file"]: row.asDict() for row in rows}


def _strange(files: Sequence[SegmentFile], outlines: Mapping[str, Outline]) -> str | None:
    for file in files:
        outline = outlines.get(str(file.name))
        rows = 0 if outline is None else outline["rows"]
        # A segment that was merged from others has fewer rows than its name has numbers.
        if outline is None or not 0 < rows <= file.name.rows:
            return f"{file.path} has {rows} rows, and its name has room for {file.name.rows}"
        absent = [name for name in REQUIRED if outline[f"with_{name}"] != rows]
        if absent:
            return f"{file.path} has rows without {absent[0]}: it is not a segment of a ledger"
    return None


def _info(file: SegmentFile, size: int, outline: Outline) -> SegmentInfo:
    return SegmentInfo(
        name=str(file.name),
        bytes=size,
        rows=outline["rows"],
        first_ms=outline["first_ms"],
        last_ms=outline["last_ms"],
    )
