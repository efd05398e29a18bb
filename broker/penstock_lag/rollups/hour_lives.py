"""The rows of a rollup: one for each life of each subscription in the rows that are given.

Two questions: what was first, last, least and most, which each task adds up where the rows are read; and the area
under the depth, which compares each snapshot with the next one and so sorts few columns.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from penstock_api.ledger_format import HISTOGRAMS
from penstock_api.rollup_format import TOTALS
from penstock_lag.ledger.rows import age_ms
from penstock_lag.ledger.schema import QUEUE

__all__ = ["AREA_COLUMNS", "LIFE", "LIFE_COLUMNS", "areas", "lives"]

LIFE: Final = (*QUEUE, "instance", "epoch", "started_ms", "incarnation")
"""What identifies one life of a subscription."""

AREA_COLUMNS: Final = (*LIFE, "seq", "time_ms", "depth")
"""What the area needs of the subscription rows."""

LIFE_COLUMNS: Final = (
    *LIFE,
    *("seq", "time_ms", "owner_namespace", "owner_name", "depth", "oldest_available_ms", "consumers"),
    *TOTALS,
    *(f"{name}_indexes" for name in HISTOGRAMS),
)
"""What everything else needs of them."""


def areas(subscriptions: DataFrame) -> DataFrame:
    """One row per life: `LIFE` and depth_area, in message-milliseconds. Each depth counts until the next snapshot, for
    nothing if the clock went back until then.
    """
    # Spark compares the first eight bytes of what it sorts by; names would begin with the same ones.
    narrow = _of_known_start(subscriptions).select(F.xxhash64(*LIFE).alias("sorted_by"), *AREA_COLUMNS)
    by_seq = Window.partitionBy("sorted_by", *LIFE).orderBy("seq")
    lasted = F.greatest(F.coalesce(F.lead("time_ms").over(by_seq) - F.col("time_ms"), F.lit(0)), F.lit(0))
    each = narrow.select("sorted_by", *LIFE, (F.col("depth") * lasted).alias("area"))
    return each.groupBy("sorted_by", *LIFE).agg(F.sum("area").alias("depth_area")).drop("sorted_by")


def _of_known_start(subscriptions: DataFrame) -> DataFrame:
    """Rows of an earlier release do not say when the broker started; in a rollup that is 0."""
    return subscriptions.withColumn("started_ms", F.coalesce("started_ms", F.lit(0)))


def lives(subscriptions: DataFrame) -> DataFrame:
    """One row per life: `LIFE`, and what penstock_lag_rules.rollups.LifeRow has, without the area. Of each histogram
    first_..._seq and last_..._seq, the rows that have it first and last; null if none has. Totals never fall within a
    life, so the least is the first, and the most the last.
    """
    seq = F.col("seq")
    age = age_ms("oldest_available_ms")
    with_histogram = {name: F.when(F.col(f"{name}_indexes").isNotNull(), seq) for name in HISTOGRAMS}
    return (
        _of_known_start(subscriptions)
        .groupBy(*LIFE)
        .agg(
            F.max("owner_namespace").alias("owner_namespace"),
            F.max("owner_name").alias("owner_name"),
            F.min(seq).alias("first_seq"),
            F.max(seq).alias("last_seq"),
            F.min_by("time_ms", seq).alias("first_ms"),
            F.max_by("time_ms", seq).alias("last_ms"),
            F.count(F.lit(1)).alias("snapshots"),
            F.min_by("depth", seq).alias("first_depth"),
            F.max_by("depth", seq).alias("last_depth"),
            F.min("depth").alias("min_depth"),
            F.max("depth").alias("max_depth"),
            F.max(age).alias("max_age_ms"),
            F.min("consumers").alias("min_consumers"),
            F.max("consumers").alias("max_consumers"),
            F.max_by("consumers", seq).alias("last_consumers"),
            *[F.min(total).alias(f"first_{total}") for total in TOTALS],
            *[F.max(total).alias(f"last_{total}") for total in TOTALS],
            *[F.min(found).alias(f"first_{name}_seq") for name, found in with_histogram.items()],
            *[F.max(found).alias(f"last_{name}_seq") for name, found in with_histogram.items()],
        )
    )
