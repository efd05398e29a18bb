"""Which hours and days a run rolls up: decided from the observers' listings and the list of the rollups alone.

Pure: no clock, no network, no Spark. Source: docs/reference/lag-job.md, "Rollups".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock_api.ledger_format import SegmentName
from penstock_api.observer_api import SegmentInfo
from penstock_api.rollup_format import Period, RollupInfo, RollupName
from penstock_lag.ledger.windows import AbsentBroker, BrokerWindow, Plan, PresentBroker, make_plan
from penstock_lag_rules.rollup_retention import is_more
from penstock_lag_rules.rollups import Rollup

__all__ = [
    "Bounds",
    "Brokers",
    "DueHour",
    "Stored",
    "backfilled_hours",
    "due_days",
    "due_hours",
    "hours_between",
    "newest_row_ms",
    "plan_of",
    "shortfalls",
]

Brokers = Sequence[PresentBroker | AbsentBroker]
Stored = Mapping[RollupName, RollupInfo]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one run catches up."""

    hours: int = 2
    rows: int = 4_000_000
    """A run takes a second hour only if both have at most so many rows; the first one is always taken."""


@dataclass(frozen=True, slots=True)
class DueHour:
    """An hour that a run rolls up."""

    name: RollupName
    plan: Plan
    keeps: bool
    """The rollup that is there has rows of other brokers, which stay."""


def due_hours(brokers: Brokers, stored: Stored, grace_ms: int, bounds: Bounds) -> list[DueHour]:
    """The hours to roll up now, the oldest first, because its segments are the first to be deleted.

    An hour is closed when the last row of every broker is later, or when that of one is `grace_ms` later: then the
    others are left out, and the hour is due again when they are back. Hours are those of which there are rows, so a
    clock that is set by days makes none due; hours that are yet to come by the clock as it is now are not closed. Nor
    is an hour due before the oldest that is there: it was there once and had to make room, and would have to again.
    """
    due: list[DueHour] = []
    rows = 0
    found = _Hours(brokers)
    oldest_ms = _oldest_ms(found.newest_ms, stored)
    for name in found.names:
        if len(due) == bounds.hours:
            break
        if name.start_ms < oldest_ms or not found.is_closed(name, grace_ms):
            continue
        have = found.ordinals(name)
        known = stored.get(name)
        lacking = have if known is None else have - set(known.ordinals)
        if not lacking:
            continue
        plan = found.plan_of(name, lacking)
        rows += plan.rows
        if due and rows > bounds.rows:
            break
        due.append(DueHour(name, plan, keeps=known is not None))
    return due


def backfilled_hours(
    brokers: Brokers, stored: Stored, from_ms: int, to_ms: int, grace_ms: int
) -> tuple[list[DueHour], dict[RollupName, str]]:
    """The closed hours of a range to compute again, and those whose rollup stays although the ledger has some of the
    hour, with the reason: the beginning of the hour is no longer in the ledger.
    """
    due: list[DueHour] = []
    kept: dict[RollupName, str] = {}
    found = _Hours(brokers)
    for name in _within(found.names, from_ms, to_ms):
        if not found.is_closed(name, grace_ms):
            continue
        have = found.ordinals(name)
        cut = found.cut(name) & have
        known = stored.get(name)
        if known is not None and cut & set(known.ordinals):
            kept[name] = "it was not computed again, because the ledger has only the end of it"
            have -= set(known.ordinals) & cut
        if have:
            due.append(DueHour(name, found.plan_of(name, have), keeps=known is not None))
    return due, kept


def due_days(
    stored: Stored, newest_ms: int, written: Collection[RollupName] = ()
) -> list[tuple[RollupName, tuple[RollupName, ...]]]:
    """The closed days that are not merged yet, or from fewer hours or brokers than there are now, with their hours; and
    those with an hour that this run has written.
    """
    of_day: dict[RollupName, list[RollupName]] = {}
    for name in sorted(stored):
        if name.period is Period.HOUR:
            of_day.setdefault(RollupName.of(Period.DAY, name.start_ms), []).append(name)
    return [
        (day, tuple(hours))
        for day, hours in sorted(of_day.items())
        if day.end_ms <= newest_ms
        and is_more([stored[hour] for hour in hours], stored.get(day), is_written=not set(written).isdisjoint(hours))
    ]


def hours_between(brokers: Brokers, from_ms: int | None, to_ms: int | None) -> list[RollupName]:
    """The hours from which there are segments, within the given ends if there are any, in order."""
    return _within(_Hours(brokers).names, from_ms, to_ms)


def newest_row_ms(broker: PresentBroker) -> int:
    """Time of the last row in the order of the ledger, so by the clock as it is now; 0 if there is none. After a clock
    was set back, other rows have later times: by those, hours would be over that have only begun.
    """
    newest = max(broker.listing.segments, key=lambda segment: _seqs(segment.name), default=None)
    return 0 if newest is None else newest.last_ms


def plan_of(name: RollupName, brokers: Brokers, ordinals: Iterable[int]) -> Plan:
    """What to read for an hour of some brokers. Its windows are the hour."""
    return _Hours(brokers).plan_of(name, ordinals)


