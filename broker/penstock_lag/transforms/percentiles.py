"""Percentiles from log2 buckets: which bucket holds the message of a rank. Buckets merge by adding.

Buckets become milliseconds in penstock_lag_rules.buckets; here they stay numbers, so that nothing is rounded twice.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from penstock_lag.schema import QUEUE

__all__ = ["cumulative_buckets", "percentile_buckets", "window_buckets"]


def window_buckets(lives: DataFrame) -> DataFrame:
    """Sojourn buckets of the messages accepted inside the window: last minus first of each life, added up.

    In: life ends. Out: ordinal, queue_name, bucket, count (above 0).
    """
    last = _exploded(lives, F.col("last.sojourn_indexes"), F.col("last.sojourn_counts"))
    known_before = lives.where(~F.col("born"))
    first = _exploded(known_before, F.col("first.sojourn_indexes"), F.col("first.sojourn_counts"))
    return _added(last.unionByName(first.withColumn("count", -F.col("count"))))


def cumulative_buckets(rows: DataFrame, histogram: str) -> DataFrame:
    """Buckets of one histogram of ledger rows as they stand. Out: ordinal, queue_name, bucket, count (above 0)."""
    return _added(_exploded(rows, F.col(f"{histogram}_indexes"), F.col(f"{histogram}_counts")))


def percentile_buckets(buckets: DataFrame, percents: Mapping[str, int]) -> DataFrame:
    """Per queue: ``completions``, and for each name the bucket in which the message of that percentile is.

    The rank of percentile p among n is ceil(p * n / 100), counted from the shortest; compared in whole numbers.
    """
    queue = Window.partitionBy(*QUEUE)
    up_to_here = queue.orderBy("bucket").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = buckets.withColumn("cumulative", F.sum("count").over(up_to_here)).withColumn(
        "completions", F.sum("count").over(queue)
    )
    return ranked.groupBy(*QUEUE).agg(
        F.max("completions").alias("completions"),
        *[F.min(F.when(_reaches(percent), F.col("bucket"))).alias(name) for name, percent in percents.items()],
    )


def _reaches(percent: int) -> Column:
    return F.col("cumulative") * 100 >= F.col("completions") * percent


def _exploded(rows: DataFrame, indexes: Column, counts: Column) -> DataFrame:
    pairs = F.arrays_zip(indexes.alias("bucket"), counts.alias("count"))
    return rows.select(*QUEUE, F.explode(pairs).alias("pair")).select(
        *QUEUE, F.col("pair")["bucket"].alias("bucket"), F.col("pair")["count"].alias("count")
    )


def _added(buckets: DataFrame) -> DataFrame:
    return buckets.groupBy(*QUEUE, "bucket").agg(F.sum("count").alias("count")).where(F.col("count") > 0)
