"""Which rows a run looks at, and which brokers count as missing: decided from the observers' listings alone.

Pure: no clock, no network, no Spark. The same listings, window and as-of give the same plan. Source:
docs/reference/lag-job.md, "The window".
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from penstock_api.ledger_format import SegmentName
from penstock_api.observer_api import SegmentInfo, SegmentList
from penstock_lag_rules.unread_stretches import Unread

__all__ = [
    "AbsentBroker",
    "BrokerWindow",
    "Chosen",
    "Plan",
    "PresentBroker",
    "make_plan",
    "without_damaged",
    "without_unlisted",
]


@dataclass(frozen=True, slots=True)
class PresentBroker:
    """A broker whose observer answered."""

    ordinal: int
    listing: SegmentList


@dataclass(frozen=True, slots=True)
class AbsentBroker:
    """A broker whose observer did not answer, or belongs to another broker."""

    ordinal: int
    reason: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """A segment to read."""

    ordinal: int
    name: str
    first_ms: int = field(default=0, compare=False)
    """Of its rows, as far as they are within the window."""
    last_ms: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class BrokerWindow:
    """The rows of one broker that count, both ends included. A silent broker has its last known window."""

    ordinal: int
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What to read, and what is known to be missing already."""

    start_ms: int
    end_ms: int
    windows: tuple[BrokerWindow, ...]
    segments: tuple[Chosen, ...]
    rows: int
    """The number of rows in those segments, as the observers report it."""
    missing: tuple[tuple[int, str], ...]
    """Ordinal and reason (a sentence without its full stop) of each broker that does not report."""
    gaps: tuple[tuple[int, str], ...] = ()
    """Ordinal and sentence (without its full stop) of each piece that is not read of the ledger of a broker, although
    the broker may report. Totals go on over a gap, so figures over it are exact; what was least or most is not.
    """
    unread: tuple[Unread, ...] = ()
    """When these were, as far as that is known and within the window."""
    bytes: int = 0
    """The size of the segments, as the observers report it."""


def make_plan(
    brokers: Sequence[PresentBroker | AbsentBroker], window_ms: int, stale_ms: int, as_of_ms: int | None, now_ms: int
) -> Plan:
    """Choose window and segments.

    Without ``as_of_ms`` the window ends with the last sealed row of any broker; ``now_ms`` is used only if there is
    no row at all, so that even then the document has a window.
    """
    present = [broker for broker in brokers if isinstance(broker, PresentBroker)]
    of_former_clock: dict[int, list[SegmentInfo]] = {}
    if as_of_ms is None:
        of_former_clock = {broker.ordinal: _of_former_clock(broker.listing.segments) for broker in present}
        present = [_without(broker, of_former_clock[broker.ordinal]) for broker in present]
    ends = [segment.last_ms for broker in present for segment in broker.listing.segments]
    end_ms = as_of_ms if as_of_ms is not None else max(ends, default=now_ms)
    missing = [(broker.ordinal, broker.reason) for broker in brokers if isinstance(broker, AbsentBroker)]
    windows: list[BrokerWindow] = []
    segments: list[Chosen] = []
    gaps: list[tuple[int, str]] = []
    unread: list[Unread] = []
    rows = size = 0
    for broker in present:
        window = _window_of(broker, end_ms, window_ms)
        reason = _silence(broker.listing, window, end_ms, stale_ms, live=as_of_ms is None)
        if reason is not None:
            missing.append((broker.ordinal, reason))
        if window is not None:
            windows.append(window)
            listed = broker.listing.segments
            names = _names(listed)
            chosen, overlaps = _apart(_names(segment for segment in listed if _reaches_into(segment, window)))
            former = [each for each in of_former_clock.get(broker.ordinal, ()) if _reaches_into(each, window)]
            gaps += [(broker.ordinal, _not_read(name)) for name in _names(former)]
            by_name = {segment.name: segment for segment in listed}
            places = [_chosen(by_name[str(name)], window) for name in chosen]
            segments += places
            unread += [
                Unread(broker.ordinal, before.last_ms, after.first_ms)
                for (before, after), (one, next_one) in zip(pairwise(places), pairwise(chosen), strict=True)
                if next_one.first != one.last + 1
            ]
            gone = _gone_before(chosen, names)
            if gone is not None and places[0].first_ms > window.start_ms:
                gaps.append((broker.ordinal, _gap(*gone, names)))
                unread.append(Unread(broker.ordinal, window.start_ms, places[0].first_ms))
            rows += sum(by_name[str(name)].rows for name in chosen)
            size += sum(by_name[str(name)].bytes for name in chosen)
            gaps += [(broker.ordinal, sentence) for sentence in (*overlaps, *_gaps(chosen, names))]
    return Plan(
        start_ms=end_ms - window_ms,
        end_ms=end_ms,
        windows=tuple(sorted(windows, key=lambda window: window.ordinal)),
        segments=tuple(sorted(segments, key=lambda segment: (segment.ordinal, segment.name))),
        rows=rows,
        missing=tuple(sorted(missing)),
        gaps=tuple(sorted(gaps, key=lambda gap: gap[0])),
        unread=tuple(unread),
        bytes=size,
    )


