"""What is known of each poll and of its broker: since when an absence can be seen, how well the window is covered.

A *run* of a broker is a row of polls that follow each other with the same data folder and the same epoch. There are
only a few polls, so these frames are sent to all tasks instead of being shuffled.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

__all__ = ["COVERAGE", "POLL_COLUMNS", "with_coverage", "with_runs"]

POLL_COLUMNS: Final = (
    "seq",
    "time_ms",
    "ordinal",
    "instance",
    "epoch",
    "interval_ms",
    "complete",
    "subscriptions",
)
"""What these steps need of the broker rows."""

COVERAGE: Final = ("last_poll_ms", "elapsed_ms", "polls", "interval_ms", "clock_steps")
"""Columns of with_coverage that are the same for all polls of a broker, as in penstock_lag_rules.figures.Coverage."""


def with_runs(polls: DataFrame) -> DataFrame:
    """Per poll, since when its run lasts and which complete poll came before it.

    In: broker rows. Out: ordinal, poll, run_start and instance_start (the first poll with the same data folder and
    epoch, or with the same data folder, without another one in between), complete_before (the last complete poll
    before this one, null if there is none).
    """
    by_seq = Window.partitionBy("ordinal").orderBy("seq")
    earlier = by_seq.rowsBetween(Window.unboundedPreceding, -1)
    other_instance = ~F.col("instance").eqNullSafe(F.lag("instance").over(by_seq))
    other_epoch = ~F.col("epoch").eqNullSafe(F.lag("epoch").over(by_seq))
    begins = polls.select(
        "ordinal",
        "seq",
        F.when(other_instance, F.col("seq")).alias("new_instance"),
        F.when(other_instance | other_epoch, F.col("seq")).alias("new_run"),
        F.max(F.when(F.col("complete"), F.col("seq"))).over(earlier).alias("complete_before"),
    )
    return begins.select(
        "ordinal",
        F.col("seq").alias("poll"),
        F.max("new_run").over(by_seq).alias("run_start"),
        F.max("new_instance").over(by_seq).alias("instance_start"),
        "complete_before",
    )


def with_coverage(polls: DataFrame) -> DataFrame:
    """Per broker, the figures of COVERAGE and its last complete poll.

    In: broker rows. Out: ordinal, the columns of COVERAGE, last_complete_poll (0 if none is complete).
    """
    steps = polls.select(*POLL_COLUMNS, _clock_stepped().alias("clock_stepped"))
    return (
        steps.groupBy("ordinal")
        .agg(
            F.min_by("time_ms", "seq").alias("first_poll_ms"),
            F.max_by("time_ms", "seq").alias("last_poll_ms"),
            F.count(F.lit(1)).alias("polls"),
            F.max_by("interval_ms", "seq").alias("interval_ms"),
            F.sum(F.col("clock_stepped").cast("long")).alias("clock_steps"),
            F.coalesce(F.max(F.when(F.col("complete"), F.col("seq"))), F.lit(0)).alias("last_complete_poll"),
        )
        .withColumn("elapsed_ms", F.greatest(F.col("last_poll_ms") - F.col("first_poll_ms"), F.lit(0)))
        .drop("first_poll_ms")
    )


def _clock_stepped() -> Column:
    """True for a poll whose time is not after that of the poll before. A clock that was set forward cannot be told from
    polls that failed.
    """
    return F.coalesce(
        F.col("time_ms") <= F.lag("time_ms").over(Window.partitionBy("ordinal").orderBy("seq")), F.lit(False)
    )
