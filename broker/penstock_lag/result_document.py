"""The result document from the figures: states, units, order. The same input gives the same bytes.

Pure. Source: penstock_api.lag_result; docs/reference/lag-job.md, "The result"; docs/decisions/064-result-documents.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock_api.lag_result import LagResult
from penstock_lag.ledger.windows import Plan
from penstock_lag_rules.entry import MESSAGE_LENGTH, subscription_lag, time_of
from penstock_lag_rules.figures import Figures
from penstock_lag_rules.thresholds import Thresholds
from penstock_lag_rules.unread_stretches import held_back

__all__ = ["Run", "make_result"]


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
    ordered = sorted(figures, key=lambda one: (one.subject.queue_name, one.subject.ordinal))
    return LagResult(
        broker=run.broker,
        namespace=run.namespace,
        run_name=run.run_name,
        window_start=time_of(plan.start_ms),
        window_end=time_of(plan.end_ms),
        expected_brokers=run.expected_brokers,
        reporting_brokers=run.expected_brokers - len(missing),
        missing=tuple(
            f"{run.broker}-{ordinal}: {reason}"[:MESSAGE_LENGTH] for ordinal, reason in (*plan.missing, *plan.gaps)
        ),
        segments=tuple(f"{chosen.ordinal}/{chosen.name}" for chosen in plan.segments),
        subscriptions=tuple(
            held_back(
                subscription_lag(one, missing.get(one.subject.ordinal), plan.end_ms, thresholds), one, plan.unread
            )
            for one in ordered
        ),
    )
