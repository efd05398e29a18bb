"""Rates per minute, velocity and drain time, in whole numbers.

Velocity is the change of depth, so it holds whatever made messages come and go: arrivals minus settled minus removed.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

__all__ = ["with_drain", "with_rates", "with_velocity"]

MINUTE_MS = 60_000


def with_rates(figures: DataFrame) -> DataFrame:
    """Adds arrival_per_minute and settled_per_minute; null if the polls cover no time."""
    return figures.withColumn("arrival_per_minute", _per_minute(F.col("new_enqueued"))).withColumn(
        "settled_per_minute", _per_minute(F.col("new_acked"))
    )


def with_velocity(figures: DataFrame) -> DataFrame:
    """Adds velocity_per_minute: above 0 if the backlog grows; null if the polls cover no time."""
    return figures.withColumn("velocity_per_minute", _per_minute(F.col("depth") - F.col("first_depth")))


def with_drain(figures: DataFrame) -> DataFrame:
    """Adds drain_seconds: depth over the speed at which it fell, rounded up; null unless it fell and is not empty."""
    fallen = F.col("first_depth") - F.col("depth")
    milliseconds = F.col("depth") * F.col("elapsed_ms") / fallen
    drains = (F.col("depth") > 0) & (fallen > 0) & (F.col("elapsed_ms") > 0)
    return figures.withColumn("drain_seconds", F.when(drains, F.ceil(milliseconds / 1000)))


def _per_minute(count: Column) -> Column:
    """Per minute, rounded to the nearest integer, halves away from 0; null if the polls cover no time."""
    return F.when(F.col("elapsed_ms") > 0, F.round(count * MINUTE_MS / F.col("elapsed_ms")).cast("long"))
