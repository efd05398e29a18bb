"""The pieces of which the spans are made: the snapshots of one life that are in the same spans.

A *life* is a row of snapshots of one run of the broker and one incarnation. Over it totals never fall, so the least and
the most of a total are its values at the ends, wherever the rows come from and in whatever order. So nothing is sorted,
and each task adds its rows up before anything is shuffled. penstock_lag.figures.spans puts the pieces together.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock_lag.ledger.rows import age_ms
from penstock_lag.ledger.schema import QUEUE
from penstock_lag_rules.figures import TOTALS

__all__ = ["PIECE_COLUMNS", "pieces"]

_LEAST: Final = ("depth", "ready", "in_flight", "consumers")

PIECE_COLUMNS: Final = (
    *("seq", "poll", "time_ms", *QUEUE, "incarnation"),
    *_LEAST,
    *("scheduled", "credit", "usable_credit", "oldest_available_ms", "sojourn_indexes", "hold_indexes"),
    *TOTALS,
)
"""What this step needs of the subscription rows."""


def pieces(subscriptions: DataFrame, polls: DataFrame, starts: DataFrame) -> DataFrame:
    """One row per subscription, life, and place in the spans.

    In: subscription rows; polls as penstock_lag.figures.polls.PlacedPoll with their ordinal; starts with ordinal,
    queue_name, first_seq, stretch_start, recent_start. Rows before first_seq are of another queue, which had the name.
    Out: ordinal, queue_name, run_start, incarnation, in_stretch, in_recent, and what penstock_lag.figures.spans.Piece
    says.
    """
    seq = F.col("seq")
    told = (
        subscriptions.join(F.broadcast(polls.drop("shows_absence", "instance_start")), ["ordinal", "poll"], how="inner")
        .join(F.broadcast(starts), list(QUEUE), how="inner")
        .where(seq >= F.col("first_seq"))
        .select(
            *QUEUE,
            *("run_start", "incarnation", "seq", "poll", "time_ms", *_LEAST, "scheduled", "credit", *TOTALS),
            F.coalesce("usable_credit", "credit").alias("usable_credit"),
            age_ms("oldest_available_ms").alias("age_ms"),
            (seq >= F.col("stretch_start")).alias("in_stretch"),
            (seq >= F.col("recent_start")).alias("in_recent"),
            F.when(F.col("sojourn_indexes").isNotNull(), seq).alias("sojourn_seq"),
            F.when(F.col("hold_indexes").isNotNull(), seq).alias("hold_seq"),
        )
    )
    return told.groupBy(*QUEUE, "run_start", "incarnation", "in_stretch", "in_recent").agg(
        F.count(F.lit(1)).alias("snapshots"),
        F.min(seq).alias("first_seq"),
        F.min("poll").alias("first_poll"),
        F.max("poll").alias("last_poll"),
        F.min_by("time_ms", "seq").alias("first_ms"),
        F.min_by("depth", "seq").alias("first_depth"),
        F.min_by("scheduled", "seq").alias("first_scheduled"),
        F.min_by("age_ms", "seq").alias("first_age_ms"),
        *[F.min(name).alias(f"min_{name}") for name in _LEAST],
        F.min("usable_credit").alias("min_credit"),
        F.max("credit").alias("max_credit"),
        F.max_by("time_ms", F.when(F.col("consumers") > 0, seq)).alias("consumed_ms"),
        F.max(F.when(F.col("consumers") > 0, seq)).alias("consumed_seq"),
        F.min("sojourn_seq").alias("first_sojourn_seq"),
        F.max("sojourn_seq").alias("last_sojourn_seq"),
        F.max("hold_seq").alias("hold_seq"),
        *[F.min(name).alias(f"least_{name}") for name in TOTALS],
        *[F.max(name).alias(f"most_{name}") for name in TOTALS],
    )