def without_damaged(plan: Plan, damaged: Mapping[Chosen, str]) -> Plan:
    """The plan without some of its segments, and why each is damaged (no full stop)."""
    sentences = [
        (each.ordinal, f"segment {each.name} is not read, because it is damaged: {reason}")
        for each, reason in sorted(damaged.items(), key=lambda found: (found[0].ordinal, found[0].name))
    ]
    return replace(
        plan,
        segments=tuple(each for each in plan.segments if each not in damaged),
        gaps=tuple(sorted((*plan.gaps, *sentences), key=lambda gap: gap[0])),
        unread=(
            *plan.unread,
            *(Unread(each.ordinal, each.first_ms, each.last_ms) for each in plan.segments if each in damaged),
        ),
    )


def without_unlisted(plan: Plan, damaged: Mapping[Chosen, str]) -> Plan:
    """The plan, in which those of the damaged segments are named that may have rows of the window: when their rows are,
    nobody knows, because their footers can't be read, so by their numbers. In: why each is damaged (no full stop).
    """
    near: dict[Chosen, str] = {}
    unread: list[Unread] = []
    for window in plan.windows:
        own = {name: each for each in damaged if each.ordinal == window.ordinal and (name := _parsed(each)) is not None}
        read = [each for each in plan.segments if each.ordinal == window.ordinal]
        names = sorted(name for each in read if (name := _parsed(each)) is not None)
        low, high = (names[0].first, names[-1].last) if names else (0, 0)
        begin_ms = min((each.first_ms for each in read), default=window.start_ms)
        end_ms = max((each.last_ms for each in read), default=window.start_ms)
        is_before = is_after = False
        for name in sorted(own, reverse=True) if begin_ms > window.start_ms else []:
            if name.last == low - 1:
                low, is_before = name.first, True
        for name in sorted(own):
            if name.first == high + 1:
                high, is_after = name.last, True
        near |= {each: damaged[each] for name, each in own.items() if name.first >= low and name.last <= high}
        if is_before:
            unread.append(Unread(window.ordinal, window.start_ms, begin_ms))
        if is_after:
            unread.append(Unread(window.ordinal, end_ms, window.end_ms))
    named = without_damaged(plan, near)
    return replace(named, unread=tuple(dict.fromkeys((*named.unread, *unread))))


def _chosen(segment: SegmentInfo, window: BrokerWindow) -> Chosen:
    first_ms, last_ms = max(segment.first_ms, window.start_ms), min(segment.last_ms, window.end_ms)
    return Chosen(window.ordinal, segment.name, first_ms, last_ms)


def _parsed(chosen: Chosen) -> SegmentName | None:
    return SegmentName.parse(chosen.name)


def _of_former_clock(segments: Sequence[SegmentInfo]) -> list[SegmentInfo]:
    """The segments from before the broker's clock was set back the last time: by the present clock their times are yet
    to come, or come twice.
    """
    last_ms = {segment.name: segment.last_ms for segment in segments}
    ordered, _ = _apart(_names(segments))
    steps = [now for before, now in pairwise(ordered) if last_ms[str(now)] < last_ms[str(before)]]
    former = {str(name) for name in _names(segments) if steps and name.first < steps[-1].first}
    return [segment for segment in segments if segment.name in former]


