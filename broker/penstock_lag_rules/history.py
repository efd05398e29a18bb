"""Figures from the snapshots of one subscription: the definition of the spans, in plain Python.

The lag job makes the same figures with Spark, for many subscriptions and long windows; a test compares the two. Nothing
here looks at a clock. Source: docs/concepts/lag.md, "What is measured" and "States".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from penstock_lag_rules.figures import (
    NO_GROWTH,
    TOTALS,
    Coverage,
    Duration,
    Figures,
    Growth,
    Percentiles,
    RepeatedMessage,
    Span,
    Standing,
    Subject,
    Work,
)
from penstock_lag_rules.thresholds import Thresholds

__all__ = [
    "Durations",
    "Snapshot",
    "durations_between",
    "expires_in_ms",
    "figures_of",
    "first_durations",
    "first_growth",
    "growth_between",
    "standing_of",
    "work_between",
]


Durations = tuple[int, int, int, int]
"""Number and sum in milliseconds of the waits, then of the holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What one poll said of one subscription; names and units as in penstock_api.state_documents.SubscriptionState."""

    time_ms: int
    life: tuple[str, int, int, int]
    """Instance and epoch of the broker, incarnation of the queue, and when the broker started; 0: not known."""
    is_born: bool = False
    """The first of its life, which an earlier complete poll of the same run of the broker did not have: its totals
    count from zero. After a restart it may be one that was recovered.
    """
    depth: int
    ready: int
    in_flight: int
    scheduled: int = 0
    stranded: int = 0
    oldest_available_ms: int | None
    oldest_hold_ms: int | None = None
    first_expires_ms: int | None = None
    last_expires_ms: int | None = None
    consumers: int
    credit: int
    usable_credit: int
    usable_consumers: int | None = None
    unused_since_ms: int | None = None
    totals: Growth
    """Since its life began; none of them ever falls within one life."""
    durations: Durations = (0, 0, 0, 0)
    """Since its life began, too."""
    repeated: tuple[RepeatedMessage, ...] = ()

    @property
    def queue(self) -> tuple[str, int]:
        """Another one is another queue under the same name, which has nothing of this one."""
        return self.life[0], self.life[2]

    def age_ms(self) -> int | None:
        """Age of the oldest unsettled message; None if none waits, or if the clock went back behind it."""
        return _since(self.oldest_available_ms, self.time_ms)

    def is_caught_up(self, thresholds: Thresholds) -> bool:
        """Nothing waits, or only what has just come."""
        age_ms = self.age_ms()
        is_fresh = age_ms is not None and age_ms <= thresholds.allowed_age_ms
        return self.depth - self.scheduled + self.stranded <= thresholds.allowed_messages or is_fresh

    def is_busy(self, thresholds: Thresholds) -> bool:
        """Messages are ready for every consumer, and not only those that have just come."""
        usable = self.consumers if self.usable_consumers is None else self.usable_consumers
        return self.ready > 0 and 0 < self.consumers <= usable and not self.is_caught_up(thresholds)


def figures_of(
    subject: Subject,
    coverage: Coverage,
    snapshots: Sequence[Snapshot],
    thresholds: Thresholds,
    percentiles: Percentiles | None = None,
) -> Figures:
    """The figures at the last of `snapshots`, which are those of the window in their order; there is at least one.
    What was before its queue was made, under the same name, was another queue's.
    """
    last = snapshots[-1]
    others = [at for at, each in enumerate(snapshots) if each.queue != last.queue]
    snapshots = snapshots[others[-1] + 1 if others else 0 :]
    born = first_growth(snapshots[0])
    caught_up = [at for at, each in enumerate(snapshots) if each.is_caught_up(thresholds)]
    recent = [at for at, each in enumerate(snapshots) if each.time_ms >= last.time_ms - thresholds.recent_ms]
    # At least two, if there are two: with long intervals between polls the last one alone says nothing.
    start = max(min(recent[0], len(snapshots) - 2), 0)
    grown = [born, *(growth_between(before, now) for before, now in pairwise(snapshots))]
    progressed = [now.time_ms for now, growth in zip(snapshots, grown, strict=True) if growth.is_progress]
    consumed = [each.time_ms for each in snapshots if each.consumers > 0]
    lasted = [first_durations(snapshots[0]), *(durations_between(before, now) for before, now in pairwise(snapshots))]
    waits, wait_ms, holds, hold_ms = (sum(each) for each in zip(*lasted, strict=True))
    window = _span(snapshots, 0, born)
    return Figures(
        subject=subject,
        standing=standing_of(last),
        coverage=coverage,
        window=window,
        stretch=_span(snapshots, caught_up[-1]) if caught_up else window,
        recent=_span(snapshots, start) if start else window,
        caught_up_ms=snapshots[caught_up[-1]].time_ms if caught_up else None,
        progressed_ms=progressed[-1] if progressed else snapshots[0].time_ms,
        consumed_ms=consumed[-1] if consumed else None,
        percentiles=percentiles or Percentiles(),
        work=_all_work([work_between(before, now, thresholds) for before, now in pairwise(snapshots)]),
        wait=Duration(waits, wait_ms),
        hold=Duration(holds, hold_ms),
    )


def standing_of(last: Snapshot) -> Standing:
    """How the subscription stands at a snapshot."""
    return Standing(
        observed_ms=last.time_ms,
        depth=last.depth,
        ready=last.ready,
        in_flight=last.in_flight,
        scheduled=last.scheduled,
        stranded=last.stranded,
        age_ms=last.age_ms(),
        hold_ms=_since(last.oldest_hold_ms, last.time_ms),
        expires_in_ms=expires_in_ms(last.first_expires_ms, last.last_expires_ms, last.time_ms),
        consumers=last.consumers,
        credit=last.credit,
        usable_consumers=last.usable_consumers,
        unused_since_ms=last.unused_since_ms,
        repeated=last.repeated,
    )


def _span(snapshots: Sequence[Snapshot], start: int, born: Growth = NO_GROWTH) -> Span:
    """The span from the snapshot number `start` on. `born`: what had happened in it before that snapshot."""
    found = snapshots[start:]
    first = found[0]
    return Span(
        elapsed_ms=max(found[-1].time_ms - first.time_ms, 0),
        snapshots=len(found),
        first_depth=first.depth,
        first_scheduled=first.scheduled,
        first_age_ms=first.age_ms(),
        falls=sum(now.depth < before.depth for before, now in pairwise(found)),
        restarts=sum(now.life != before.life for before, now in pairwise(found)),
        min_depth=min(each.depth for each in found),
        min_ready=min(each.ready for each in found),
        min_in_flight=min(each.in_flight for each in found),
        min_consumers=min(each.consumers for each in found),
        min_credit=min(each.usable_credit for each in found),
        max_credit=max(each.credit for each in found),
        growth=_sum([growth_between(before, now) for before, now in pairwise(found)]),
        born=born,
    )


def first_growth(first: Snapshot) -> Growth:
    """What the first snapshot of a life has grown: all of its totals, if it was absent in the poll before."""
    return first.totals if first.is_born else NO_GROWTH


def growth_between(before: Snapshot, now: Snapshot) -> Growth:
    """What the totals of `now` have more than those of the poll before.

    After a restart that is not known, except for what was lost: that is counted over all lives of an incarnation.
    """
    if before.life == now.life:
        return _difference(before.totals, now.totals)
    grown = first_growth(now)
    if (before.life[0], before.life[2]) == (now.life[0], now.life[2]):
        lost = max(now.totals.lost_at_restart - before.totals.lost_at_restart, 0)
        grown = replace(grown, lost_at_restart=lost)
    return grown


def first_durations(first: Snapshot) -> Durations:
    """As `first_growth`."""
    return first.durations if first.is_born else (0, 0, 0, 0)


def durations_between(before: Snapshot, now: Snapshot) -> Durations:
    """What ended between two snapshots; after a restart that is not known."""
    if before.life != now.life:
        return first_durations(now)
    waits, wait_ms, holds, hold_ms = (
        max(later - earlier, 0) for earlier, later in zip(before.durations, now.durations, strict=True)
    )
    return waits, wait_ms, holds, hold_ms


def work_between(before: Snapshot, now: Snapshot, thresholds: Thresholds) -> Work:
    """What the consumers did from one snapshot to the next: nothing that counts, unless all of them were busy."""
    elapsed_ms = now.time_ms - before.time_ms
    if before.life != now.life or not 0 < elapsed_ms <= thresholds.busy_interval_ms:
        return Work()
    if not (before.is_busy(thresholds) and now.is_busy(thresholds)):
        return Work()
    return Work(
        intervals=1,
        accepted=max(now.totals.acked - before.totals.acked, 0),
        consumer_ms=(before.consumers + now.consumers) * elapsed_ms // 2,
    )


def _all_work(found: Sequence[Work]) -> Work:
    return Work(
        intervals=sum(each.intervals for each in found),
        accepted=sum(each.accepted for each in found),
        consumer_ms=sum(each.consumer_ms for each in found),
    )


def _difference(before: Growth, now: Growth) -> Growth:
    # Never below 0: a total that fell within a life would be the broker's fault, and says nothing.
    return Growth(**{name: max(getattr(now, name) - getattr(before, name), 0) for name in TOTALS})


def _sum(growths: Sequence[Growth]) -> Growth:
    return Growth(**{name: sum(getattr(each, name) for each in growths) for name in TOTALS})


def expires_in_ms(first_ms: int | None, last_ms: int | None, now_ms: int) -> tuple[int, int] | None:
    """How long the messages live that are handed out first and last; None if that is not known of both."""
    if first_ms is None or last_ms is None:
        return None
    return max(first_ms - now_ms, 0), max(last_ms - now_ms, 0)


def _since(then_ms: int | None, now_ms: int) -> int | None:
    return None if then_ms is None or then_ms > now_ms else now_ms - then_ms
