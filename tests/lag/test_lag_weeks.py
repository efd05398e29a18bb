"""The core of the lag job over many runs: no figure is wrong without a mark, and no run costs more than another.

Spark is left out: what it finds is made by the plain definitions, with which other tests compare it. All that decides
what is read, merged, left out and told is the job's own. The truth is that of weeks_of_ledger. A run comes every ten
minutes; `PENSTOCK_LAG_RUNS=1000` makes a week of them.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest
from lag.naive_figures import naive_figures
from lag.weeks_of_ledger import MINUTE_MS, Moment, Weeks

from penstock_api.lag_result import LagResult, PaceLag, SubscriptionLag
from penstock_api.rollup_format import RollupInfo, RollupName
from penstock_lag.figures.polls import polls_of
from penstock_lag.ledger.windows import Plan, PresentBroker, make_plan, without_damaged
from penstock_lag.result_document import Run, make_result
from penstock_lag.rollups.files import read_about
from penstock_lag.rollups.past_hours import PastHours, read_past
from penstock_lag.rollups.past_result import with_past
from penstock_lag.rollups.plan import Bounds, due_hours, newest_row_ms
from penstock_lag.rollups.run import RollupPlace, keep_days, keep_hour
from penstock_lag_rules.figures import TOTALS, Figures, Growth, Percentiles
from penstock_lag_rules.rollup_retention import past_retention
from penstock_lag_rules.rollups import BrokerRow, LifeRow, Rollup, merged
from penstock_lag_rules.thresholds import Thresholds

HOUR_MS: Final = 60 * MINUTE_MS
WINDOW_MS: Final = 15 * MINUTE_MS
MINUTES_BETWEEN_RUNS: Final = 10
RUNS: Final = int(os.environ.get("PENSTOCK_LAG_RUNS", "100"))
PACES_EVERY: Final = 6
"""Runs: rollups change once an hour, and reading them is most of what a run costs."""
STALE_MS: Final = 600_000
LOSSES: Final = ("expired", "dead_lettered", "dropped", "moved", "purged", "lost_at_restart", "lost")
Row = Mapping[str, Any]


@dataclass
class CountedRollups:
    """Rollups in memory, as an observer keeps them, and how often they were read and written."""

    files: dict[RollupName, bytes] = field(default_factory=dict[RollupName, bytes])
    infos: dict[RollupName, RollupInfo] = field(default_factory=dict[RollupName, RollupInfo])
    reads: int = 0
    writes: int = 0

    def stored(self) -> dict[RollupName, RollupInfo]:
        return dict(self.infos)

    def get(self, name: RollupName) -> bytes:
        self.reads += 1
        return self.files[name]

    def put(self, name: RollupName, content: bytes) -> None:
        self.writes += 1
        about = read_about(content)
        self.files[name] = content
        self.infos[name] = RollupInfo(
            name=str(name),
            bytes=len(content),
            rows=1,
            ordinals=about.ordinals,
            hours=about.hours,
            clock_set=about.clock_set,
        )

    def outlive(self, now_ms: int) -> None:
        for name in past_retention(self.files, now_ms):
            del self.files[name], self.infos[name]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run did."""

    segments: int
    rows: int
    reads: int
    writes: int
    kept: int
    """Rollups that are there."""


