"""What happened inside the window, as differences of totals, so that a missing poll loses nothing."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock_lag.schema import QUEUE, TOTALS

__all__ = ["increases"]

REMOVED = ("expired", "dead_lettered", "dropped", "lost_at_restart")
"""Totals of messages that left the queue without being accepted."""


def increases(lives: DataFrame) -> DataFrame:
    """Per queue, the sums over its lives of last minus first.

    In: life ends. Out: ordinal, queue_name, lives, and ``new_<total>`` for enqueued, delivered, redelivered, acked,
    removed.
    """
    grown = lives.groupBy(*QUEUE).agg(
        F.count(F.lit(1)).alias("lives"), *[F.sum(_growth(name)).alias(f"new_{name}") for name in TOTALS]
    )
    removed = [F.col(f"new_{name}") for name in REMOVED]
    return grown.withColumn("new_removed", sum(removed[1:], removed[0])).drop(*[f"new_{name}" for name in REMOVED])


def _growth(total: str) -> Column:
    return F.col(f"last.{total}") - F.when(F.col("born"), F.lit(0)).otherwise(F.col(f"first.{total}"))
