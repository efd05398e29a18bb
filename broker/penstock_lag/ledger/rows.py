"""The rows of a run: how the steps ask for them, and which of them are within their broker's window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock_api.ledger_format import RowKind
from penstock_lag.ledger.windows import BrokerWindow

__all__ = ["LedgerRows", "Place", "age_ms", "between", "is_inside"]

Place = tuple[int, int]
"""Ordinal and seq: where a row is."""


class LedgerRows(Protocol):
    """Gives columns of the ledger's rows of one kind. A row that is there twice would count twice."""

    def __call__(self, kind: RowKind, columns: Sequence[str], places: Sequence[Place] | None = None) -> DataFrame:
        """All rows; if places are given, at least the rows there, so that other segments need not be read."""
        ...


def between(rows: DataFrame, windows: Sequence[BrokerWindow]) -> DataFrame:
    """The rows from the first start of a window to the last end, both included: the reader leaves out what is not in
    it. Which of them are in the window of their own broker is a question of their polls: `is_inside`.
    """
    start_ms = min((window.start_ms for window in windows), default=0)
    end_ms = max((window.end_ms for window in windows), default=-1)
    return rows.where(F.col("time_ms").between(start_ms, end_ms))


def is_inside(row: Mapping[str, Any], windows: Mapping[int, BrokerWindow]) -> bool:
    """Whether a row is within the window of its broker, both ends included. In: the windows by ordinal."""
    window = windows.get(row["ordinal"])
    return window is not None and window.start_ms <= row["time_ms"] <= window.end_ms


def age_ms(since: str) -> Column:
    """The age in milliseconds at the time of the row; null if `since` is null, or later: the clock went back."""
    return F.when(F.col(since) <= F.col("time_ms"), F.col("time_ms") - F.col(since))
