"""Entries of lag results and snapshots with few words, for the tests of the pages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from penstock_api.lag_result import LagState, SubscriptionLag
from penstock_lag_rules.figures import Growth
from penstock_lag_rules.history import Snapshot

NOON_MS = 1_767_268_800_000
"""2026-01-01T12:00:00Z."""


def a_lag(queue_name: str = "psub:durable:global:orders", **changes: Any) -> SubscriptionLag:
    """A healthy subscription unless told otherwise."""
    values: dict[str, Any] = {
        "queue_name": queue_name,
        "observed_time": datetime(2026, 1, 1, 12, tzinfo=UTC),
        "state": LagState.OK,
        "message": "the consumers have caught up; no message waits",
        "messages": 0,
        "oldest_age_seconds": 0,
    }
    return SubscriptionLag(**(values | changes))


def a_snapshot(seconds: int, depth: int = 0, *, age: int | None = None, life: int = 1, **totals: int) -> Snapshot:
    """At so many seconds after noon; the oldest message has waited for `age` seconds."""
    time_ms = NOON_MS + seconds * 1000
    return Snapshot(
        time_ms=time_ms,
        life=("i-1", life, 7, 0),
        depth=depth,
        ready=depth,
        in_flight=0,
        oldest_available_ms=None if age is None else time_ms - age * 1000,
        consumers=1,
        credit=10,
        usable_credit=10,
        totals=Growth(**totals),
    )
