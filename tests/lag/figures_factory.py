"""Figures with few words, for the tests of rules and documents."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock_lag.rules import Figures

END_MS = 1_700_000_300_000

BUSY = Figures(
    ordinal=0,
    queue_name="psub:durable:global:orders",
    owner_namespace=None,
    owner_name=None,
    owner_uid=None,
    observed_ms=END_MS,
    last_poll_ms=END_MS,
    elapsed_ms=300_000,
    polls=31,
    interval_ms=10_000,
    snapshots=31,
    depth=500,
    ready=400,
    in_flight=100,
    scheduled=0,
    age_ms=40_000,
    hold_ms=5_000,
    consumers=2,
    credit=0,
    unused_since_ms=None,
    max_delivery_count=1,
    new_enqueued=3_000,
    new_delivered=3_000,
    new_redelivered=0,
    new_acked=3_000,
    new_removed=0,
    first_depth=500,
    falls=12,
    min_depth=450,
    min_age_ms=30_000,
    first_age_ms=40_000,
    min_ready=350,
    min_in_flight=90,
    min_credit=0,
    max_credit=10,
    min_consumers=2,
    consumed_ms=END_MS,
    progressed_ms=END_MS,
    arrival_per_minute=600,
    settled_per_minute=600,
    velocity_per_minute=0,
    drain_seconds=None,
    completions=3_000,
    sojourn_p50=100,
    sojourn_p95=120,
    sojourn_p99=130,
    hold_p99=80,
)
"""A standing backlog that no rule matches: two consumers, as much comes as goes."""


def figures(**changes: Any) -> Figures:
    """BUSY, with changes."""
    return replace(BUSY, **changes)
