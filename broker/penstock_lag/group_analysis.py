"""The Brokers of one group: their rows to Spark, their figures back, and which of them failed.

Source: docs/reference/lag-job.md, "Many Brokers in one run".
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from penstock_api.failure import Failure
from penstock_api.observer_api import SEGMENT
from penstock_lag.figures.computation import compute_figures
from penstock_lag.groups import Member, figures_of_members, windows_of
from penstock_lag.ledger.damage import ContentOf, damaged_among
from penstock_lag.ledger.rows import LedgerRows
from penstock_lag.ledger.segment_files import SegmentFile, download, native_rows, served_rows
from penstock_lag.ledger.source import SegmentMismatch, ServedSegment, read_ledger
from penstock_lag.ledger.windows import without_damaged
from penstock_lag.observer_client import ObserverError
from penstock_lag.session import tune
from penstock_lag.spark_failures import OutOfMemory, SegmentGone, explained, unreadable
from penstock_lag.targets import Target, observers_of
from penstock_lag_rules.figures import Figures
from penstock_lag_rules.thresholds import Thresholds

__all__ = [
    "THRESHOLDS",
    "Failed",
    "Finish",
    "analyse_copies",
    "analyse_rows",
    "analyse_served",
    "copies_of",
    "finish_all",
    "served_content",
    "served_of",
    "without_what_is_damaged",
]

Failed = tuple[Target, Failure]
"""A Broker without a stored result, and why."""
Finish = Callable[[Member, Sequence[Figures]], None]
"""Makes the result of a Broker of its figures, and delivers it. Raises Failure if that does not work."""
ContentOfMember = Callable[[Member], ContentOf]
"""How to have the segments of a Broker."""
RowsOf = Callable[[Sequence[Member]], LedgerRows]
"""The rows of some Brokers, which have at least one segment."""

THRESHOLDS: Final = Thresholds()
log = logging.getLogger(__name__)


def analyse_copies(
    spark: SparkSession, members: Sequence[Member], patience_seconds: float, finish: Finish
) -> list[Failed]:
    """On this machine, from copies of what the observers serve. Returns the Brokers that failed."""
    failed: list[Failed] = []
    there: list[Member] = []
    files: dict[int, Sequence[SegmentFile]] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-ledger-") as scratch:
        for member in members:
            try:
                readable, files[member.first] = copies_of(member, patience_seconds, Path(scratch))
            except Failure as failure:
                failed.append((member.target, failure))
            else:
                there.append(readable)

        def rows_of(some: Sequence[Member]) -> LedgerRows:
            return native_rows(spark, [file for member in some for file in files[member.first]], Path(scratch))

        return failed + analyse_rows(spark, there, rows_of, finish)


def analyse_served(
    spark: SparkSession, members: Sequence[Member], patience_seconds: float, finish: Finish
) -> list[Failed]:
    """On executors that can't see copies on this machine: they fetch the segments themselves. Returns the Brokers that
    failed.
    """

    def rows_of(some: Sequence[Member]) -> LedgerRows:
        segments = [segment for member in some for segment in served_of(member)]
        return served_rows(segments, partial(read_ledger, spark, patience_seconds=patience_seconds))

    return analyse_rows(spark, members, rows_of, finish, partial(served_content, patience_seconds=patience_seconds))


def analyse_rows(
    spark: SparkSession,
    members: Sequence[Member],
    rows_of: RowsOf,
    finish: Finish,
    content_of: ContentOfMember | None = None,
) -> list[Failed]:
    """All of them in one set of questions; if that fails, each half on its own, until it is known whose fault it was.
    That Broker is tried again without its damaged segments, if it has some, and sound ones. `content_of`: how to look
    for them; None: they are left out already. Returns the Brokers that failed. Raises OutOfMemory: the others would
    meet it, too.
    """
    rows = sum(member.plan.rows for member in members)
    read = [member for member in members if member.plan.segments]
    found: list[Figures] = []
    try:
        if read:
            tune(spark, rows)
            with explained(spark, rows):
                found = compute_figures(spark, rows_of(read), windows_of(read), THRESHOLDS)
    except OutOfMemory:
        raise
    except Failure as failure:
        if len(members) == 1:
            look = None if isinstance(failure, SegmentGone) else content_of
            sound = None if look is None else without_what_is_damaged(members[0], look)
            if sound is None:
                return [(members[0].target, failure)]
            return analyse_rows(spark, [sound], rows_of, finish)
        log.warning("%d Brokers can't be evaluated together, so each half is tried: %s", len(members), failure.cause)
        half = len(members) // 2
        return [
            *analyse_rows(spark, members[:half], rows_of, finish, content_of),
            *analyse_rows(spark, members[half:], rows_of, finish, content_of),
        ]
    return finish_all(members, found, finish)


def without_what_is_damaged(member: Member, content_of: ContentOfMember) -> Member | None:
    """A Broker without those of its segments that can't be read; None if all can, if none can, or if one is not given:
    then what Spark has failed of stays.
    """
    try:
        damaged = damaged_among(member.plan.segments, content_of(member))
    except (ObserverError, Failure, OSError) as error:
        log.warning("the segments of %s can't be looked at: %s", member.target.name, error)
        return None
    if not 0 < len(damaged) < len(member.plan.segments):
        return None
    for reason in damaged.values():
        log.error("a segment of %s is left out: %s", member.target.name, reason)
    return replace(member, plan=without_damaged(member.plan, damaged))


def finish_all(members: Sequence[Member], found: Sequence[Figures], finish: Finish) -> list[Failed]:
    """Finish each. Returns those that failed."""
    failed: list[Failed] = []
    figures = figures_of_members(members, found)
    for member in members:
        try:
            finish(member, figures[member.first])
        except Failure as failure:
            failed.append((member.target, failure))
    return failed


def copies_of(member: Member, patience_seconds: float, scratch: Path) -> tuple[Member, Sequence[SegmentFile]]:
    """The planned segments of a Broker, copied to the scratch folder, and the plan without those that are damaged.
    Raises Failure.
    """
    if not member.plan.segments:
        return member, []
    try:
        copies = download(observers_of(member.target, patience_seconds), member.plan, scratch, member.first)
    except (ObserverError, SegmentMismatch, OSError) as error:
        raise unreadable(str(error)) from error
    for reason in copies.damaged.values():
        log.error("a segment of %s is left out: %s", member.target.name, reason)
    return replace(member, plan=without_damaged(member.plan, copies.damaged)), copies.files


def served_content(member: Member, patience_seconds: float) -> ContentOf:
    """The segments of a Broker from its observers. Raises Misuse if their token can't be read."""
    observers = observers_of(member.target, patience_seconds)
    return lambda chosen: observers[chosen.ordinal].get(SEGMENT.format(name=chosen.name))


def served_of(member: Member) -> list[ServedSegment]:
    """The planned segments of a Broker, where its observers serve them."""
    target = member.target
    return [
        ServedSegment(
            member.first + chosen.ordinal,
            chosen.name,
            target.observers[chosen.ordinal],
            str(target.token_file or ""),
            str(target.ca_file or ""),
        )
        for chosen in member.plan.segments
    ]
