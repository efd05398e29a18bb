"""How the backlog of one subscription went over a time: a bounded number of points from its snapshots.

Pure. Growth is counted as the rules of lag count it, so a restart of the broker is no arrival. A point stands for all
snapshots of its part of the time and shows the worst of them, so that a peak between two points is never hidden.
Source: docs/concepts/lag.md, "What is measured"; penstock_lag_rules.history.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Final

from penstock_lag_rules.figures import TOTALS, Growth
from penstock_lag_rules.history import Snapshot, growth_between

__all__ = ["POINTS", "Course", "Point", "course_of"]

POINTS: Final = 120
"""Most points of one course."""
GAP_POLLS: Final = 3
"""Without a snapshot for so many intervals, the line is broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The snapshots of one part of the time."""

    time_ms: int
    """Of the last of them."""
    depth: int
    """The largest."""
    age_seconds: int | None
    """The largest age of the oldest message; 0 if nothing waits; None if it is not known."""
    arrived: int | None
    """Messages per minute; None if there was no earlier snapshot to compare with."""
    accepted: int | None
    """Messages per minute, as `arrived`."""
    lost: int | None
    """Messages, not per minute: expired, dead-lettered, dropped, or lost at a restart. None as `arrived`."""
    consumers: int
    """At the last of them."""
    is_after_gap: bool
    """The observer did not see the subscription for a while before this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Points in order of time, from `begin_ms` to `end_ms`, and what came and went between the first and the last."""

    begin_ms: int
    end_ms: int
    points: tuple[Point, ...] = ()
    grown: Growth = field(default_factory=Growth)
    snapshots: int = 0


@dataclass(frozen=True, slots=True)
class _Step:
    """A snapshot, and what happened since the one before."""

    now: Snapshot
    elapsed_ms: int
    grown: Growth
    is_after_gap: bool


def course_of(snapshots: Sequence[Snapshot], begin_ms: int, end_ms: int, interval_ms: int) -> Course:
    """The course from `begin_ms` to `end_ms`. `snapshots` are in the order of the ledger; times outside are left out,
    and so is what came before the broker's clock was set back. `interval_ms`: intended time between two polls.
    """
    inside = [each for each in _after_last_step_back(snapshots) if begin_ms <= each.time_ms <= end_ms]
    width_ms = max(-(-(end_ms - begin_ms) // POINTS), 1)
    gap_ms = GAP_POLLS * max(interval_ms, 1)
    steps = _steps(inside, gap_ms)
    parts = groupby(steps, key=lambda step: (step.now.time_ms - begin_ms) // width_ms)
    return Course(
        begin_ms=begin_ms,
        end_ms=end_ms,
        points=tuple(_point(list(part)) for _, part in parts),
        grown=_sum(step.grown for step in steps),
        snapshots=len(inside),
    )


def _after_last_step_back(snapshots: Sequence[Snapshot]) -> Sequence[Snapshot]:
    back = [at for at, (before, now) in enumerate(pairwise(snapshots), 1) if now.time_ms < before.time_ms]
    return snapshots[back[-1] :] if back else snapshots


def _steps(snapshots: Sequence[Snapshot], gap_ms: int) -> list[_Step]:
    first = [_Step(each, 0, Growth(), False) for each in snapshots[:1]]
    later = [
        _Step(now, elapsed_ms, growth_between(before, now), elapsed_ms > gap_ms)
        for before, now in pairwise(snapshots)
        for elapsed_ms in (now.time_ms - before.time_ms,)
    ]
    return first + later


def _point(steps: Sequence[_Step]) -> Point:
    last = steps[-1].now
    elapsed_ms = sum(step.elapsed_ms for step in steps)
    grown = _sum(step.grown for step in steps)
    ages = [_age_seconds(step.now) for step in steps]
    known = [age for age in ages if age is not None]
    return Point(
        time_ms=last.time_ms,
        depth=max(step.now.depth for step in steps),
        age_seconds=max(known) if known else None,
        arrived=_per_minute(grown.enqueued, elapsed_ms),
        accepted=_per_minute(grown.acked, elapsed_ms),
        lost=None if elapsed_ms == 0 else grown.lost,
        consumers=last.consumers,
        is_after_gap=any(step.is_after_gap for step in steps),
    )


def _age_seconds(snapshot: Snapshot) -> int | None:
    if snapshot.depth == 0:
        return 0
    age_ms = snapshot.age_ms()
    return None if age_ms is None else age_ms // 1000


def _per_minute(messages: int, elapsed_ms: int) -> int | None:
    return None if elapsed_ms <= 0 else round(messages * 60_000 / elapsed_ms)


def _sum(growths: Iterable[Growth]) -> Growth:
    grown = list(growths)
    return Growth(**{name: sum(getattr(each, name) for each in grown) for name in TOTALS})
