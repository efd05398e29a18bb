"""The rows of a run: each once, within its broker's window, by kind."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock_api.ledger_format import RowKind
from penstock_lag.windows import BrokerWindow

__all__ = ["of_kind", "once", "within"]


def once(rows: DataFrame) -> DataFrame:
    """Each row once: (ordinal, seq) is its identity, so a second copy of a segment changes nothing."""
    return rows.dropDuplicates(["ordinal", "seq"])


def within(rows: DataFrame, windows: Sequence[BrokerWindow]) -> DataFrame:
    """The rows inside their broker's window, both ends included."""
    return rows.where(reduce(Column.__or__, [_inside(window) for window in windows], F.lit(False)))


def of_kind(rows: DataFrame, kind: RowKind) -> DataFrame:
    """The rows of one kind."""
    return rows.where(F.col("kind") == kind.value)


def _inside(window: BrokerWindow) -> Column:
    return (F.col("ordinal") == window.ordinal) & F.col("time_ms").between(window.start_ms, window.end_ms)
