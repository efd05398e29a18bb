"""Ledgers that Spark reads where they are: folders on this machine or a shared volume, or in an object store.

A folder is listed through Hadoop's file systems, so every address that this Spark knows can be given (`/data`,
`file:///data`, `s3a://bucket/ledger`), with the user's own settings. What is in a segment is asked of the segment: its
name says which rows, and its footer from when they are and whose. Source: docs/reference/lag-job.md, "Read the ledger
where it is".
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportOptionalMemberAccess=false, reportPrivateUsage=false, reportCallIssue=false, reportOptionalCall=false
# Reason: py4j's objects have no types, and PySpark has no other way to Hadoop's file systems.

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from py4j.protocol import Py4JJavaError  # pyright: ignore[reportMissingTypeStubs] - it has none
from pyspark.sql import SparkSession

from penstock_api.failure import Failure
from penstock_api.ledger_format import HIDDEN_PREFIX, SegmentName
from penstock_api.observer_api import SegmentInfo, SegmentList
from penstock_lag.ledger.damage import ContentOf
from penstock_lag.ledger.schema import REQUIRED
from penstock_lag.ledger.segment_files import SegmentFile
from penstock_lag.ledger.segment_footers import TAIL_BYTES, FooterUnreadable, bytes_needed, footer_in, footer_of
from penstock_lag.ledger.windows import AbsentBroker, Chosen, Plan, PresentBroker
from penstock_lag.spark_failures import GONE

__all__ = ["LedgerFolder", "content_in", "damaged_in", "files_of", "list_ledgers", "rows_in"]

log = logging.getLogger(__name__)

Outline = Mapping[str, Any]  # Any: as segment_footers has it
CURE: Final = "Give --ledger a folder that exists."
FOOTERS: Final = 8
"""How many files elsewhere are asked for their ends at a time: what costs time is to wait."""


@dataclass(frozen=True, slots=True)
class LedgerFolder:
    """What a folder has, as an observer would list it, and the files."""

    broker: PresentBroker | AbsentBroker
    files: tuple[SegmentFile, ...]
    damaged: Mapping[Chosen, str] = field(default_factory=dict[Chosen, str])
    """Files whose footers can't be read, and why (no full stop). They are not listed."""


def list_ledgers(spark: SparkSession, paths: Sequence[str], broker: str, namespace: str) -> list[LedgerFolder]:
    """One entry per path, in their order, which is that of the ordinals. Raises Failure if a folder can't be listed, a
    file in it is no segment, or all are damaged.
    """
    return [_ledger(spark, ordinal, path, broker, namespace) for ordinal, path in enumerate(paths)]


def files_of(plan: Plan, folders: Sequence[LedgerFolder]) -> list[SegmentFile]:
    """The segments of a plan in these folders."""
    chosen = {(each.ordinal, each.name) for each in plan.segments}
    return [file for folder in folders for file in folder.files if (file.ordinal, str(file.name)) in chosen]


def damaged_in(folders: Sequence[LedgerFolder]) -> dict[Chosen, str]:
    """What is left out of them."""
    return {each: reason for folder in folders for each, reason in folder.damaged.items()}


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
    asked = _outlines(spark, path, found)
    damaged = {name: each for name, each in asked.items() if isinstance(each, FooterUnreadable)}
    if len(damaged) == len(found):
        raise next(iter(damaged.values()))
    outlines = {name: each for name, each in asked.items() if not isinstance(each, FooterUnreadable)}
    found = [(file, size) for file, size in found if str(file.name) in outlines]
    files = [file for file, _ in found]
    strange = _strange(files, outlines)
    if strange is not None:
        raise Failure(f"{strange}.", "Move the file elsewhere, or give another folder as --ledger.")
    others = [other for each in outlines.values() if (other := _other(each, broker, namespace, ordinal)) is not None]
    if others:
        return LedgerFolder(AbsentBroker(ordinal, f"{path} is the ledger of {others[0]}"), ())
    listed = tuple(_info(file, size, outlines[str(file.name)]) for file, size in found)
    about = SegmentList(broker=broker, namespace=namespace, ordinal=ordinal, reachable=True, segments=listed)
    left_out = {Chosen(ordinal, name): f"{name} can't be read: {each.reason}" for name, each in damaged.items()}
    for reason in left_out.values():
        log.error("a segment in %s is left out: %s", path, reason)
    return LedgerFolder(PresentBroker(ordinal, about), tuple(files), left_out)


