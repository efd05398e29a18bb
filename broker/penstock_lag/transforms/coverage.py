"""How well the polls cover the window: per broker, and since when an epoch is known in full."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

__all__ = ["of_brokers", "of_epochs"]


def of_brokers(polls: DataFrame) -> DataFrame:
    """Per ordinal: time of first and last poll, their number, the intended interval, and the complete polls.

    In: broker rows. Out: ordinal, first_poll_ms, last_poll_ms, elapsed_ms, polls, interval_ms, first_complete_poll
    (null if none is complete), last_complete_poll (0 if none is complete).
    """
    return (
        polls.groupBy("ordinal")
        .agg(
            F.min_by("time_ms", "poll").alias("first_poll_ms"),
            F.max_by("time_ms", "poll").alias("last_poll_ms"),
            F.count(F.lit(1)).alias("polls"),
            F.max_by("interval_ms", "poll").alias("interval_ms"),
            F.min(F.when(F.col("complete"), F.col("poll"))).alias("first_complete_poll"),
            F.coalesce(F.max(F.when(F.col("complete"), F.col("poll"))), F.lit(0)).alias("last_complete_poll"),
        )
        .withColumn("elapsed_ms", F.greatest(F.col("last_poll_ms") - F.col("first_poll_ms"), F.lit(0)))
    )


def of_epochs(polls: DataFrame) -> DataFrame:
    """Per (ordinal, instance, epoch): the first complete poll. A queue that appears later in that epoch began after
    that poll, with totals of zero.

    In: broker rows. Out: ordinal, instance, epoch, first_complete_poll; no row for an epoch without a complete poll.
    """
    return (
        polls.where(F.col("complete"))
        .groupBy("ordinal", "instance", "epoch")
        .agg(F.min("poll").alias("first_complete_poll"))
    )
