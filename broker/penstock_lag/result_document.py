"""The result document from the figures: states, units, order. The same input gives the same bytes.

Pure. Source: penstock_api.lag_result; docs/reference/lag-job.md, "The result"; docs/decisions/064-result-documents.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from penstock_api.lag_result import LagResult, SubscriptionLag
from penstock_lag_rules.buckets import midpoint_ms
from penstock_lag.rules import Figures, Thresholds, judge
from penstock_lag.windows import Plan

__all__ = ["EPOCH", "MINIMUM_COMPLETIONS", "Run", "make_result"]

MINIMUM_COMPLETIONS: Final = 20
"""Percentiles of fewer accepted messages are left out, because they would depend on chance."""

MESSAGE_LENGTH: Final = 1024
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Run:
    """Name of a run, and the broker that it is about."""

    broker: str
    namespace: str
    run_name: str
    expected_brokers: int


def make_result(run: Run, plan: Plan, figures: Iterable[Figures], thresholds: Thresholds) -> LagResult:
    """The document of one run, subscriptions in order of queue name, then ordinal."""
    missing = dict(plan.missing)
    ordered = sorted(figures, key=lambda one: (one.queue_name, one.ordinal))
    return LagResult(
        broker=run.broker,
        namespace=run.namespace,
        run_name=run.run_name,
        window_start=_time(plan.start_ms),
        window_end=_time(plan.end_ms),
        expected_brokers=run.expected_brokers,
        reporting_brokers=run.expected_brokers - len(missing),
        missing=tuple(f"{run.broker}-{ordinal}: {reason}"[:MESSAGE_LENGTH] for ordinal, reason in plan.missing),
        segments=tuple(f"{chosen.ordinal}/{chosen.name}" for chosen in plan.segments),
        subscriptions=tuple(_subscription(one, missing.get(one.ordinal), plan.end_ms, thresholds) for one in ordered),
    )


def _subscription(f: Figures, missing: str | None, end_ms: int, thresholds: Thresholds) -> SubscriptionLag:
    verdict = judge(f, thresholds, end_ms, missing)
    return SubscriptionLag(
        queue_name=f.queue_name,
        owner_namespace=f.owner_namespace,
        owner_name=f.owner_name,
        owner_uid=f.owner_uid,
        observed_time=_time(f.observed_ms),
        state=verdict.state,
        message=verdict.message[:MESSAGE_LENGTH],
        messages=f.depth,
        ready=f.ready,
        in_flight=f.in_flight,
        scheduled=f.scheduled,
        oldest_age_seconds=f.age_ms // 1000,
        longest_hold_seconds=f.hold_ms // 1000,
        arrival_per_minute=f.arrival_per_minute,
        settled_per_minute=f.settled_per_minute,
        velocity_per_minute=f.velocity_per_minute,
        drain_seconds=f.drain_seconds,
        sojourn_p50_millis=_percentile(f, f.sojourn_p50),
        sojourn_p95_millis=_percentile(f, f.sojourn_p95),
        sojourn_p99_millis=_percentile(f, f.sojourn_p99),
        redelivery_percent=None if f.new_delivered == 0 else f.new_redelivered * 100 // f.new_delivered,
        consumers=f.consumers,
    )


def _percentile(f: Figures, bucket: int | None) -> int | None:
    return None if bucket is None or f.completions < MINIMUM_COMPLETIONS else midpoint_ms(bucket)


def _time(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)
