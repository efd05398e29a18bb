"""From an entry of a lag result to `status.lag` and condition Lagging of its Subscription, and what of it is written.

The result document comes from a pod and is not trusted. Its model has validated it; a result is used only if its window
is newer than that of the last one; and an entry is used for a Subscription only if uid, queue and Broker agree. Whether
it is current is decided in `lag_freshness`. Source: docs/decisions/064-result-documents.md, docs/concepts/lag.md.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from penstock_api.lag_result import LagResult, LagState, SubscriptionLag
from penstock_api.resources import Lag, Losses, Subscription
from penstock_operator.manifest import Manifest
from penstock_operator.plans.conditions import LAGGING, ConditionReason, ConditionStatus, StatusCondition, timestamp

__all__ = ["analysis_status", "is_noticeable", "lag_status", "lagging_condition", "reporting"]

_NOTICEABLE: Final = 0.1
"""A figure that changes by less than this share is not written, unless the status is older than `_REFRESH`."""
_NOTICEABLE_MESSAGES: Final = 10
"""Numbers of messages are written also if they change by so many, however large they are."""
_REFRESH: Final = timedelta(minutes=5)

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


def lag_status(entry: SubscriptionLag, result: LagResult) -> Lag:
    """`status.lag` of a Subscription."""
    losses = Losses(
        expired=entry.expired,
        dead_lettered=entry.dead_lettered,
        dropped=entry.dropped,
        lost_at_restart=entry.lost_at_restart,
        moved=entry.moved,
        stranded=entry.stranded,
    )
    return Lag(
        messages=entry.messages,
        ready=entry.ready,
        in_flight=entry.in_flight,
        oldest_age_seconds=entry.oldest_age_seconds,
        arrival_per_minute=entry.arrival_per_minute,
        settled_per_minute=entry.settled_per_minute,
        velocity_per_minute=entry.velocity_per_minute,
        drain_seconds=entry.drain_seconds,
        drain_seconds_low=entry.drain_seconds_low,
        drain_seconds_high=entry.drain_seconds_high,
        sojourn_p95_millis=entry.sojourn_p95_millis,
        redelivery_percent=entry.redelivery_percent,
        lost=entry.lost,
        losses=losses if any(count for _, count in losses) else None,
        consumers=entry.consumers,
        state=entry.state.value,
        message=entry.message,
        since_caught_up_seconds=entry.since_caught_up_seconds,
        observed_time=entry.observed_time,
        run_name=result.run_name,
        brokers_reporting=reporting(result),
    )


def lagging_condition(subscription: Subscription, entry: SubscriptionLag) -> StatusCondition:
    """Condition Lagging: True if messages were lost, or a threshold of the spec is exceeded; else by the state."""
    limits = subscription.spec.lag_thresholds
    if entry.state is LagState.UNKNOWN:
        return StatusCondition(LAGGING, ConditionStatus.UNKNOWN, entry.state.value, entry.message)
    if entry.state is LagState.LOSING:
        # Before the thresholds: a backlog that is too large must not hide that messages are lost.
        return StatusCondition(LAGGING, ConditionStatus.TRUE, entry.state.value, entry.message)
    if limits.messages is not None and entry.messages is not None and entry.messages > limits.messages:
        message = f"{entry.messages} messages, more than {limits.messages}. {entry.message}"
        return StatusCondition(LAGGING, ConditionStatus.TRUE, ConditionReason.BACKLOG_ABOVE_THRESHOLD, message)
    age, oldest = limits.oldest_age_seconds, entry.oldest_age_seconds
    if age is not None and oldest is not None and oldest > age:
        message = f"The oldest message has waited {oldest} s, more than {age} s. {entry.message}"
        return StatusCondition(LAGGING, ConditionStatus.TRUE, ConditionReason.OLDEST_MESSAGE_TOO_OLD, message)
    if entry.state in _BEHIND:
        return StatusCondition(LAGGING, ConditionStatus.TRUE, entry.state.value, entry.message)
    return StatusCondition(LAGGING, ConditionStatus.FALSE, ConditionReason.WITHIN_THRESHOLDS, entry.message)


def is_noticeable(shown: Lag | None, found: Lag) -> bool:
    """Whether a lag is worth a write: the state changed, or the figures are newer and one of them differs noticeably,
    or what is shown is five minutes older.

    `shown`: the lag in the status now.
    """
    if shown is None or found.state != shown.state:
        return True
    if found.observed_time <= shown.observed_time:
        return False
    if found.observed_time - shown.observed_time >= _REFRESH:
        return True
    counts = (
        (shown.messages, found.messages),
        (shown.ready, found.ready),
        (shown.in_flight, found.in_flight),
        (shown.lost, found.lost),
    )
    rates = (
        (shown.oldest_age_seconds, found.oldest_age_seconds),
        (shown.arrival_per_minute, found.arrival_per_minute),
        (shown.settled_per_minute, found.settled_per_minute),
        (shown.velocity_per_minute, found.velocity_per_minute),
        (shown.drain_seconds, found.drain_seconds),
        (shown.sojourn_p95_millis, found.sojourn_p95_millis),
        (shown.redelivery_percent, found.redelivery_percent),
        (shown.consumers, found.consumers),
    )
    return any(_count_differs(old, new) for old, new in counts) or any(_differs(old, new) for old, new in rates)


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


def _count_differs(old: int | None, new: int | None) -> bool:
    if old is None or new is None:
        return old is not new
    change = abs(new - old)
    return change >= _NOTICEABLE_MESSAGES or (change > 0 and change >= _NOTICEABLE * old)


def _differs(old: int | None, new: int | None) -> bool:
    if old is None or new is None:
        return old is not new
    return abs(new - old) > _NOTICEABLE * max(abs(old), 1)
