"""The figures of one subscription, kept up to date from poll to poll: what `history` defines, at a small constant cost.

A window of five minutes has some thirty snapshots. Each is kept as a row of integers in one array, with the growth
since the track began instead of the totals, so that the growth of any span is one subtraction: ten thousand
subscriptions are to be judged at every poll. Nothing here looks at a clock.
Source: docs/concepts/lag.md, "States"; penstock_lag_rules.history.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Final, TypedDict

from penstock_lag_rules.figures import (
    NO_GROWTH,
    TOTALS,
    Coverage,
    Duration,
    Figures,
    Growth,
    Percentiles,
    Span,
    Subject,
    Work,
)
from penstock_lag_rules.history import (
    Snapshot,
    durations_between,
    first_durations,
    first_growth,
    growth_between,
    standing_of,
    work_between,
)
from penstock_lag_rules.thresholds import Thresholds

__all__ = ["Track"]

TIME, DEPTH, SCHEDULED, READY, IN_FLIGHT, CONSUMERS, USABLE, CREDIT, AGE, FELL, RESTARTED, DONE = range(12)
GROWN: Final = DONE + 7
"""From DONE on: the fields of Work, then those of history.Durations, since the track began."""
WIDTH: Final = GROWN + len(TOTALS)
UNKNOWN: Final = -1
"""Stands for an age that is not known."""


class _Done(TypedDict):
    """Fields of Figures."""

    work: Work
    wait: Duration
    hold: Duration


class Track:
    """One subscription and the snapshots of its window."""

    __slots__ = (
        "_caught_up",
        "_consumed",
        "_first",
        "_is_born",
        "_last",
        "_progressed",
        "_rows",
        "_thresholds",
        "_window_ms",
    )

    def __init__(self, thresholds: Thresholds, window_ms: int) -> None:
        self._thresholds = thresholds
        self._window_ms = window_ms
        self._rows = array("q")
        self._first = 0
        """The number of the first row that is kept; rows are numbered from the beginning of the track."""
        self._last: Snapshot | None = None
        self._is_born = False
        """The first row of all was that of a queue that an earlier complete poll of the run did not have."""
        self._caught_up = self._progressed = self._consumed = UNKNOWN
        """The last rows in which it was caught up, a message was accepted or moved, and it had a consumer."""

    def add(self, snapshot: Snapshot) -> None:
        """A poll has shown the subscription. Rows that are older than the window are forgotten."""
        before = self._last
        if before is not None and before.life != snapshot.life and before.queue != snapshot.queue:
            before = None
            self._forget_all()
        rows = self._rows
        if before is None:
            self._is_born = snapshot.is_born
            growth = first_growth(snapshot)
            grown = [getattr(growth, name) for name in TOTALS]
            fell = restarted = False
            done = [0, 0, 0, *first_durations(snapshot)]
        else:
            growth = growth_between(before, snapshot)
            grown = [rows[at - len(TOTALS)] + getattr(growth, name) for at, name in enumerate(TOTALS, len(rows))]
            fell, restarted = snapshot.depth < before.depth, snapshot.life != before.life
            work = work_between(before, snapshot, self._thresholds)
            added = (work.intervals, work.accepted, work.consumer_ms, *durations_between(before, snapshot))
            done = [rows[at - WIDTH] + more for at, more in enumerate(added, len(rows) + DONE)]
        number = self._first + len(rows) // WIDTH
        age_ms = snapshot.age_ms()
        rows.extend(
            (
                snapshot.time_ms,
                snapshot.depth,
                snapshot.scheduled,
                snapshot.ready,
                snapshot.in_flight,
                snapshot.consumers,
                snapshot.usable_credit,
                snapshot.credit,
                UNKNOWN if age_ms is None else age_ms,
                fell,
                restarted,
                *done,
                *grown,
            )
        )
        if snapshot.is_caught_up(self._thresholds):
            self._caught_up = number
        if growth.is_progress:
            self._progressed = number
        if snapshot.consumers > 0:
            self._consumed = number
        self._last = snapshot
        self._forget(snapshot.time_ms)

    def repeat(self, time_ms: int) -> None:
        """A poll has shown what the poll before did, and nothing waits: as `add` with that snapshot at another time."""
        rows = self._rows
        row = rows[-WIDTH:]
        row[TIME], row[FELL], row[RESTARTED] = time_ms, False, False
        self._caught_up = self._first + len(rows) // WIDTH
        if row[CONSUMERS] > 0:
            self._consumed = self._caught_up
        rows.extend(row)
        self._forget(time_ms)

    @property
    def snapshots(self) -> int:
        """How many the window has."""
        return len(self._rows) // WIDTH

    @property
    def observed_ms(self) -> int:
        """When the last snapshot was made; there must have been one."""
        return self._rows[-WIDTH + TIME]

    @property
    def is_still(self) -> bool:
        """In all snapshots of the window nothing waited, and nothing grew since the first, or since it was made."""
        rows = self._rows
        grown = rows[-len(TOTALS) :]
        began = array("q", bytes(8 * len(TOTALS))) if self._begins_empty else rows[GROWN:WIDTH]
        return grown == began and not any(rows[DEPTH::WIDTH])

    @property
    def _begins_empty(self) -> bool:
        return self._is_born and self._first == 0

    def _forget_all(self) -> None:
        """Begin anew: a queue was deleted, and another one made under its name."""
        del self._rows[:]
        self._first = 0
        self._caught_up = self._progressed = self._consumed = UNKNOWN

    def _forget(self, time_ms: int) -> None:
        """Forget the rows that are older than the window at this time."""
        rows = self._rows
        old = 0
        while rows[old] < time_ms - self._window_ms:
            old += WIDTH
        if old:
            del rows[:old]
            self._first += old // WIDTH

    def figures(self, subject: Subject, coverage: Coverage, percentiles: Percentiles | None = None) -> Figures:
        """The figures at the last snapshot; there must have been one."""
        last, rows = self._last, self._rows
        assert last is not None, "a track begins with a snapshot"
        if last.time_ms != rows[-WIDTH + TIME]:
            last = replace(last, time_ms=rows[-WIDTH + TIME])
        count = len(rows) // WIDTH
        bound_ms = last.time_ms - self._thresholds.recent_ms
        times = rows[TIME::WIDTH]
        recent = next(at for at in range(count) if times[at] >= bound_ms)
        recent = max(min(recent, count - 2), 0)
        caught_up = self._caught_up - self._first
        progressed = self._progressed - self._first
        consumed = self._consumed - self._first
        window = self._span(0, self._born())
        return Figures(
            subject=subject,
            standing=standing_of(last),
            coverage=coverage,
            window=window,
            stretch=self._span(caught_up) if caught_up >= 0 else window,
            recent=self._span(recent) if recent > 0 else window,
            caught_up_ms=rows[caught_up * WIDTH] if caught_up >= 0 else None,
            progressed_ms=rows[max(progressed, 0) * WIDTH],
            consumed_ms=rows[consumed * WIDTH] if consumed >= 0 else None,
            percentiles=percentiles or Percentiles(),
            **self._done(),
        )

    def _done(self) -> _Done:
        """In the window: that until its last snapshot without that until its first, as the growth of a span."""
        rows, last = self._rows, len(self._rows) - WIDTH
        base = [0] * (GROWN - DONE) if self._begins_empty else rows[DONE:GROWN]
        intervals, accepted, consumer_ms, waits, wait_ms, holds, hold_ms = (
            rows[last + at] - before for at, before in enumerate(base, DONE)
        )
        work = Work(intervals=intervals, accepted=accepted, consumer_ms=consumer_ms)
        return {"work": work, "wait": Duration(waits, wait_ms), "hold": Duration(holds, hold_ms)}

    def _born(self) -> Growth:
        """What happened in the window before its first row."""
        born = zip(TOTALS, self._rows[GROWN:WIDTH], strict=True)
        return Growth(**dict(born)) if self._begins_empty else NO_GROWTH

    def _span(self, start: int, born: Growth = NO_GROWTH) -> Span:
        rows, at = self._rows, start * WIDTH
        end = len(rows) - len(TOTALS)
        age_ms = rows[at + AGE]
        base = rows[at + GROWN : at + WIDTH]
        return Span(
            elapsed_ms=max(rows[end - GROWN] - rows[at], 0),
            snapshots=len(rows) // WIDTH - start,
            first_depth=rows[at + DEPTH],
            first_scheduled=rows[at + SCHEDULED],
            first_age_ms=None if age_ms == UNKNOWN else age_ms,
            falls=sum(rows[at + WIDTH + FELL :: WIDTH]),
            restarts=sum(rows[at + WIDTH + RESTARTED :: WIDTH]),
            min_depth=min(rows[at + DEPTH :: WIDTH]),
            min_ready=min(rows[at + READY :: WIDTH]),
            min_in_flight=min(rows[at + IN_FLIGHT :: WIDTH]),
            min_consumers=min(rows[at + CONSUMERS :: WIDTH]),
            min_credit=min(rows[at + USABLE :: WIDTH]),
            max_credit=max(rows[at + CREDIT :: WIDTH]),
            growth=Growth(**{name: rows[end + n] - base[n] for n, name in enumerate(TOTALS)}),
            born=born,
        )
