"""All figures of all subscriptions: the steps of this package put together, one row per subscription."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock_api.ledger_format import RowKind
from penstock_lag.schema import QUEUE
from penstock_lag.transforms import coverage, motion, percentiles
from penstock_lag.transforms.latest import latest
from penstock_lag.transforms.lives import life_ends
from penstock_lag.transforms.rates import increases
from penstock_lag.transforms.rows import of_kind, once, within
from penstock_lag.transforms.trend import age_ms, trend
from penstock_lag.windows import BrokerWindow

__all__ = ["SELECTED", "figures", "rows_of_run"]

SELECTED: Final = (
    # which and when
    "ordinal",
    "queue_name",
    "owner_namespace",
    "owner_name",
    "owner_uid",
    "observed_ms",
    # coverage of its broker and itself
    "last_poll_ms",
    "elapsed_ms",
    "polls",
    "interval_ms",
    "snapshots",
    # its state at the end of the window
    "depth",
    "ready",
    "in_flight",
    "scheduled",
    "age_ms",
    "hold_ms",
    "consumers",
    "credit",
    "unused_since_ms",
    "max_delivery_count",
    # what happened in the window
    "new_enqueued",
    "new_delivered",
    "new_redelivered",
    "new_acked",
    "new_removed",
    "first_depth",
    "falls",
    "min_depth",
    "min_age_ms",
    "first_age_ms",
    "min_ready",
    "min_in_flight",
    "min_credit",
    "max_credit",
    "min_consumers",
    "consumed_ms",
    "progressed_ms",
    "arrival_per_minute",
    "settled_per_minute",
    "velocity_per_minute",
    "drain_seconds",
    "completions",
    "sojourn_p50",
    "sojourn_p95",
    "sojourn_p99",
    "hold_p99",
)
"""The columns of the result, as in penstock_lag.rules.Figures."""


def rows_of_run(rows: DataFrame, windows: Sequence[BrokerWindow]) -> DataFrame:
    """The rows inside the windows, each once. They are worth caching: every figure comes from them."""
    return once(within(rows, windows))


def figures(rows: DataFrame) -> DataFrame:
    """One row per subscription that is still there, with the columns of SELECTED, in no order."""
    polls, subscriptions = of_kind(rows, RowKind.BROKER), of_kind(rows, RowKind.SUBSCRIPTION)
    brokers = coverage.of_brokers(polls)
    lives = life_ends(subscriptions, coverage.of_epochs(polls))
    now = (
        latest(subscriptions, brokers)
        .withColumn("age_ms", age_ms("oldest_available_ms"))
        .withColumn("hold_ms", age_ms("oldest_hold_ms"))
        .withColumnRenamed("time_ms", "observed_ms")
        .drop("interval_ms")
    )
    sojourn = percentiles.percentile_buckets(
        percentiles.window_buckets(lives), {"sojourn_p50": 50, "sojourn_p95": 95, "sojourn_p99": 99}
    )
    hold = percentiles.percentile_buckets(percentiles.cumulative_buckets(now, "hold"), {"hold_p99": 99})
    joined = (
        now.join(brokers, "ordinal", how="inner")
        .join(increases(lives), list(QUEUE), how="inner")
        .join(trend(subscriptions, brokers), list(QUEUE), how="inner")
        .join(sojourn, list(QUEUE), how="left")
        .join(hold.drop("completions"), list(QUEUE), how="left")
        .withColumn("completions", F.coalesce("completions", F.lit(0)))
    )
    return (
        joined.transform(motion.with_rates)
        .transform(motion.with_velocity)
        .transform(motion.with_drain)
        .select(*SELECTED)
    )
