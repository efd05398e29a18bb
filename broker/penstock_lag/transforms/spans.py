"""The three spans of each subscription: what was least and most in them, and what grew.

First the snapshots that have the same place in all spans, because then no figure asks for each snapshot in which spans
it is; then these few groups together. Both need no shuffle beyond that of the snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock_lag.schema import QUEUE
from penstock_lag.transforms.snapshots import GROWTHS, Place

__all__ = ["spans"]

LEAST: Final = {
    "min_depth": "depth",
    "min_ready": "ready",
    "min_in_flight": "in_flight",
    "min_consumers": "consumers",
    "min_credit": "usable_credit",
}


def spans(snapshots: DataFrame) -> DataFrame:
    """Per queue, structs with the fields of penstock_lag_rules.figures.Span, the growth of a total under its own name.

    In: snapshots with growth. Out: ordinal, queue_name, window, stretch, recent, caught_up_ms, progressed_ms,
    consumed_ms.
    """
    progress = (F.col(GROWTHS["acked"]) > 0) | (F.col(GROWTHS["moved"]) > 0)
    progressed, consumed = F.when(progress, F.col("seq")), F.when(F.col("consumers") > 0, F.col("seq"))
    groups = snapshots.groupBy(*QUEUE, "in_stretch", "in_recent").agg(
        F.count(F.lit(1)).alias("snapshots"),
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.min_by("time_ms", "seq").alias("first_ms"),
        F.max_by("time_ms", "seq").alias("last_ms"),
        F.min_by("depth", "seq").alias("first_depth"),
        F.min_by("age_ms", "seq").alias("first_age_ms"),
        *[F.min(column).alias(name) for name, column in LEAST.items()],
        F.max("credit").alias("max_credit"),
        F.coalesce(F.sum("fell"), F.lit(0)).alias("falls"),
        *[F.sum(column).alias(total) for total, column in GROWTHS.items()],
        F.max(progressed).alias("progressed_seq"),
        F.max_by("time_ms", progressed).alias("progressed_ms"),
        F.max(consumed).alias("consumed_seq"),
        F.max_by("time_ms", consumed).alias("consumed_ms"),
        F.max("is_new").alias("is_new"),
        F.max(F.when(F.col("caught_up"), F.col("seq"))).alias("caught_up_seq"),
        F.max_by("time_ms", F.when(F.col("caught_up"), F.col("seq"))).alias("caught_up_ms"),
    )
    in_stretch, in_recent = F.col("in_stretch"), F.col("in_recent")
    together = groups.groupBy(*QUEUE).agg(
        *_span("window", F.lit(True), F.lit(True)),
        *_span("stretch", in_stretch != Place.OUTSIDE, in_stretch == Place.INSIDE),
        *_span("recent", in_recent != Place.OUTSIDE, in_recent == Place.INSIDE),
        F.max_by("caught_up_ms", "caught_up_seq").alias("caught_up_ms"),
        F.max_by("progressed_ms", "progressed_seq").alias("progressed_ms"),
        F.max_by("consumed_ms", "consumed_seq").alias("consumed_ms"),
        F.max("is_new").alias("is_new"),
    )
    # A subscription that was not there before was empty before.
    began_empty = F.col("is_new")
    never_caught_up = began_empty & F.col("caught_up_ms").isNull()
    since_its_first = began_empty & (F.col("recent_first_seq") == F.col("window_first_seq"))
    return together.select(
        *QUEUE,
        _struct("window", began_empty),
        _struct("stretch", never_caught_up),
        _struct("recent", since_its_first),
        "caught_up_ms",
        F.coalesce("progressed_ms", "window_first_ms").alias("progressed_ms"),
        "consumed_ms",
    )


def _span(span: str, has_state: Column, has_growth: Column) -> Iterable[Column]:
    """The figures of one span, named after it, from the groups of snapshots that are in it."""

    def state(name: str) -> Column:
        return F.when(has_state, F.col(name))

    def growth(name: str) -> Column:
        return F.when(has_growth, F.col(name))

    yield F.min(state("first_seq")).alias(f"{span}_first_seq")
    for name in ("first_ms", "first_depth", "first_age_ms"):
        yield F.min_by(name, state("first_seq")).alias(f"{span}_{name}")
    yield F.max_by("last_ms", state("last_seq")).alias(f"{span}_last_ms")
    yield F.sum(state("snapshots")).alias(f"{span}_snapshots")
    for name in LEAST:
        yield F.min(state(name)).alias(f"{span}_{name}")
    yield F.max(state("max_credit")).alias(f"{span}_max_credit")
    for name in ("falls", *GROWTHS):
        yield F.coalesce(F.sum(growth(name)), F.lit(0)).alias(f"{span}_{name}")


def _struct(span: str, began_empty: Column) -> Column:
    passed_ms = F.col(f"{span}_last_ms") - F.col(f"{span}_first_ms")
    unchanged = ("snapshots", "first_age_ms", "falls", *LEAST, "max_credit", *GROWTHS)
    return F.struct(
        F.greatest(passed_ms, F.lit(0)).alias("elapsed_ms"),
        F.when(began_empty, F.lit(0)).otherwise(F.col(f"{span}_first_depth")).alias("first_depth"),
        *[F.col(f"{span}_{name}").alias(name) for name in unchanged],
    ).alias(span)
