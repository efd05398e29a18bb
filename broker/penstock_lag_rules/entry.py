"""The entry of one subscription in a lag result: its figures in seconds, minutes and per cent, its state and sentence.

The lag job and the observer make the same entry from the same figures. Pure. Source: penstock_api.lag_result;
docs/reference/lag-job.md, "The result".
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from penstock_api.lag_result import FORECASTS, LagState, RepeatedMessageLag, SubscriptionLag
from penstock_lag_rules.buckets import midpoint_ms
from penstock_lag_rules.capacity import capacity_per_minute, suggested_consumers
from penstock_lag_rules.expiry_risk import expiry_risk
from penstock_lag_rules.fairness import fairness_percent, shares
from penstock_lag_rules.figures import Duration, Figures, Growth, Percentiles, RepeatedMessage
from penstock_lag_rules.rules import judge
from penstock_lag_rules.slow_part import means, slow_part
from penstock_lag_rules.thresholds import Thresholds
from penstock_lag_rules.trend import drain_time, per_minute

__all__ = ["EPOCH", "MESSAGE_LENGTH", "MINIMUM_COMPLETIONS", "subscription_lag", "time_of", "unknown"]

MINIMUM_COMPLETIONS: Final = 20
"""Percentiles of fewer accepted messages are left out, because they would depend on chance."""

MESSAGE_LENGTH: Final = 1024
"""Characters of a sentence."""

ID_LENGTH: Final = 255
"""Characters of a message-id."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def subscription_lag(f: Figures, missing: str | None, end_ms: int, thresholds: Thresholds) -> SubscriptionLag:
    """The entry at the end of the window, `end_ms`. `missing`: why its broker does not report; None if it does."""
    verdict = judge(f, thresholds, end_ms, missing)
    now, grown, counted = f.standing, f.window.growth, f.window.counted
    is_timed = f.coverage.clock_steps == 0  # else nobody knows how long anything took
    elapsed_ms = f.window.elapsed_ms if is_timed else 0
    drain = drain_time(f) if verdict.state is LagState.RECOVERING and now.consumers > 0 else None
    removed = grown.acked + grown.lost + grown.moved + grown.purged
    # What a restart changed besides is no movement: a backup may have come back.
    change = grown.enqueued - removed if f.window.restarts else now.depth - f.window.first_depth
    mean = means(f.wait, f.hold, thresholds) if is_timed else None
    took = f.percentiles if is_timed else Percentiles()  # what waited over the step took as long as that, by the clock
    risk = None if verdict.state is LagState.UNKNOWN else expiry_risk(f)
    return SubscriptionLag(
        queue_name=f.subject.queue_name,
        owner_namespace=f.subject.owner_namespace,
        owner_name=f.subject.owner_name,
        owner_uid=f.subject.owner_uid,
        observed_time=time_of(now.observed_ms),
        state=verdict.state,
        message=verdict.message[:MESSAGE_LENGTH],
        messages=now.depth,
        ready=now.ready,
        in_flight=now.in_flight,
        scheduled=now.scheduled,
        oldest_age_seconds=_oldest(f),
        longest_hold_seconds=0 if now.in_flight == 0 else _seconds(now.hold_ms),
        arrival_per_minute=per_minute(grown.enqueued, elapsed_ms),
        settled_per_minute=per_minute(grown.acked, elapsed_ms),
        velocity_per_minute=per_minute(change, elapsed_ms),
        drain_seconds=None if drain is None else drain.likely,
        drain_seconds_low=None if drain is None else drain.low,
        drain_seconds_high=None if drain is None else drain.high,
        sojourn_p50_millis=_percentile(took, took.sojourn_p50),
        sojourn_p95_millis=_percentile(took, took.sojourn_p95),
        sojourn_p99_millis=_percentile(took, took.sojourn_p99),
        mean_wait_millis=None if mean is None else mean.wait_ms,
        mean_hold_millis=None if mean is None else mean.hold_ms,
        wait_p95_millis=_p95(f.wait) if is_timed else None,
        hold_p95_millis=_p95(f.hold) if is_timed else None,
        slow_part=None if mean is None else slow_part(mean, thresholds),
        redelivery_percent=_redelivery_percent(counted),
        consumers=now.consumers,
        shares=shares(f.consumers),
        fairness_percent=fairness_percent(f.consumers, thresholds) if is_timed else None,
        capacity_per_minute=capacity_per_minute(f.work, thresholds) if is_timed else None,
        suggested_consumers=suggested_consumers(f, verdict.state, thresholds),
        expiring_soon=None if risk is None else risk.messages,
        expiry_risk_percent=None if risk is None else risk.percent,
        expired=counted.expired,
        dead_lettered=counted.dead_lettered,
        dropped=counted.dropped,
        moved=counted.moved,
        purged=counted.purged,
        lost_at_restart=counted.lost_at_restart,
        stranded=now.stranded,
        lost=counted.lost,
        since_caught_up_seconds=_since_caught_up(f) if is_timed else None,
        repeated=tuple(_repeated(each) for each in now.repeated),
    )


def unknown(entry: SubscriptionLag, why: str) -> SubscriptionLag:
    """The entry of a subscription of which nobody can tell any more how it stands; `why` is a sentence without its full
    stop. What was observed stays, and no forecast does: seconds until the backlog is empty count from a time that is
    past, and go on to be read as if it were now.
    """
    changes = {"state": LagState.UNKNOWN, "message": why[:MESSAGE_LENGTH]}
    return entry.model_copy(update={**dict.fromkeys(FORECASTS), **changes})


def _oldest(f: Figures) -> int | None:
    """0 if nothing waits, also if some is due later; None if something does and its age is not known: the clock went
    back, or it is stranded.
    """
    now = f.standing
    return 0 if now.ready == now.in_flight == now.stranded == 0 else _seconds(now.age_ms)


def _since_caught_up(f: Figures) -> int | None:
    return None if f.caught_up_ms is None else _seconds(max(f.standing.observed_ms - f.caught_up_ms, 0))


def _redelivery_percent(grown: Growth) -> int | None:
    """Each total by itself never falls, so where a broker began anew from a backup more may be counted as redelivered
    than as delivered.
    """
    return None if grown.delivered == 0 else min(grown.redelivered * 100 // grown.delivered, 100)


def _repeated(message: RepeatedMessage) -> RepeatedMessageLag:
    return RepeatedMessageLag(
        id=message.id[:ID_LENGTH], delivery_count=message.delivery_count, age_seconds=message.age_ms // 1000
    )


def _percentile(percentiles: Percentiles, bucket: int | None) -> int | None:
    return None if bucket is None or percentiles.completions < MINIMUM_COMPLETIONS else midpoint_ms(bucket)


def _p95(duration: Duration) -> int | None:
    return None if duration.p95 is None or duration.count < MINIMUM_COMPLETIONS else midpoint_ms(duration.p95)


def _seconds(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else milliseconds // 1000


def time_of(milliseconds: int) -> datetime:
    """The time so many milliseconds after 1970."""
    return EPOCH + timedelta(milliseconds=milliseconds)
