"""All figures of all subscriptions: the steps of this package put together, one row per subscription."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock_api.ledger_format import RowKind
from penstock_lag.schema import QUEUE
from penstock_lag.transforms.lives import LIFE_COLUMNS, life_ends
from penstock_lag.transforms.polls import COVERAGE, POLL_COLUMNS, with_coverage, with_runs
from penstock_lag.transforms.rows import LedgerRows, within
from penstock_lag.transforms.snapshots import SNAPSHOT_COLUMNS, with_growth
from penstock_lag.transforms.spans import spans
from penstock_lag.windows import BrokerWindow
from penstock_lag_rules.rules import Thresholds

__all__ = ["figures"]


def figures(rows: LedgerRows, windows: Sequence[BrokerWindow], thresholds: Thresholds) -> DataFrame:
    """One row per subscription that is still there, for penstock_lag.figures_rows, in no order.

    The ledger is read once for the snapshots, once for the ends of lives and twice for the polls, each time with a few
    columns only: that is cheaper than to keep all of it in memory for a second look.
    """
    polls = within(rows(RowKind.BROKER, POLL_COLUMNS), windows)
    runs = with_runs(polls)
    snapshots = with_growth(
        within(rows(RowKind.SUBSCRIPTION, SNAPSHOT_COLUMNS), windows),
        runs,
        thresholds,
    )
    ends = life_ends(within(rows(RowKind.SUBSCRIPTION, LIFE_COLUMNS), windows), runs)
    brokers = with_coverage(polls)
    return (
        spans(snapshots)
        .join(ends, list(QUEUE), how="inner")
        .join(F.broadcast(brokers), "ordinal", how="inner")
        # A queue that the last complete poll no longer had has ended.
        .where(F.col("last_poll") >= F.col("last_complete_poll"))
        .withColumn("coverage", F.struct(*COVERAGE))
        .drop(*COVERAGE, "last_poll", "last_complete_poll")
    )
