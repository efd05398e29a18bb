"""Single rows of the ledger, found by their place: how each subscription stands, and histograms at the ends of lives.

These columns are wide, and only a few rows of them are needed, most of them at the ends of the window. So only the
segments with these rows are read.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock_lag.ledger.schema import QUEUE

__all__ = ["END_COLUMNS", "ends"]

END_COLUMNS: Final = (
    *("seq", "time_ms", *QUEUE),
    *("owner_namespace", "owner_name", "owner_uid"),
    *("depth", "ready", "in_flight", "scheduled", "stranded", "consumers", "credit", "usable_consumers"),
    *("unused_since_ms", "repeated", "oldest_available_ms", "oldest_hold_ms"),
    *("first_expires_ms", "last_expires_ms"),
    *("sojourn_indexes", "sojourn_counts"),
    *("wait_indexes", "wait_counts", "wait_sum_ms"),
    *("hold_indexes", "hold_counts", "hold_sum_ms", "consumer_totals"),
)
"""What the rules need of a single snapshot."""


def ends(subscriptions: DataFrame, places: DataFrame) -> DataFrame:
    """The rows at these places (ordinal, seq), unchanged."""
    return subscriptions.join(F.broadcast(places), ["ordinal", "seq"], how="inner")
