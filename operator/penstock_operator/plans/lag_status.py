"""From entries of lag results to `status.lag` and condition Lagging of their Subscription.

The result document comes from a pod and is not trusted. Its model has validated it; a run's result is used only if its
window is newer than that of the last one; and an entry is used for a Subscription only if uid, queue and Broker agree.
Whether it is current is decided in `lag_freshness`, and when it is written in `lag_writes`. Source:
docs/decisions/064-result-documents.md, docs/decisions/069-two-sources-of-lag.md, docs/concepts/lag.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from penstock_api.lag_result import FORECASTS, LagResult, LagState, SubscriptionLag
from penstock_api.observer_api import LIVE_RUN
from penstock_api.resources import Holding, Lag, Losses, RepeatedMessage
from penstock_operator.manifest import Manifest
from penstock_operator.plans.conditions import LAGGING, ConditionReason, ConditionStatus, StatusCondition, timestamp
from penstock_operator.plans.lag_sources import LagSource

__all__ = ["FORECASTS_SHOWN", "History", "analysis_status", "lag_status", "lagging_condition", "reporting"]

FORECASTS_SHOWN: Final = tuple(name for name in FORECASTS if name in Lag.model_fields)
"""What `status.lag` says of the time to come; nothing of it stands beside the state Unknown."""

_BEHIND: Final = frozenset(
    {
        LagState.UNCONSUMED,
        LagState.BROKER_STUCK,
        LagState.NO_CREDIT,
        LagState.POISON,
        LagState.STALLED,
        LagState.LAGGING,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What only a run of the lag job knows about a Subscription, because it needs the ledger."""

    run_name: str
    run_time: datetime
    """End of the run's window."""
    sojourn_p95_millis: int | None
    changes: tuple[str, ...] = ()

    @classmethod
    def of(cls, entry: SubscriptionLag | None, result: LagResult | None) -> Self | None:
        """That of an entry of a run's result; None if the run found nothing of it, or if there is none."""
        if entry is None or result is None or (entry.sojourn_p95_millis is None and not entry.changes):
            return None
        return cls(
            run_name=result.run_name,
            run_time=result.window_end,
            sojourn_p95_millis=entry.sojourn_p95_millis,
            changes=entry.changes,
        )


def lag_status(
    entry: SubscriptionLag, result: LagResult, source: LagSource = LagSource.RUN, history: History | None = None
) -> Lag:
    """`status.lag` of a Subscription from its entry in the result of `source`. `history`: what a live entry lacks."""
    if source is LagSource.RUN:
        run_name, run_time, p95 = result.run_name, result.window_end, entry.sojourn_p95_millis
        changes = entry.changes
    elif history is not None:
        run_name, run_time, p95 = history.run_name, history.run_time, history.sojourn_p95_millis
        changes = history.changes
    else:
        run_name, run_time, p95, changes = LIVE_RUN, None, None, ()
    return Lag(
        messages=entry.messages,
        waiting=entry.waiting,
        ready=entry.ready,
        in_flight=entry.in_flight,
        oldest_age_seconds=entry.oldest_age_seconds,
        arrival_per_minute=entry.arrival_per_minute,
        settled_per_minute=entry.settled_per_minute,
        velocity_per_minute=entry.velocity_per_minute,
        drain_seconds=entry.drain_seconds,
        drain_seconds_low=entry.drain_seconds_low,
        drain_seconds_high=entry.drain_seconds_high,
        sojourn_p95_millis=p95,
        redelivery_percent=entry.redelivery_percent,
        lost=entry.lost,
        losses=_losses(entry),
        consumers=entry.consumers,
        suggested_consumers=entry.suggested_consumers,
        capacity_per_minute=entry.capacity_per_minute,
        repeated=tuple(
            RepeatedMessage(id=each.id, delivery_count=each.delivery_count, age_seconds=each.age_seconds)
            for each in entry.repeated
        ),
        expiry_risk_percent=entry.expiry_risk_percent,
        changes=changes,
        state=entry.state.value,
        message=entry.message,
        since_caught_up_seconds=entry.since_caught_up_seconds,
        source=source.value,
        observed_time=entry.observed_time,
        run_name=run_name,
        run_time=run_time,
        brokers_reporting=reporting(result),
    )


def _losses(entry: SubscriptionLag) -> Losses | None:
    """How messages were lost, or are stuck; None if none are, as usual."""
    lost = (entry.expired, entry.dead_lettered, entry.dropped, entry.lost_at_restart)
    if not any((*lost, entry.moved, entry.purged, entry.stranded)):
        return None
    return Losses(
        expired=entry.expired,
        dead_lettered=entry.dead_lettered,
        dropped=entry.dropped,
        lost_at_restart=entry.lost_at_restart,
        moved=entry.moved,
        purged=entry.purged,
        stranded=entry.stranded,
    )


def lagging_condition(resource: Holding, entry: SubscriptionLag) -> StatusCondition:
    """Condition Lagging: True if messages were lost, or a threshold of the spec is exceeded; else by the state."""
    limits = resource.spec.lag_thresholds
    if entry.state is LagState.UNKNOWN:
        return StatusCondition(LAGGING, ConditionStatus.UNKNOWN, entry.state.value, entry.message)
    if entry.state is LagState.LOSING:
        # Before the thresholds: a backlog that is too large must not hide that messages are lost.
        return StatusCondition(LAGGING, ConditionStatus.TRUE, entry.state.value, entry.message)
    waiting = entry.waiting
    if limits.messages is not None and waiting is not None and waiting > limits.messages:
        message = f"{waiting} messages, more than {limits.messages}. {entry.message}"
        return StatusCondition(LAGGING, ConditionStatus.TRUE, ConditionReason.BACKLOG_ABOVE_THRESHOLD, message)
    age, oldest = limits.oldest_age_seconds, entry.oldest_age_seconds
    if age is not None and oldest is not None and oldest > age:
        message = f"The oldest message has waited {oldest} s, more than {age} s. {entry.message}"
        return StatusCondition(LAGGING, ConditionStatus.TRUE, ConditionReason.OLDEST_MESSAGE_TOO_OLD, message)
    if entry.state in _BEHIND:
        return StatusCondition(LAGGING, ConditionStatus.TRUE, entry.state.value, entry.message)
    return StatusCondition(LAGGING, ConditionStatus.FALSE, ConditionReason.WITHIN_THRESHOLDS, entry.message)


def analysis_status(result: LagResult) -> Manifest:
    """`status.lagAnalysis` of the Broker."""
    return {
        "lastRunName": result.run_name,
        "windowEnd": timestamp(result.window_end),
        "brokersReporting": reporting(result),
    }


def reporting(result: LagResult) -> str:
    """How many of the expected pods have reported, as `1/1`."""
    return f"{result.reporting_brokers}/{result.expected_brokers}"
