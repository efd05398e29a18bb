"""A result with what the hours before its window add: slow paces beside the fast ones, and what changed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock_api.lag_result import LagResult, PaceLag, SubscriptionLag
from penstock_lag.rollups.past_hours import PastHours
from penstock_lag_rules.buckets import bucket_of_rank, midpoint_ms
from penstock_lag_rules.changes import Fast, Past, changes
from penstock_lag_rules.entry import MINIMUM_COMPLETIONS, time_of
from penstock_lag_rules.figures import Figures
from penstock_lag_rules.paces import Pace
from penstock_lag_rules.unread_stretches import Unread, is_whole

__all__ = ["with_past"]


def with_past(
    result: LagResult, figures: Iterable[Figures], past: PastHours, unread: Sequence[Unread] = ()
) -> LagResult:
    """The same result with paces and changes in the entries of which something is known. In: the figures of which it
    was made, and what of the window could not be read: a part of the window is not compared with whole hours.
    """
    if not past.hour and not past.day:
        return result
    ordered = sorted(figures, key=lambda one: (one.subject.queue_name, one.subject.ordinal))
    pairs = zip(result.subscriptions, ordered, strict=True)
    return result.model_copy(
        update={"subscriptions": tuple(_with_past(entry, one, past, unread) for entry, one in pairs)}
    )


def _with_past(entry: SubscriptionLag, figures: Figures, past: PastHours, unread: Sequence[Unread]) -> SubscriptionLag:
    queue = (figures.subject.ordinal, figures.subject.queue_name)
    hour, day = past.hour.get(queue), past.day.get(queue)
    hour_p95_ms, day_p95_ms = _p95_ms(hour), _p95_ms(day)
    known = Past(hour=hour, day=day, hour_p95_ms=hour_p95_ms, day_p95_ms=day_p95_ms)
    is_timed = figures.window.elapsed_ms > 0 and figures.coverage.clock_steps == 0
    is_comparable = is_timed and is_whole(figures, unread)
    return entry.model_copy(
        update={
            "past_hour": None if hour is None else _pace(hour, hour_p95_ms),
            "past_day": None if day is None else _pace(day, day_p95_ms),
            "changes": changes(_fast(entry, figures), known) if is_comparable else (),
        }
    )


def _fast(entry: SubscriptionLag, figures: Figures) -> Fast:
    grown, standing = figures.window.growth, figures.standing
    return Fast(
        elapsed_ms=figures.window.elapsed_ms,
        arrived=grown.enqueued,
        accepted=grown.acked,
        lost=grown.lost,
        waiting=standing.depth - standing.scheduled,
        age_ms=standing.age_ms,
        consumers=standing.consumers,
        sojourn_p95_ms=entry.sojourn_p95_millis,
    )


def _pace(pace: Pace, p95_ms: int | None) -> PaceLag:
    return PaceLag(
        end=time_of(pace.end_ms),
        seconds=pace.elapsed_ms // 1000,
        arrival_per_minute=round(pace.arrived * 60_000 / pace.elapsed_ms),
        settled_per_minute=round(pace.accepted * 60_000 / pace.elapsed_ms),
        lost=pace.lost + pace.lost_before,
        sojourn_p95_millis=p95_ms,
    )


def _p95_ms(pace: Pace | None) -> int | None:
    if pace is None or sum(pace.sojourn.values()) < MINIMUM_COMPLETIONS:
        return None
    bucket = bucket_of_rank(pace.sojourn, 95)
    return None if bucket is None else midpoint_ms(bucket)