def _without(broker: PresentBroker, segments: Sequence[SegmentInfo]) -> PresentBroker:
    if not segments:
        return broker
    names = {segment.name for segment in segments}
    left = tuple(segment for segment in broker.listing.segments if segment.name not in names)
    return replace(broker, listing=broker.listing.model_copy(update={"segments": left}))


def _not_read(name: SegmentName) -> str:
    return f"segment {name} is not read, because the broker's clock was set back after it"


def _window_of(broker: PresentBroker, end_ms: int, window_ms: int) -> BrokerWindow | None:
    known = [segment for segment in broker.listing.segments if segment.first_ms <= end_ms]
    if not known:
        return None
    last_ms = min(max(segment.last_ms for segment in known), end_ms)
    return BrokerWindow(broker.ordinal, last_ms - window_ms, last_ms)


def _reaches_into(segment: SegmentInfo, window: BrokerWindow) -> bool:
    return segment.first_ms <= window.end_ms and segment.last_ms >= window.start_ms


def _names(segments: Iterable[SegmentInfo]) -> list[SegmentName]:
    """Each once, in the order of the ledger."""
    names = {SegmentName.parse(segment.name) for segment in segments}
    return sorted(name for name in names if name is not None)


def _apart(segments: Iterable[SegmentName]) -> tuple[list[SegmentName], list[str]]:
    """Segments in the order of the ledger without those that overlap one before, and sentences that name these. A row
    that is read twice would be counted twice. Of a merged one and those in it the merged one counts, as at an observer,
    and nothing is missing then.
    """
    apart: list[SegmentName] = []
    overlaps: list[str] = []
    for segment in sorted(segments, key=lambda name: (name.first, -name.last)):
        if apart and segment.first <= apart[-1].last:
            if segment.last <= apart[-1].last and segment.epoch == apart[-1].epoch:
                continue
            overlaps.append(f"segment {segment} is not read, because it overlaps segment {apart[-1]} of its ledger")
        else:
            apart.append(segment)
    return apart, overlaps


def _gaps(chosen: Sequence[SegmentName], listed: Sequence[SegmentName]) -> list[str]:
    """Sentences that name the rows between the chosen segments. Both lists are in the order of the ledger; the chosen
    ones do not overlap.
    """
    return [
        _gap(before.last + 1, after.first - 1, listed)
        for before, after in pairwise(chosen)
        if after.first != before.last + 1
    ]


def _gone_before(chosen: Sequence[SegmentName], listed: Sequence[SegmentName]) -> tuple[int, int] | None:
    """The first and the last of the rows that are gone between the chosen segments and the one that is listed before
    them; None if there is none, or no row between them. What retention removes has nothing before it.
    """
    before = listed[: bisect_left(listed, chosen[0].first, key=_first)] if chosen else ()
    last = max((each.last for each in before), default=chosen[0].first - 1)  # some may be merged, and still there
    return None if last >= chosen[0].first - 1 else (last + 1, chosen[0].first - 1)


def _gap(first: int, last: int, listed: Sequence[SegmentName]) -> str:
    begin_there = listed[bisect_left(listed, first, key=_first) : bisect_right(listed, last, key=_first)]
    if any(segment.last <= last for segment in begin_there):
        return f"rows {first} to {last} of its ledger are outside of the window, because the broker's clock was set"
    return f"rows {first} to {last} of its ledger are gone"


def _first(name: SegmentName) -> int:
    return name.first


def _silence(
    listing: SegmentList, window: BrokerWindow | None, end_ms: int, stale_ms: int, *, live: bool
) -> str | None:
    """Why a broker does not report, None if it does. Only a live run looks at how the broker is right now."""
    if live and not listing.reachable:
        return listing.problem or "the observer can't reach the broker"
    if window is None:
        return "its ledger has no row up to the end of the window"
    if end_ms - window.end_ms > stale_ms:
        return f"its last row is {_seconds(end_ms - window.end_ms)} older than the end of the window"
    behind_ms = 0 if listing.polled_ms is None else listing.polled_ms - window.end_ms
    if live and behind_ms > stale_ms:
        return f"its ledger is {_seconds(behind_ms)} behind the broker: {listing.problem or 'no segment was sealed'}"
    return None


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds // 1000} s"
