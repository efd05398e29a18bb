"""The ends of the lives of each subscription: how it stands, and the histograms from which percentiles are made.

Histograms are wide, and only the first and the last of a life are needed. So they have a read of their own, which
leaves all others behind before anything is shuffled. The ledger does not repeat them in every row: where it does not,
they are null (penstock_api.ledger_format.HISTOGRAMS). What a life is: see `snapshots`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock_lag.schema import QUEUE
from penstock_lag.transforms.snapshots import age_ms

__all__ = ["LIFE_COLUMNS", "life_ends"]

_SOJOURN: Final = ("sojourn_indexes", "sojourn_counts")
_HOLD: Final = ("hold_indexes", "hold_counts")
_STANDING: Final = (
    "owner_namespace",
    "owner_name",
    "owner_uid",
    "depth",
    "ready",
    "in_flight",
    "scheduled",
    "stranded",
    "consumers",
    "credit",
    "usable_consumers",
    "unused_since_ms",
    "repeated",
)

LIFE_COLUMNS: Final = (
    *("seq", "poll", "time_ms", *QUEUE, "incarnation"),
    *_STANDING,
    *("oldest_available_ms", "oldest_hold_ms"),
    *_SOJOURN,
    *_HOLD,
)
"""What this step needs of the subscription rows."""


def life_ends(subscriptions: DataFrame, runs: DataFrame) -> DataFrame:
    """Per queue, its last snapshot and the sojourn histograms at the ends of its lives.

    In: subscription rows; polls with their runs. Out: ordinal, queue_name, last_poll, standing (a struct with the
    fields of penstock_lag_rules.figures.Standing and the owner; `repeated` is JSON as in the ledger), hold (struct of
    indexes and counts, the last one that is told), lives (list of structs: first and last, each a struct of indexes and
    counts; the first is null for a life that counts from zero; both are null for one of which none is told).
    """
    counts_from_zero = F.coalesce(F.col("complete_before") >= F.col("run_start"), F.lit(False))
    sojourn, hold = _histogram(*_SOJOURN), _histogram(*_HOLD)
    told = F.when(F.col(_SOJOURN[0]).isNotNull(), F.col("seq"))
    standing = F.struct(
        F.col("time_ms").alias("observed_ms"),
        *_STANDING,
        age_ms("oldest_available_ms").alias("age_ms"),
        age_ms("oldest_hold_ms").alias("hold_ms"),
    )
    lives = (
        subscriptions.join(F.broadcast(runs), ["ordinal", "poll"], how="inner")
        .groupBy(*QUEUE, "run_start", "incarnation")
        .agg(
            F.max("seq").alias("last_seq"),
            F.max("poll").alias("last_poll"),
            F.min_by(counts_from_zero, "seq").alias("counts_from_zero"),  # as its first snapshot says, told or not
            F.min_by(sojourn, told).alias("first_sojourn"),
            F.max_by(sojourn, told).alias("last_sojourn"),
            F.max_by(hold, told).alias("last_hold"),
            F.max(told).alias("last_told"),
            F.max_by(standing, "seq").alias("standing"),
        )
    )
    first = F.when(~F.col("counts_from_zero"), F.col("first_sojourn"))
    return (
        lives.groupBy(*QUEUE)
        .agg(
            F.max("last_poll").alias("last_poll"),
            F.max_by("standing", "last_seq").alias("standing"),
            F.max_by("last_hold", "last_told").alias("hold"),
            F.collect_list(F.struct(first.alias("first"), F.col("last_sojourn").alias("last"))).alias("lives"),
        )
        .select(*QUEUE, "last_poll", "standing", "hold", "lives")
    )


def _histogram(indexes: str, counts: str) -> Column:
    return F.struct(F.col(indexes).alias("indexes"), F.col(counts).alias("counts"))