def content_in(spark: SparkSession, folders: Sequence[LedgerFolder]) -> ContentOf:
    """The segments of these folders, wherever they are. What it gives raises Failure."""
    files = {(file.ordinal, str(file.name)): file for folder in folders for file in folder.files}

    def content(chosen: Chosen) -> bytes:
        path = files[chosen.ordinal, chosen.name].path
        try:
            file, system = _hadoop(spark, path)
            size = int(system.getFileStatus(file).getLen())
        except Py4JJavaError as error:
            raise Failure(f"{path} can't be read: {_reason(error)}.", GONE) from error
        return _end(spark, path, size, size)

    return content


def _files(spark: SparkSession, path: str) -> list[tuple[str, str, int]]:
    """Name, address and size of each file in a folder."""
    try:
        folder, system = _hadoop(spark, path)
        statuses = system.listStatus(folder)
    except Py4JJavaError as error:
        raise Failure(f"the ledger {path} can't be listed: {_reason(error)}.", CURE) from error
    return [(status.getPath().getName(), status.getPath().toString(), int(status.getLen())) for status in statuses]


def _outlines(
    spark: SparkSession, path: str, found: Sequence[tuple[SegmentFile, int]]
) -> dict[str, Outline | FooterUnreadable]:
    """By file name: what the footers say. In: the files, and their sizes in bytes."""
    if Path(path).is_dir():
        return {str(file.name): _said(partial(footer_of, Path(path) / str(file.name))) for file, _ in found}

    def asked(path: str, size: int) -> Outline:
        tail = _end(spark, path, size, TAIL_BYTES)
        needed = bytes_needed(tail)
        if len(tail) < needed <= size:
            tail = _end(spark, path, size, needed)
        return footer_in(tail, path)

    def one(sized: tuple[SegmentFile, int]) -> tuple[str, Outline | FooterUnreadable]:
        file, size = sized
        return str(file.name), _said(partial(asked, file.path, size))

    with ThreadPoolExecutor(FOOTERS, thread_name_prefix="footer") as pool:
        return dict(pool.map(one, found))


def _said(ask: Callable[[], Outline]) -> Outline | FooterUnreadable:
    try:
        return ask()
    except FooterUnreadable as failure:
        return failure


def _end(spark: SparkSession, path: str, size: int, wanted: int) -> bytes:
    """The last bytes of a file, or all of it. Raises Failure if it is gone, FooterUnreadable if it is not given."""
    jvm = cast(Any, spark.sparkContext._jvm)
    try:
        file, system = _hadoop(spark, path)
        stream = system.open(file)
        try:
            stream.seek(max(size - wanted, 0))
            return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()
    except Py4JJavaError as error:
        if "FileNotFoundException" in _reason(error):
            raise Failure(f"{path} can't be read: {_reason(error)}.", GONE) from error
        raise FooterUnreadable(path, _reason(error)) from error


def _hadoop(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """A path, and the file system that has it."""
    jvm, context = cast(Any, spark.sparkContext._jvm), spark.sparkContext._jsc
    parsed = jvm.org.apache.hadoop.fs.Path(path)
    return parsed, parsed.getFileSystem(context.hadoopConfiguration())


def _reason(error: Py4JJavaError) -> str:
    return str(error.java_exception.toString()).splitlines()[0]


def _other(outline: Outline, broker: str, namespace: str, ordinal: int) -> str | None:
    """Whose a segment is, and what to do (no full stop); None if it is of this broker. One of an earlier release does
    not say its namespace.
    """
    if (outline["broker"], outline["ordinal"]) != (broker, ordinal):
        return f"{outline['broker']}-{outline['ordinal']}, not of {broker}-{ordinal}; check the order of --ledger"
    said = outline["namespace"]
    if said in (None, namespace):
        return None
    return f"{said}/{broker}-{ordinal}, not of {namespace}/{broker}-{ordinal}; check --ledger and --namespace"


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
