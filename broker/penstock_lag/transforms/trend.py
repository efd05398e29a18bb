"""How depth, age, credit and consumers moved from snapshot to snapshot."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from penstock_lag.schema import QUEUE

__all__ = ["trend"]


def trend(subscriptions: DataFrame, brokers: DataFrame) -> DataFrame:
    """Per queue, extremes and turning points over its snapshots.

    In: subscription rows; coverage of brokers. Out, besides ordinal and queue_name: snapshots, first_depth (0 if the
    queue was not there yet), falls (snapshots with a smaller depth than the one before), min_depth, min_age_ms,
    first_age_ms, min_ready, min_in_flight, min_credit, max_credit, min_consumers, consumed_ms (last time with a
    consumer, null if never), progressed_ms (last time at which messages were seen to have gone; the first snapshot
    if never).
    """
    by_seq = Window.partitionBy(*QUEUE).orderBy("seq")
    settled = F.col("acked") + F.col("expired") + F.col("dead_lettered") + F.col("dropped") + F.col("lost_at_restart")
    moved = (
        subscriptions.withColumn("age_ms", age_ms("oldest_available_ms"))
        .withColumn("fell", (F.col("depth") < F.lag("depth").over(by_seq)).cast("long"))
        .withColumn("settled", settled)
        .withColumn("progressed", F.col("settled") != F.lag("settled").over(by_seq))
    )
    summed = moved.groupBy(*QUEUE).agg(
        F.count(F.lit(1)).alias("snapshots"),
        F.min("poll").alias("appeared"),
        F.min_by("depth", "seq").alias("depth_at_first"),
        F.coalesce(F.sum("fell"), F.lit(0)).alias("falls"),
        F.min("depth").alias("min_depth"),
        F.min("age_ms").alias("min_age_ms"),
        F.min_by("age_ms", "seq").alias("first_age_ms"),
        F.min("ready").alias("min_ready"),
        F.min("in_flight").alias("min_in_flight"),
        F.min("credit").alias("min_credit"),
        F.max("credit").alias("max_credit"),
        F.min("consumers").alias("min_consumers"),
        F.max(F.when(F.col("consumers") > 0, F.col("time_ms"))).alias("consumed_ms"),
        F.max(F.when(F.col("progressed"), F.col("time_ms"))).alias("last_progress_ms"),
        F.min("time_ms").alias("first_ms"),
    )
    return (
        summed.join(brokers.select("ordinal", "first_complete_poll"), "ordinal", how="inner")
        .withColumn("first_depth", _first_depth())
        .withColumn("progressed_ms", F.coalesce("last_progress_ms", "first_ms"))
        .drop("appeared", "depth_at_first", "first_complete_poll", "last_progress_ms", "first_ms")
    )


def age_ms(since: str) -> Column:
    """The age in milliseconds at the time of the row; 0 if `since` is null, or if the broker's clock went back."""
    return F.coalesce(F.greatest(F.col("time_ms") - F.col(since), F.lit(0)), F.lit(0))


def _first_depth() -> Column:
    """Depth when the window began: a queue that an earlier complete poll did not have was not there."""
    came_later = F.coalesce(F.col("appeared") > F.col("first_complete_poll"), F.lit(False))
    return F.when(came_later, F.lit(0)).otherwise(F.col("depth_at_first"))
