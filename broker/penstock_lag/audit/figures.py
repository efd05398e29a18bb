"""What Spark counts of an audit: the shapes of messages, kinds of records, sojourns, and spans between ledger rows.

Messages are grouped by number and then by shape, so that what comes back has a few dozen rows however many messages
there were; `penstock_lag_rules.message_accounts` judges it. Source: docs/how-to/audit.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock_api.ledger_format import RowKind
from penstock_api.message_audit import AUDIT_COLUMNS, COUNTED, ENDS, TOTALS, AuditState, EndedBy, EventKind
from penstock_lag.ledger.schema import LEDGER
from penstock_lag.ledger.segment_files import checked_reader
from penstock_lag_rules.message_accounts import POLL_MS, Fault, LedgerTotals, Shape, Span, faults_of, is_within

__all__ = ["PERCENTS", "AuditFigures", "FaultyMessages", "audit_figures"]

PERCENTS: Final = (50, 95, 99)

LISTED: Final = 20
"""Messages that are listed for each fault."""

MAX_ROWS: Final = 400
"""Rows of the ledger that are compared; of more, these are spread over the time."""

_EVENTS: Final = StructType(
    [StructField(name, StringType() if name == "message_id" else LongType()) for name in AUDIT_COLUMNS]
)
_BEGINS: Final = (EventKind.PRESENT, EventKind.ENQUEUED)
_COUNTED_KINDS: Final = (*_BEGINS, *ENDS, EventKind.WAITING)
_SHAPE: Final = [*(f"of_{kind.name}" for kind in _COUNTED_KINDS), "is_delivered", "is_delivered_after_end"]


@dataclass(frozen=True, slots=True)
class FaultyMessages:
    """Messages with the same fault."""

    fault: Fault
    count: int
    messages: tuple[str, ...]
    """At most `LISTED`, by message-id; `#` and the number for one that has none."""


@dataclass(frozen=True, slots=True)
class AuditFigures:
    """Of one audit."""

    records: int
    is_gapless: bool
    """Each record is there once."""
    kinds: dict[int, int]
    """Number of records by kind."""
    shapes: dict[Shape, int]
    """Number of messages by shape."""
    faulty: tuple[FaultyMessages, ...]
    sojourns_us: tuple[int, ...]
    """From available to accepted, microseconds: the percentiles `PERCENTS`, then the longest; empty without any."""
    rows: tuple[LedgerTotals, ...]
    """Of the ledger, within the audit."""
    spans: tuple[Span | None, ...]
    """Of records between them; one more than rows."""
    clock_steps_ms: tuple[int, ...] = ()
    """By how much the broker's clock was set during the audit, each time."""


def audit_figures(
    spark: SparkSession, state: AuditState, audit_files: Sequence[str], segments: Sequence[str]
) -> AuditFigures:
    """Count the records in the files of an audit, and between the rows of its subscription in segments of the ledger.
    Without a file there are none.
    """
    events = checked_reader(spark).schema(_EVENTS).parquet(*audit_files) if audit_files else _no_events(spark)
    messages = _messages(events)
    ended_by = EndedBy(state.ended_by) if state.ended_by in {each.value for each in EndedBy} else EndedBy.TIME
    shapes = {_shape(row): row["messages"] for row in _collected(_by_shape(messages))}
    total = _collected(
        events.agg(
            F.count(F.lit(1)).alias("records"),
            F.min("ordinal").alias("first"),
            F.max("ordinal").alias("last"),
            F.count_distinct("ordinal").alias("distinct"),
        )
    )[0]
    rows = _ledger_rows(spark, state, segments)
    records = total["records"]
    return AuditFigures(
        records=records,
        is_gapless=records == total["distinct"] == (total["last"] or 0) + 1 and total["first"] == 0,
        kinds={row["kind"]: row["count"] for row in _collected(events.groupBy("kind").count())},
        shapes=shapes,
        faulty=tuple(_faulty(messages, shapes, ended_by)),
        sojourns_us=_sojourns(messages),
        rows=rows,
        spans=_spans(events, state, rows),
        clock_steps_ms=_clock_steps_ms(spark, state, segments),
    )


def _no_events(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], _EVENTS)  # pyright: ignore[reportUnknownMemberType]


def _messages(events: DataFrame) -> DataFrame:
    """One row per message: the columns of its shape, its id, and its sojourn if it was accepted."""
    kind = F.col("kind")
    is_end = kind.isin([int(each) for each in ENDS])
    grouped = events.groupBy("number").agg(
        *(F.count(F.when(kind == int(each), 1)).alias(f"of_{each.name}") for each in _COUNTED_KINDS),
        F.min(F.when(is_end, F.col("ordinal"))).alias("ended"),
        F.max(F.when(kind == int(EventKind.DELIVERED), F.col("ordinal"))).alias("sent"),
        F.max("message_id").alias("message_id"),
        F.max("available_us").alias("available_us"),
        F.min(F.when(kind == int(EventKind.ACCEPTED), F.col("time_us"))).alias("accepted_us"),
    )
    return grouped.select(
        "number",
        "message_id",
        (F.col("accepted_us") - F.col("available_us")).alias("sojourn_us"),
        *_SHAPE[:-2],
        F.col("sent").isNotNull().alias("is_delivered"),
        F.coalesce(F.col("sent") > F.col("ended"), F.lit(False)).alias("is_delivered_after_end"),
    )


def _by_shape(messages: DataFrame) -> DataFrame:
    return messages.groupBy(*_SHAPE).agg(F.count(F.lit(1)).alias("messages"))


