"""Figures from the snapshots of one subscription: the definition of the spans, in plain Python.

The lag job makes the same figures with Spark, for many subscriptions and long windows; a test compares the two. Nothing
here looks at a clock. Source: docs/concepts/lag.md, "What is measured" and "States".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

from penstock_lag_rules.figures import Coverage, Figures, Growth, Percentiles, RepeatedMessage, Span, Standing, Subject
from penstock_lag_rules.rules import Thresholds

__all__ = ["Snapshot", "Totals", "figures_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Messages since a life of the queue began; none of them ever falls within one life."""

    enqueued: int = 0
    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    expired: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    moved: int = 0
    lost_at_restart: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What one poll said of one subscription; names and units as in penstock_api.management.SubscriptionState."""

    time_ms: int
    life: tuple[str, int, int]
    """Instance and epoch of the broker, incarnation of the queue."""
    is_born: bool = False
    """The first of its life, which began after the poll before: its totals count from zero."""
    depth: int
    ready: int
    in_flight: int
    scheduled: int = 0
    stranded: int = 0
    oldest_available_ms: int | None
    oldest_hold_ms: int | None = None
    consumers: int
    credit: int
    usable_credit: int
    usable_consumers: int | None = None
    unused_since_ms: int | None = None
    totals: Totals
    repeated: tuple[RepeatedMessage, ...] = ()

    def age_ms(self) -> int | None:
        """Age of the oldest unsettled message; None if none waits, or if the clock went back behind it."""
        return _since(self.oldest_available_ms, self.time_ms)

    def is_caught_up(self, thresholds: Thresholds) -> bool:
        """Nothing waits, or only what has just come."""
        age_ms = self.age_ms()
        is_fresh = age_ms is not None and age_ms <= thresholds.allowed_age_ms
        return self.depth - self.scheduled + self.stranded <= thresholds.allowed_messages or is_fresh


def figures_of(
    subject: Subject,
    coverage: Coverage,
    snapshots: Sequence[Snapshot],
    thresholds: Thresholds,
    percentiles: Percentiles | None = None,
) -> Figures:
    """The figures at the last of `snapshots`, which are those of the window in their order; there is at least one."""
    last = snapshots[-1]
    caught_up = [at for at, each in enumerate(snapshots) if each.is_caught_up(thresholds)]
    recent = [at for at, each in enumerate(snapshots) if each.time_ms >= last.time_ms - thresholds.recent_ms]
    # At least two, if there are two: with long intervals between polls the last one alone says nothing.
    start = max(min(recent[0], len(snapshots) - 2), 0)
    progressed = [now.time_ms for before, now in pairwise(snapshots) if _is_progress(_growth(before, now))]
    return Figures(
        subject=subject,
        standing=_standing(last),
        coverage=coverage,
        window=_span(snapshots),
        stretch=_span(snapshots[caught_up[-1] if caught_up else 0 :]),
        recent=_span(snapshots[start:]),
        caught_up_ms=snapshots[caught_up[-1]].time_ms if caught_up else None,
        progressed_ms=progressed[-1] if progressed else snapshots[0].time_ms,
        consumed_ms=max((each.time_ms for each in snapshots if each.consumers > 0), default=None),
        percentiles=percentiles or Percentiles(),
    )


def _standing(last: Snapshot) -> Standing:
    return Standing(
        observed_ms=last.time_ms,
        depth=last.depth,
        ready=last.ready,
        in_flight=last.in_flight,
        scheduled=last.scheduled,
        stranded=last.stranded,
        age_ms=last.age_ms(),
        hold_ms=_since(last.oldest_hold_ms, last.time_ms),
        consumers=last.consumers,
        credit=last.credit,
        usable_consumers=last.usable_consumers,
        unused_since_ms=last.unused_since_ms,
        repeated=last.repeated,
    )


def _span(snapshots: Sequence[Snapshot]) -> Span:
    first = snapshots[0]
    return Span(
        elapsed_ms=max(snapshots[-1].time_ms - first.time_ms, 0),
        snapshots=len(snapshots),
        first_depth=first.depth,
        first_age_ms=first.age_ms(),
        falls=sum(now.depth < before.depth for before, now in pairwise(snapshots)),
        min_depth=min(each.depth for each in snapshots),
        min_ready=min(each.ready for each in snapshots),
        min_in_flight=min(each.in_flight for each in snapshots),
        min_consumers=min(each.consumers for each in snapshots),
        min_credit=min(each.usable_credit for each in snapshots),
        max_credit=max(each.credit for each in snapshots),
        growth=_sum([_growth(before, now) for before, now in pairwise(snapshots)]),
    )


_NAMES = tuple(field.name for field in fields(Growth))


def _growth(before: Snapshot, now: Snapshot) -> Growth:
    """What the totals of `now` have more than those of the poll before."""
    if before.life == now.life:
        base = before.totals
    elif now.is_born:
        base = Totals()
    else:
        # A restart: what happened since the snapshot before is not known, except what was lost, which is carried on.
        base = now.totals
        if before.life[2] == now.life[2]:
            lost = max(now.totals.lost_at_restart - before.totals.lost_at_restart, 0)
            return Growth(lost_at_restart=lost)
    return Growth(**{name: getattr(now.totals, name) - getattr(base, name) for name in _NAMES})


def _sum(growths: Sequence[Growth]) -> Growth:
    return Growth(**{name: sum(getattr(each, name) for each in growths) for name in _NAMES})


def _is_progress(growth: Growth) -> bool:
    return growth.acked > 0 or growth.moved > 0


def _since(then_ms: int | None, now_ms: int) -> int | None:
    return None if then_ms is None or then_ms > now_ms else now_ms - then_ms