def shortfalls(name: RollupName, plan: Plan, rollup: Rollup, broker: str) -> tuple[str, ...]:
    """Sentences that name what of the hour is not in its rollup."""
    sentences = [f"{broker}-{ordinal}: {reason}" for ordinal, reason in (*plan.missing, *plan.gaps)]
    for ordinal in sorted({run.ordinal for run in rollup.runs}):
        covered_ms = sum(run.snapshots * run.interval_ms for run in rollup.runs if run.ordinal == ordinal)
        if covered_ms * 100 < name.period.milliseconds * COVERED_PERCENT:
            minutes = name.period.milliseconds // 60_000
            sentences.append(f"{broker}-{ordinal}: its polls cover {covered_ms // 60_000} of {minutes} minutes")
        if any(run.clock_steps for run in rollup.runs if run.ordinal == ordinal):
            sentences.append(f"{broker}-{ordinal}: its clock was set, so how long anything took is not known")
    return tuple(sentence[:1024] for sentence in sentences)


COVERED_PERCENT: Final = 90
"""Polls that cover less of an hour are named."""
_NEVER_STALE_MS: Final = 2**62


class _Hours:
    """The segments of some brokers by the hours of which they have rows. Each segment is looked at once: a ledger of a
    year has thousands of them, and as many hours.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._newest = [newest_row_ms(broker) for broker in _present(brokers)]
        self._oldest = {each.ordinal: _oldest_segment(each) for each in _present(brokers) if each.listing.segments}
        self._places: dict[RollupName, list[tuple[int, SegmentInfo]]] = {}
        self._long: list[tuple[int, SegmentInfo]] = []
        """Those with rows of more than two hours, which no observer writes."""
        for broker in _present(brokers):
            for segment in broker.listing.segments:
                ends = [RollupName.of(Period.HOUR, at_ms) for at_ms in (segment.first_ms, segment.last_ms)]
                for name in dict.fromkeys(ends):
                    self._places.setdefault(name, []).append((broker.ordinal, segment))
                if ends[0].end_ms < ends[1].start_ms:
                    self._long.append((broker.ordinal, segment))
        self.names: Final = sorted(self._places)

    @property
    def newest_ms(self) -> int:
        """Time of the last row of any broker, by the clock as it is now; 0 if there is none."""
        return max(self._newest, default=0)

    def is_closed(self, name: RollupName, grace_ms: int) -> bool:
        """Whether all brokers have later rows, or one has rows that are so much later."""
        if len(self._newest) == len(self._brokers) and all(last_ms >= name.end_ms for last_ms in self._newest):
            return True
        return self.newest_ms >= name.end_ms + grace_ms

    def ordinals(self, name: RollupName) -> set[int]:
        """Of the brokers that have rows of this hour."""
        return {ordinal for ordinal, _ in self._of(name)}

    def cut(self, name: RollupName) -> set[int]:
        """Of the brokers whose ledger begins within the hour, so that older segments may be gone. Rows are numbered
        from 1.
        """
        return {
            ordinal
            for ordinal, first in self._oldest.items()
            if first.first_ms >= name.start_ms and _first_seq(first.name) > 1
        }

    def plan_of(self, name: RollupName, ordinals: Iterable[int]) -> Plan:
        """What to read for an hour of some brokers."""
        wanted = set(ordinals)
        own: dict[int, list[SegmentInfo]] = {}
        for ordinal, segment in self._of(name):
            own.setdefault(ordinal, []).append(segment)
        last_ms = name.end_ms - 1
        plan = make_plan(
            [
                _only(broker, own.get(broker.ordinal, ())) if isinstance(broker, PresentBroker) else broker
                for broker in self._brokers
                if broker.ordinal in wanted or isinstance(broker, AbsentBroker)
            ],
            name.period.milliseconds - 1,
            _NEVER_STALE_MS,
            last_ms,
            last_ms,
        )
        windows = tuple(BrokerWindow(each.ordinal, name.start_ms, last_ms) for each in plan.windows)
        return replace(plan, windows=windows)

    def _of(self, name: RollupName) -> list[tuple[int, SegmentInfo]]:
        through = [place for place in self._long if _goes_through(place[1], name)]
        return [*self._places.get(name, ()), *through]


def _goes_through(segment: SegmentInfo, name: RollupName) -> bool:
    """Its first and its last row are of other hours, one before and one after."""
    return segment.first_ms < name.start_ms and segment.last_ms >= name.end_ms


def _within(names: Iterable[RollupName], from_ms: int | None, to_ms: int | None) -> list[RollupName]:
    return [
        name
        for name in names
        if (from_ms is None or name.end_ms > from_ms) and (to_ms is None or name.start_ms < to_ms)
    ]


def _oldest_ms(now_ms: int, stored: Stored) -> int:
    """Start of the oldest hour that is there, of those that are over by the clock as it is now; 0 if there is none."""
    over = [name.start_ms for name in stored if name.period is Period.HOUR and name.end_ms <= now_ms]
    return min(over, default=0)


def _oldest_segment(broker: PresentBroker) -> SegmentInfo:
    return min(broker.listing.segments, key=lambda segment: _first_seq(segment.name))


def _first_seq(name: str) -> int:
    parsed = SegmentName.parse(name)
    return 0 if parsed is None else parsed.first


def _seqs(name: str) -> tuple[int, int]:
    """The first and the last row: a merged segment may be beside the first of those that are in it."""
    parsed = SegmentName.parse(name)
    return (0, 0) if parsed is None else (parsed.first, parsed.last)


def _only(broker: PresentBroker, segments: Iterable[SegmentInfo]) -> PresentBroker:
    return PresentBroker(broker.ordinal, broker.listing.model_copy(update={"segments": tuple(segments)}))


def _present(brokers: Brokers) -> list[PresentBroker]:
    return [broker for broker in brokers if isinstance(broker, PresentBroker)]