@dataclass
class Job:
    """Runs over one ledger."""

    weeks: Weeks
    store: CountedRollups = field(default_factory=CountedRollups)
    costs: list[Cost] = field(default_factory=list[Cost])

    def run(self) -> tuple[LagResult, Plan]:
        """The result, with what was read for it; then what is due of the rollups."""
        reads, writes = self.store.reads, self.store.writes
        broker = PresentBroker(0, self.weeks.listing())
        plan = self._readable(make_plan([broker], WINDOW_MS, STALE_MS, None, self.weeks.clock_ms))
        figures = self._figures(plan)
        result = make_result(Run("main", "shop", "r", 1), plan, figures, Thresholds())
        past = read_past(self.store, plan.end_ms) if len(self.costs) % PACES_EVERY == 0 else PastHours()
        told = with_past(result, figures, past, plan.unread)
        rows = plan.rows + self._roll_up(broker)
        self.store.outlive(self.weeks.clock_ms)
        self.costs.append(
            Cost(
                len(plan.segments),
                rows,
                self.store.reads - reads,
                self.store.writes - writes,
                len(self.store.files),
            )
        )
        return told, plan

    def _readable(self, plan: Plan) -> Plan:
        bad = {chosen: "a bit is flipped" for chosen in plan.segments if chosen.name in self.weeks.damaged}
        return without_damaged(plan, bad)

    def _rows(self, plan: Plan) -> list[Row]:
        (window,) = plan.windows or (None,)
        rows = self.weeks.rows_of(chosen.name for chosen in plan.segments)
        return [] if window is None else [row for row in rows if window.start_ms <= row["time_ms"] <= window.end_ms]

    def _figures(self, plan: Plan) -> list[Figures]:
        rows = self._rows(plan)
        if not rows:
            return []
        polls = polls_of([row for row in rows if row["kind"] == "broker"])
        found = naive_figures(rows, Thresholds())
        return [
            replace(
                one,
                coverage=polls[0].coverage,
                lives=lives,
                percentiles=Percentiles(completions=one.window.growth.acked, sojourn_p95=9),
            )
            for one, lives in found.values()
        ]

    def _roll_up(self, broker: PresentBroker) -> int:
        place = RollupPlace("main", "shop", self.store)
        stored = self.store.stored()
        rows = 0
        written: list[RollupName] = []
        for hour in due_hours([broker], stored, STALE_MS, Bounds()):
            plan = self._readable(hour.plan)
            rows += plan.rows
            stored[hour.name] = keep_hour(place, replace(hour, plan=plan), _rollup(self._rows(plan)))
            written.append(hour.name)
        keep_days(place, stored, newest_row_ms(broker), written)
        return rows


def alike(names: Iterable[str], value: int) -> dict[str, Any]:
    return dict.fromkeys(names, value)


def _rollup(rows: Iterable[Row]) -> Rollup:
    """Each row is a period of its own: hours are merged from them as days are from hours."""
    runs: list[BrokerRow] = []
    lives: list[LifeRow] = []
    for row in rows:
        common: dict[str, Any] = {
            **{name: row[name] for name in ("ordinal", "instance", "epoch", "started_ms")},
            "first_seq": row["seq"],
            "last_seq": row["seq"],
            "first_ms": row["time_ms"],
            "last_ms": row["time_ms"],
            "snapshots": 1,
        }
        if row["kind"] == "broker":
            complete = row["seq"] if row["complete"] else None
            steps = int(bool(row["clock_step_ms"]))
            told: dict[str, Any] = {"interval_ms": row["interval_ms"], "clock_steps": steps}
            runs.append(BrokerRow(**common, **told, first_complete_seq=complete))
            continue
        totals = Growth(**{total: row[total] for total in TOTALS})
        since = row["oldest_available_ms"]
        buckets = {"sojourn": ((8, row["acked"]),)}
        lives.append(
            LifeRow(
                **common,
                queue_name=row["queue_name"],
                incarnation=row["incarnation"],
                **alike(("first_depth", "last_depth", "min_depth", "max_depth"), row["depth"]),
                depth_area=0,
                max_age_ms=None if since is None else max(row["time_ms"] - since, 0),
                **alike(("min_consumers", "max_consumers", "last_consumers"), row["consumers"]),
                first=totals,
                last=totals,
                first_buckets=buckets,
                last_buckets=buckets,
            )
        )
    return merged([Rollup(tuple(runs), tuple(lives))])


# -- the truth ------------------------------------------------------------------------------------------------------


def since(first: Moment, last: Moment, name: str, *, was_absent: bool) -> dict[str, int]:
    """What a subscription did from one poll to another; from the beginning of its life, if it was absent before."""
    base = (first.born if was_absent else first.done)[name]
    return {total: last.done[name][total] - base[total] for total in TOTALS}


def lost(grown: Mapping[str, int]) -> int:
    return sum(grown[name] for name in ("expired", "dead_lettered", "dropped", "lost_at_restart"))


def moments_of(weeks: Weeks, plan: Plan, read: set[int]) -> list[Moment]:
    """The polls of the window that were sealed, also those that can't be read: of the last course of the clock, or, if
    it was set back by less than a segment, of the one before.
    """
    (window,) = plan.windows
    sealed = [each for each in weeks.moments[-40:] if each.seq < weeks.next_seq]
    return [
        each
        for each in sealed
        if window.start_ms <= each.clock_ms <= window.end_ms and (each.course == sealed[-1].course or each.seq in read)
    ]