def _shape(row: Row) -> Shape:
    return Shape(
        present=row["of_PRESENT"],
        enqueued=row["of_ENQUEUED"],
        ends=tuple(row[f"of_{kind.name}"] for kind in ENDS),
        waiting=row["of_WAITING"],
        is_delivered=row["is_delivered"],
        is_delivered_after_end=row["is_delivered_after_end"],
    )


def _faulty(messages: DataFrame, shapes: dict[Shape, int], ended_by: EndedBy) -> list[FaultyMessages]:
    """By fault; a message may have several."""
    found: list[FaultyMessages] = []
    for fault in Fault:
        with_it = [shape for shape in shapes if fault in faults_of(shape, ended_by)]
        if not with_it:
            continue
        condition = F.lit(False)
        for shape in with_it:
            condition = condition | _has(shape)
        chosen = messages.where(condition)
        listed = _collected(chosen.select("number", "message_id").orderBy("number").limit(LISTED))
        names = tuple(row["message_id"] or f"#{row['number']}" for row in listed)
        found.append(FaultyMessages(fault, sum(shapes[shape] for shape in with_it), names))
    return found


def _has(shape: Shape) -> Column:
    """Whether a message has this shape."""
    values = (
        shape.present,
        shape.enqueued,
        *shape.ends,
        shape.waiting,
        shape.is_delivered,
        shape.is_delivered_after_end,
    )
    condition = F.lit(True)
    for name, value in zip(_SHAPE, values, strict=True):
        condition = condition & (F.col(name) == F.lit(value))
    return condition


def _sojourns(messages: DataFrame) -> tuple[int, ...]:
    """Exact: the time of the message of a rank, as the histogram's percentiles are defined."""
    came = F.col("of_PRESENT") + F.col("of_ENQUEUED") > 0
    accepted = messages.where(came & F.col("sojourn_us").isNotNull())
    ranks = [
        F.expr(f"percentile_disc({percent / 100}) within group (order by sojourn_us)").alias(f"p{percent}")
        for percent in PERCENTS
    ]
    row = _collected(accepted.agg(*ranks, F.max("sojourn_us").alias("longest")))[0]
    return () if row["longest"] is None else tuple(int(row[name]) for name in row.asDict())


def _ledger_rows(spark: SparkSession, state: AuditState, segments: Sequence[str]) -> tuple[LedgerTotals, ...]:
    """The rows within the audit, by time, without those just behind the beginning that show a moment before it."""
    if not segments or state.ended_ms is None:
        return ()
    mine = _mine(_of_the_broker(spark, state, segments), state)
    frame = mine.where(F.col("time_ms").between(state.started_ms, state.ended_ms)).orderBy("time_ms")
    rows = [_totals(row) for row in _collected(frame.drop("poll"))]
    while rows and rows[0].time_ms < state.started_ms + POLL_MS and rows[0].since(state.begin) < 0:
        rows.pop(0)
    return tuple(rows[:: len(rows) // MAX_ROWS + 1])


def _clock_steps_ms(spark: SparkSession, state: AuditState, segments: Sequence[str]) -> tuple[int, ...]:
    """Those that the observer has seen in polls within the audit."""
    if not segments:
        return ()
    rows = _of_the_broker(spark, state, segments)
    stepped = rows.where((F.col("kind") == RowKind.BROKER.value) & (F.col("clock_step_ms") != 0))
    steps = _mine(rows, state).join(F.broadcast(stepped.select("poll", "clock_step_ms")), "poll").orderBy("poll")
    return tuple(row["clock_step_ms"] for row in _collected(steps) if is_within(_totals(row), state))


def _of_the_broker(spark: SparkSession, state: AuditState, segments: Sequence[str]) -> DataFrame:
    """The rows of the broker's run in which the audit was."""
    of_run = (F.col("instance") == state.instance_id) & (F.col("epoch") == state.epoch)
    return checked_reader(spark).schema(LEDGER).parquet(*segments).where(of_run)


def _mine(rows: DataFrame, state: AuditState) -> DataFrame:
    """Poll, time and totals of the audited subscription."""
    mine = (
        (F.col("kind") == RowKind.SUBSCRIPTION.value)
        & (F.col("queue_name") == state.queue_name)
        & (F.col("incarnation") == state.incarnation)
    )
    return rows.where(mine).select(
        "poll", "time_ms", *(F.coalesce(F.col(name), F.lit(0)).alias(name) for name in TOTALS)
    )


def _totals(row: Row) -> LedgerTotals:
    return LedgerTotals(row["time_ms"], {name: row[name] for name in TOTALS})


def _spans(events: DataFrame, state: AuditState, rows: Sequence[LedgerTotals]) -> tuple[Span | None, ...]:
    if not rows:
        return (None,)
    cuts = list(accumulate((row.since(state.begin) for row in rows), max))
    behind = F.array(*(F.lit(cut) for cut in cuts))
    place = F.size(F.filter(behind, lambda cut: cut < F.col("counted"))).alias("place")
    counted = events.where(F.col("kind").isin([int(kind) for kind in COUNTED]))
    found = _collected(
        counted.groupBy(place, "kind").agg(
            F.count(F.lit(1)).alias("records"), F.min("time_us").alias("first"), F.max("time_us").alias("last")
        )
    )
    by_place: dict[int, Span] = {}
    for row in found:
        span = by_place.get(row["place"], Span({}, row["first"], row["last"]))
        kinds = {**span.kinds, row["kind"]: row["records"]}
        by_place[row["place"]] = Span(kinds, min(span.first_us, row["first"]), max(span.last_us, row["last"]))
    return tuple(by_place.get(place) for place in range(len(rows) + 1))


def _collected(frame: DataFrame) -> list[Any]:
    return frame.collect()
