"""All figures of all subscriptions: the steps on Spark one after another, and what is put together between them.

Four questions are asked of the ledger, each with the few columns that it needs: the polls; where the spans of each
subscription start; the pieces of the spans; and single rows, of which only their segments are read. What comes back is
a few rows for each subscription. Source: docs/reference/lag-job.md, "How Spark runs".
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# Reason: pyarrow ships no type information; what leaves this module is typed.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock_api.ledger_format import RowKind
from penstock_lag.figures.ends import END_COLUMNS, ends
from penstock_lag.figures.figures_rows import figures_of
from penstock_lag.figures.pieces import PIECE_COLUMNS, pieces
from penstock_lag.figures.polls import POLL_COLUMNS, BrokerPolls, polls_of
from penstock_lag.figures.spans import Subscription, subscription_of
from penstock_lag.figures.starts import START_COLUMNS, with_starts
from penstock_lag.ledger.rows import LedgerRows, Place, between, is_inside
from penstock_lag.ledger.schema import QUEUE
from penstock_lag.ledger.windows import BrokerWindow
from penstock_lag_rules.figures import Figures
from penstock_lag_rules.thresholds import Thresholds

__all__ = ["compute_figures"]

Row = Mapping[str, Any]
Queue = tuple[int, str]
_SPAN_STARTS: Final = ("first_seq", "stretch_start", "recent_start")


def compute_figures(
    spark: SparkSession, rows: LedgerRows, windows: Sequence[BrokerWindow], thresholds: Thresholds
) -> list[Figures]:
    """The figures of each subscription that is still there, in no order."""
    by_ordinal = {window.ordinal: window for window in windows}
    found_polls = _collect(between(rows(RowKind.BROKER, POLL_COLUMNS), windows))
    polls = polls_of([row for row in found_polls if is_inside(row, by_ordinal)])
    if not polls:
        return []
    placed = _polls_frame(spark, polls)
    starts = _starts(between(rows(RowKind.SUBSCRIPTION, START_COLUMNS), windows), placed, polls, thresholds)
    if not starts:
        return []
    of_queues = _starts_frame(spark, starts)
    cut = _collect(pieces(between(rows(RowKind.SUBSCRIPTION, PIECE_COLUMNS), windows), placed, of_queues))
    found = _subscriptions(starts, cut, polls)
    places = sorted((ordinal, seq) for (ordinal, _), one in found.items() for seq in one.seqs())
    seen = _rows_at(spark, rows, places)
    return [figures_of(one, seen[ordinal], polls[ordinal].coverage) for (ordinal, _), one in found.items()]


def _starts(
    subscriptions: DataFrame, placed: DataFrame, polls: Mapping[int, BrokerPolls], thresholds: Thresholds
) -> dict[Queue, Row]:
    """Without the queues that the last complete poll no longer had: they have ended. Of several under one name the last
    one.
    """
    found = sorted(_collect(with_starts(subscriptions, placed, thresholds)), key=lambda row: row["last_seq"])
    return {_queue(row): row for row in found if row["last_poll"] >= polls[row["ordinal"]].last_complete}


def _subscriptions(
    starts: Mapping[Queue, Row], cut: Sequence[Row], polls: Mapping[int, BrokerPolls]
) -> dict[Queue, Subscription]:
    by_poll = {ordinal: {each.poll: each for each in found.placed} for ordinal, found in polls.items()}
    of_queue: dict[Queue, list[Row]] = {}
    for row in cut:
        of_queue.setdefault(_queue(row), []).append(row)
    return {queue: subscription_of(starts[queue], own, by_poll[queue[0]]) for queue, own in of_queue.items()}


def _rows_at(spark: SparkSession, rows: LedgerRows, places: Sequence[Place]) -> dict[int, dict[int, Row]]:
    """By ordinal and seq."""
    ordinals, seqs = [place[0] for place in places], [place[1] for place in places]
    wanted = _frame(spark, {"ordinal": ordinals, "seq": seqs})
    found: dict[int, dict[int, Row]] = {}
    for row in _collect(ends(rows(RowKind.SUBSCRIPTION, END_COLUMNS, places), wanted)):
        found.setdefault(row["ordinal"], {})[row["seq"]] = row
    return found


def _polls_frame(spark: SparkSession, polls: Mapping[int, BrokerPolls]) -> DataFrame:
    placed = [(ordinal, each) for ordinal, found in polls.items() for each in found.placed]
    return _frame(
        spark,
        {
            "ordinal": [ordinal for ordinal, _ in placed],
            "poll": [each.poll for _, each in placed],
            "run_start": [each.run_start for _, each in placed],
            "instance_start": [each.instance_start for _, each in placed],
            "shows_absence": [each.shows_absence for _, each in placed],
        },
    )


def _starts_frame(spark: SparkSession, starts: Mapping[Queue, Row]) -> DataFrame:
    return _frame(spark, {name: [row[name] for row in starts.values()] for name in (*QUEUE, *_SPAN_STARTS)})


def _frame(spark: SparkSession, columns: Mapping[str, Sequence[object]]) -> DataFrame:
    return spark.createDataFrame(pa.table(dict(columns)))


def _collect(frame: DataFrame) -> list[Row]:
    """As Arrow: rows as Python objects of their own take several times the processor time."""
    found: list[Row] = frame.toArrow().to_pylist()
    return found


def _queue(row: Row) -> Queue:
    return row["ordinal"], row["queue_name"]
