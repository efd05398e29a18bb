"""The rows of a run: how the steps ask for them, and which of them are within their broker's window."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock_api.ledger_format import RowKind
from penstock_lag.windows import BrokerWindow

__all__ = ["LedgerRows", "Place", "age_ms", "within"]

Place = tuple[int, int]
"""Ordinal and seq: where a row is."""


class LedgerRows(Protocol):
    """Gives columns of the ledger's rows of one kind. A row that is there twice would count twice."""

    def __call__(self, kind: RowKind, columns: Sequence[str], places: Sequence[Place] | None = None) -> DataFrame:
        """All rows; if places are given, at least the rows there, so that other segments need not be read."""
        ...


def within(rows: DataFrame, windows: Sequence[BrokerWindow]) -> DataFrame:
    """The rows inside their broker's window, both ends included."""
    return rows.where(reduce(Column.__or__, [_inside(window) for window in windows], F.lit(False)))


def age_ms(since: str) -> Column:
    """The age in milliseconds at the time of the row; null if `since` is null, or later: the clock went back."""
    return F.when(F.col(since) <= F.col("time_ms"), F.col("time_ms") - F.col(since))


def _inside(window: BrokerWindow) -> Column:
    return (F.col("ordinal") == window.ordinal) & F.col("time_ms").between(window.start_ms, window.end_ms)