def wrong_in_window(weeks: Weeks, entry: SubscriptionLag, inside: list[Moment], read: set[int]) -> list[str]:
    """Figures that differ from what happened in the window since the queue was made, as far as the entry is of its end.
    Rates are those from its first snapshot on.
    """
    name = entry.queue_name
    have = [each for each in inside if name in each.has]
    if not have or have[-1].seq not in read:
        return []
    have = [each for each in have if each.incarnations[name] == have[-1].incarnations[name]]
    first, last = have[0], have[-1]
    was_absent = inside[0] is not first
    truth = since(first, last, name, was_absent=was_absent)
    wrong = [
        f"{figure} {told} instead of {true}"
        for figure in LOSSES
        for told, true in ((getattr(entry, figure), lost(truth) if figure == "lost" else truth[figure]),)
        if told not in (None, true)
    ]
    seen = [each for each in have if each.seq in read]
    truth = since(seen[0], last, name, was_absent=False)
    minutes = (last.true_ms - seen[0].true_ms) / MINUTE_MS
    rate = entry.arrival_per_minute
    if rate is not None and minutes > 0 and abs(rate - truth["enqueued"] / minutes) > 1:
        wrong.append(f"arrivals {rate} instead of {truth['enqueued'] / minutes}")
    return wrong


def wrong_pace(weeks: Weeks, name: str, pace: PaceLag) -> list[str]:
    """A pace is of a time that ended in its last hour and lasted so long, without the minutes in which the broker was
    down. A clock that was set back may show that hour twice: the pace is of one of them.
    """
    end_ms = int(pace.end.timestamp() * 1000)
    known = [each for each in weeks.moments[-3000:] if name in each.has and each.seq < weeks.next_seq]
    ends = [each for each in known if end_ms - HOUR_MS <= each.clock_ms < end_ms]
    assert ends, "there was a poll in that hour"
    for course in {each.course for each in ends}:
        if _is_right(known, [each for each in ends if each.course == course], name, pace):
            return []
    return [f"no time has {pace.arrival_per_minute} arrivals a minute and {pace.lost} lost in {pace.seconds} s"]


def _is_right(known: Sequence[Moment], ends: Sequence[Moment], name: str, pace: PaceLag) -> bool:
    """Whether the pace is that of a time which ended at one of these polls."""
    begin_ms = ends[-1].true_ms - pace.seconds * 1000
    at = bisect_left(known, begin_ms - HOUR_MS, key=lambda each: each.true_ms)
    for last in ends[-12:]:
        until = bisect_left(known, last.true_ms - pace.seconds * 1000 + MINUTE_MS, key=lambda each: each.true_ms)
        for first in known[at:until]:
            for was_absent in (False, True):
                truth = since(first, last, name, was_absent=was_absent)
                rate = truth["enqueued"] * 60 / pace.seconds
                if abs(rate - pace.arrival_per_minute) <= 2 and lost(truth) == pace.lost:
                    return True
    return False


@pytest.mark.parametrize(("seed", "calm"), [(3, True), (2, False)], ids=["steady clock", "clock that is set"])
def test_no_figure_is_wrong_and_no_run_costs_more_than_those_before(seed: int, calm: bool) -> None:
    """Subscriptions are deleted and made anew, the broker restarts and gets new volumes, segments are damaged and gone,
    and the job is away for hours.
    """
    weeks = Weeks(seed, calm=calm)
    job = Job(weeks)
    wrong: list[str] = []
    away = figures = 0
    for number in range(RUNS):
        for _ in range(MINUTES_BETWEEN_RUNS):
            weeks.step()
        away = away - 1 if away else (30 if weeks.random.randrange(300) == 0 else 0)
        if away:
            continue
        told, plan = job.run()
        read = {row["poll"] for row in weeks.rows_of(chosen.name for chosen in plan.segments)}
        inside = moments_of(weeks, plan, read)
        for entry in told.subscriptions:
            found = wrong_in_window(weeks, entry, inside, read)
            for pace in (entry.past_hour, entry.past_day):
                found += [] if pace is None else wrong_pace(weeks, entry.queue_name, pace)
                figures += pace is not None
            figures += entry.arrival_per_minute is not None
            wrong += [f"run {number}, {entry.queue_name}, {entry.state}: {each} {told.missing}" for each in found]
    assert wrong == []
    assert figures > RUNS  # most are told
    most = {name: max(getattr(cost, name) for cost in job.costs) for name in Cost.__slots__}
    assert most["segments"] <= 8  # 15 minutes, in segments of five
    assert most["rows"] <= 4 * (2 * 60 + 20)  # of two hours and the segments of a window, for three subscriptions
    assert most["reads"] <= 2 + 4 + 2 * 24 + 2  # paces, and the hours of two days
    assert most["writes"] <= 2 + 2
    assert most["kept"] <= 7 * 24 + 400
