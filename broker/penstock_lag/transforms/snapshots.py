"""Each snapshot with what grew since the one before, and with its place in the spans of its subscription.

A *life* is a row of snapshots of one run of the broker and one incarnation: over it totals never fall. The first
snapshot of a life counts from zero if a complete poll of its run came before it and did not show it. Else it counts as
no growth, because it is not known how much of its totals is from before the window, or was recovered at a restart.
Source: docs/concepts/lag.md, "Totals and lives".
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from penstock_lag.schema import QUEUE
from penstock_lag_rules.figures import TOTALS
from penstock_lag_rules.rules import Thresholds

__all__ = ["GROWTHS", "SNAPSHOT_COLUMNS", "Place", "with_growth"]

LOST: Final = "lost_at_restart"
"""The broker goes on counting it after a restart, so it grows over all lives of an incarnation."""

_STATES: Final = ("depth", "ready", "in_flight", "consumers", "credit")

SNAPSHOT_COLUMNS: Final = (
    *("seq", "poll", "time_ms", *QUEUE, "incarnation"),
    *_STATES,
    *("scheduled", "stranded", "usable_credit", "oldest_available_ms"),
    *TOTALS,
)
"""What this step needs of the subscription rows."""

GROWTHS: Final = {name: f"grown_{name}" for name in TOTALS}
"""Columns of the growth of each total."""


class Place:
    """Values of the columns ``in_stretch`` and ``in_recent``: whether a snapshot is in the span, and its growth.

    The growth of the first snapshot of a span is from before the span. What the first snapshot of the window has grown
    is 0, or it is from after a poll in which the subscription was not there; so that one is no base.
    """

    OUTSIDE = 0
    BASE = 1
    """Its state is in the span, its growth is not."""
    INSIDE = 2


def with_growth(subscriptions: DataFrame, runs: DataFrame, thresholds: Thresholds) -> DataFrame:
    """Per snapshot: its state, what grew, and its place in the spans.

    In: subscription rows; polls with their runs. Out: ordinal, queue_name, seq, poll, time_ms, depth, ready, in_flight,
    consumers, credit, usable_credit (that of all links if the broker does not say), age_ms, grown_... of each total,
    fell (1 if the depth is smaller than before), caught_up, in_stretch and in_recent (see Place), and is_new: true for
    the first snapshot of a subscription that an earlier complete poll of the same run of the broker did not have.
    """
    by_seq = Window.partitionBy(*QUEUE).orderBy("seq")
    whole = by_seq.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    told = subscriptions.select(
        *SNAPSHOT_COLUMNS,
        age_ms("oldest_available_ms").alias("age_ms"),
        _caught_up(thresholds).alias("caught_up"),
    )
    compared = told.select(
        "*",
        *[F.lag(name).over(by_seq).alias(f"before_{name}") for name in ("poll", "incarnation", "depth", *TOTALS)],
        F.lead("seq", 2).over(by_seq).isNull().alias("among_last_two"),
        F.coalesce(F.max(F.when(F.col("caught_up"), F.col("seq"))).over(whole), F.lit(0)).alias("stretch_start"),
        F.last("time_ms").over(whole).alias("last_ms"),
    )
    is_recent = (F.col("time_ms") >= F.col("last_ms") - thresholds.recent_ms) | F.col("among_last_two")
    placed = compared.withColumn("recent_start", F.min(F.when(is_recent, F.col("seq"))).over(whole))
    is_first = F.col("before_poll").isNull()
    return placed.join(F.broadcast(runs), ["ordinal", "poll"], how="inner").select(
        *QUEUE,
        "seq",
        "poll",
        "time_ms",
        *_STATES,
        F.coalesce("usable_credit", "credit").alias("usable_credit"),
        "age_ms",
        *[_growth(total).alias(column) for total, column in GROWTHS.items()],
        (F.col("depth") < F.col("before_depth")).cast("long").alias("fell"),
        "caught_up",
        _place("stretch_start", F.lit(False)).alias("in_stretch"),
        _place("recent_start", is_first).alias("in_recent"),
        (is_first & F.coalesce(F.col("complete_before") >= F.col("run_start"), F.lit(False))).alias("is_new"),
    )


def age_ms(since: str) -> Column:
    """The age in milliseconds at the time of the row; null if `since` is null, or later: the clock went back."""
    return F.when(F.col(since) <= F.col("time_ms"), F.col("time_ms") - F.col(since))


def _caught_up(thresholds: Thresholds) -> Column:
    is_young = F.coalesce(age_ms("oldest_available_ms") <= thresholds.allowed_age_ms, F.lit(False))
    waits = F.col("depth") - F.col("scheduled") + F.coalesce("stranded", F.lit(0))
    return (waits <= thresholds.allowed_messages) | is_young


def _growth(total: str) -> Column:
    """0 also if one of the two does not say: a segment of an earlier release."""
    since = F.col("instance_start" if total == LOST else "run_start")
    goes_on = (F.col("before_poll") >= since) & (F.col("before_incarnation") == F.col("incarnation"))
    was_absent = F.col("complete_before") >= F.col("run_start")
    grown = F.col(total) - F.col(f"before_{total}")
    if total == LOST:
        grown = F.greatest(grown, F.lit(0))
    return F.coalesce(F.when(goes_on, grown).when(was_absent, F.col(total)), F.lit(0))


def _place(start: str, is_no_base: Column) -> Column:
    seq, first = F.col("seq"), F.col(start)
    return F.when(seq < first, Place.OUTSIDE).when((seq == first) & ~is_no_base, Place.BASE).otherwise(Place.INSIDE)
