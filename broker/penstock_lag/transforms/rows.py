"""The rows of a run: how the steps ask for them, and which of them are within their broker's window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock_api.ledger_format import RowKind
from penstock_lag.windows import BrokerWindow

__all__ = ["LedgerRows", "within"]

LedgerRows = Callable[[RowKind, Sequence[str]], DataFrame]
"""Gives columns of the ledger's rows of one kind. A row that is there twice would count twice."""


def within(rows: DataFrame, windows: Sequence[BrokerWindow]) -> DataFrame:
    """The rows inside their broker's window, both ends included."""
    return rows.where(reduce(Column.__or__, [_inside(window) for window in windows], F.lit(False)))


def _inside(window: BrokerWindow) -> Column:
    return (F.col("ordinal") == window.ordinal) & F.col("time_ms").between(window.start_ms, window.end_ms)
