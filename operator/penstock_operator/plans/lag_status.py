"""From the newest lag result of a Broker to `status.lag` and condition Lagging of each Subscription.

The result document comes from a pod and is not trusted. Its model has validated it; a result is used only if its window
is newer than that of the last one; and an entry is used for a Subscription only if uid, queue and Broker agree. Source:
docs/decisions/064-result-documents.md, docs/lag.md.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from penstock_api.lag_result import LagResult, LagState, SubscriptionLag
from penstock_api.resources import Lag, Subscription
from penstock_operator.manifest import Manifest
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition, timestamp

__all__ = ["analysis_status", "is_worth_writing", "lag_status", "lagging_condition", "stale_condition"]

_NOTICEABLE: Final = 0.1
"""Ages and rates that change by less than this share are not written, unless the status is older than `_REFRESH`."""
_REFRESH: Final = timedelta(minutes=5)
_STALE_PERIODS: Final = 3
"""A result is stale after this number of intervals of the schedule."""

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


def lag_status(entry: SubscriptionLag, result: LagResult) -> Manifest:
    """`status.lag` of a Subscription."""
    figures = {
        "messages": entry.messages,
        "ready": entry.ready,
        "inFlight": entry.in_flight,
        "oldestAgeSeconds": entry.oldest_age_seconds,
        "arrivalPerMinute": entry.arrival_per_minute,
        "settledPerMinute": entry.settled_per_minute,
        "drainSeconds": entry.drain_seconds,
    }
    return {
        **{name: figure for name, figure in figures.items() if figure is not None},
        "state": entry.state.value,
        "observedTime": timestamp(entry.observed_time),
        "runName": result.run_name,
        "brokersReporting": reporting(result),
    }


def lagging_condition(subscription: Subscription, entry: SubscriptionLag) -> StatusCondition:
    """Condition Lagging: True if a threshold of the spec is exceeded, else by the state of the result."""
    limits = subscription.spec.lag_thresholds
    if entry.state is LagState.UNKNOWN:
        return StatusCondition("Lagging", ConditionStatus.UNKNOWN, entry.state.value, entry.message)
    if limits.messages is not None and entry.messages is not None and entry.messages > limits.messages:
        message = f"{entry.messages} messages, more than {limits.messages}. {entry.message}"
        return StatusCondition("Lagging", ConditionStatus.TRUE, ConditionReason.BACKLOG_ABOVE_THRESHOLD, message)
    age, oldest = limits.oldest_age_seconds, entry.oldest_age_seconds
    if age is not None and oldest is not None and oldest > age:
        message = f"The oldest message has waited {oldest} s, more than {age} s. {entry.message}"
        return StatusCondition("Lagging", ConditionStatus.TRUE, ConditionReason.OLDEST_MESSAGE_TOO_OLD, message)
    if entry.state in _BEHIND:
        return StatusCondition("Lagging", ConditionStatus.TRUE, entry.state.value, entry.message)
    return StatusCondition("Lagging", ConditionStatus.FALSE, ConditionReason.WITHIN_THRESHOLDS, entry.message)


def is_worth_writing(shown: Lag | None, before: str | None, lag: Manifest, condition: StatusCondition) -> bool:
    """Whether a lag is written to the status: depth, state or reason changed, or another figure changed noticeably.

    `shown`: the lag in the status now, `before`: the reason of its condition. An older window is never written.
    """
    if shown is None:
        return True
    found = Lag.model_validate(lag)
    if found.observed_time <= shown.observed_time:
        return False
    if (found.state, found.messages, str(condition.reason)) != (shown.state, shown.messages, before):
        return True
    pairs = (
        (shown.oldest_age_seconds, found.oldest_age_seconds),
        (shown.in_flight, found.in_flight),
        (shown.arrival_per_minute, found.arrival_per_minute),
        (shown.settled_per_minute, found.settled_per_minute),
        (shown.drain_seconds, found.drain_seconds),
    )
    noticeable = any(_differs(old, new) for old, new in pairs)
    return noticeable or found.observed_time - shown.observed_time >= _REFRESH


def stale_condition(result: LagResult, interval_minutes: int, now: datetime) -> StatusCondition | None:
    """Condition Lagging of every Subscription if the newest result is older than three intervals; else None."""
    if now - result.window_end < timedelta(minutes=_STALE_PERIODS * interval_minutes):
        return None
    message = (
        f"The newest lag result is from {result.window_end:%Y-%m-%d %H:%M} UTC. See condition LagAnalysisScheduled of "
        "the Broker."
    )
    return StatusCondition("Lagging", ConditionStatus.UNKNOWN, ConditionReason.LAG_REPORT_STALE, message)


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


def _differs(old: int | None, new: int | None) -> bool:
    if old is None or new is None:
        return old is not new
    return abs(new - old) > _NOTICEABLE * max(old, 1)
