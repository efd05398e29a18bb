"""The last known state of each subscription that is still there."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock_lag.schema import QUEUE

__all__ = ["latest"]


def latest(subscriptions: DataFrame, brokers: DataFrame) -> DataFrame:
    """The last row per queue, without the queues that the last complete poll no longer had: these have ended.

    In: subscription rows; coverage of brokers. Out: the ledger's columns, one row per queue.
    """
    last = subscriptions.groupBy(*QUEUE).agg(F.max_by(F.struct(*subscriptions.columns), "seq").alias("row"))
    return (
        last.select("row.*")
        .join(brokers.select("ordinal", "last_complete_poll"), "ordinal", how="inner")
        .where(F.col("poll") >= F.col("last_complete_poll"))
        .drop("last_complete_poll")
    )
