"""How the backlog of one subscription went over a time: a bounded number of points from its snapshots.

Pure. Growth is counted as the rules of lag count it, so a restart of the broker is no arrival. A point stands for all
snapshots of its part of the time and shows the worst of them, so that a peak between two points is never hidden.
Source: docs/concepts/lag.md, "What is measured"; penstock_lag_rules.history.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from penstock_lag_rules.figures import TOTALS, Growth
from penstock_lag_rules.history import Snapshot, growth_between

__all__ = ["POINTS", "Point", "TimeSeries", "TimeSeriesBuilder", "time_series_of"]

POINTS: Final = 120
"""Most points of one time series."""
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
class TimeSeries:
    """Points in order of time, from `begin_ms` to `end_ms`, and what came and went between the first and the last."""

    begin_ms: int
    end_ms: int
    points: tuple[Point, ...] = ()
    grown: Growth = field(default_factory=Growth)
    snapshots: int = 0


@dataclass(slots=True)
class _Part:
    """A point in the making."""

    number: int
    last: Snapshot
    depth: int = 0
    age_seconds: int | None = None
    elapsed_ms: int = 0
    grown: Growth = field(default_factory=Growth)
    is_after_gap: bool = False

    def point(self) -> Point:
        """The point, as far as it has come."""
        return Point(
            time_ms=self.last.time_ms,
            depth=self.depth,
            age_seconds=self.age_seconds,
            arrived=_per_minute(self.grown.enqueued, self.elapsed_ms),
            accepted=_per_minute(self.grown.acked, self.elapsed_ms),
            lost=None if self.elapsed_ms == 0 else self.grown.lost,
            consumers=self.last.consumers,
            is_after_gap=self.is_after_gap,
        )


class TimeSeriesBuilder:
    """Takes the snapshots of one subscription in the order of the ledger; needs memory for the points alone.

    Times outside `begin_ms` to `end_ms` are left out, and so is what came before the broker's clock was set back, and
    what was of another queue that had the name. `interval_ms`: intended time between two polls.
    """

    def __init__(self, begin_ms: int, end_ms: int, interval_ms: int) -> None:
        self._begin_ms, self._end_ms = begin_ms, end_ms
        self._width_ms = max(-(-(end_ms - begin_ms) // POINTS), 1)
        self._gap_ms = GAP_POLLS * max(interval_ms, 1)
        self._parts: list[_Part] = []
        self._grown = Growth()
        self._snapshots = 0
        self._before: Snapshot | None = None

    def add(self, now: Snapshot) -> None:
        """The next snapshot."""
        before = self._before
        if before is not None and (now.time_ms < before.time_ms or now.queue != before.queue):
            self._parts, self._grown, self._snapshots, self._before = [], Growth(), 0, None
        if not self._begin_ms <= now.time_ms <= self._end_ms:
            return
        # The end belongs to the last part: a point of a single snapshot would show the rate of one poll.
        number = min((now.time_ms - self._begin_ms) // self._width_ms, POINTS - 1)
        if not self._parts or self._parts[-1].number != number:
            self._parts.append(_Part(number, now))
        part = self._parts[-1]
        if self._before is not None:
            grown = growth_between(self._before, now)
            elapsed_ms = now.time_ms - self._before.time_ms
            part.elapsed_ms += elapsed_ms
            part.grown = _sum(part.grown, grown)
            part.is_after_gap |= elapsed_ms > self._gap_ms
            self._grown = _sum(self._grown, grown)
        age = _age_seconds(now)
        part.last, part.depth = now, max(part.depth, now.depth)
        part.age_seconds = part.age_seconds if age is None else max(part.age_seconds or 0, age)
        self._snapshots += 1
        self._before = now

    def time_series(self) -> TimeSeries:
        """The time series so far."""
        return TimeSeries(
            begin_ms=self._begin_ms,
            end_ms=self._end_ms,
            points=tuple(part.point() for part in self._parts),
            grown=self._grown,
            snapshots=self._snapshots,
        )


def time_series_of(snapshots: Iterable[Snapshot], begin_ms: int, end_ms: int, interval_ms: int) -> TimeSeries:
    """The time series of these snapshots; the arguments are those of `TimeSeriesBuilder`."""
    builder = TimeSeriesBuilder(begin_ms, end_ms, interval_ms)
    for each in snapshots:
        builder.add(each)
    return builder.time_series()


def _age_seconds(snapshot: Snapshot) -> int | None:
    if snapshot.ready == snapshot.in_flight == snapshot.stranded == 0:  # what is due later does not wait
        return 0
    age_ms = snapshot.age_ms()
    return None if age_ms is None else age_ms // 1000


def _per_minute(messages: int, elapsed_ms: int) -> int | None:
    return None if elapsed_ms <= 0 else round(messages * 60_000 / elapsed_ms)


def _sum(one: Growth, other: Growth) -> Growth:
    return Growth(**{name: getattr(one, name) + getattr(other, name) for name in TOTALS})
