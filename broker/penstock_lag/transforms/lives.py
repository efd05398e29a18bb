"""Lives: the stretches over which totals never fall, (instance, epoch, incarnation) of a queue, with their ends.

A life that an earlier complete poll of its epoch did not have began inside the window, with totals of zero. A life that
was there already, or whose broker has just restarted, is counted from its first row on, because it is not known how
much of that row's totals belongs to the window.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock_lag.schema import QUEUE, TOTALS

__all__ = ["life_ends"]

LIFE = (*QUEUE, "instance", "epoch", "incarnation")
CARRIED = (*TOTALS, "sojourn_indexes", "sojourn_counts")


def life_ends(subscriptions: DataFrame, epochs: DataFrame) -> DataFrame:
    """One row per life: structs ``first`` and ``last`` of its totals and buckets, and ``born``: counted from zero.

    In: subscription rows; coverage of epochs.
    """
    ends = subscriptions.groupBy(*LIFE).agg(
        F.min_by(F.struct(*CARRIED), "seq").alias("first"),
        F.max_by(F.struct(*CARRIED), "seq").alias("last"),
        F.min("poll").alias("appeared"),
    )
    is_later = F.col("appeared") > F.col("first_complete_poll")
    return (
        ends.join(epochs, ["ordinal", "instance", "epoch"], how="left")
        .withColumn("born", F.coalesce(is_later, F.lit(False)))
        .drop("appeared", "first_complete_poll")
    )
