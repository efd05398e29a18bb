"""Which rows a run looks at, and which brokers count as missing: decided from the observers' listings alone.

Pure: no clock, no network, no Spark. The same listings, window and as-of give the same plan. Source:
docs/reference/lag-job.md, "The window".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock_api.observer_api import SegmentInfo, SegmentList

__all__ = ["AbsentBroker", "BrokerWindow", "Chosen", "Plan", "PresentBroker", "make_plan"]


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


def make_plan(
    brokers: Sequence[PresentBroker | AbsentBroker], window_ms: int, stale_ms: int, as_of_ms: int | None, now_ms: int
) -> Plan:
    """Choose window and segments.

    Without ``as_of_ms`` the window ends with the last sealed row of any broker; ``now_ms`` is used only if there is
    no row at all, so that even then the document has a window.
    """
    present = [broker for broker in brokers if isinstance(broker, PresentBroker)]
    ends = [segment.last_ms for broker in present for segment in broker.listing.segments]
    end_ms = as_of_ms if as_of_ms is not None else max(ends, default=now_ms)
    missing = [(broker.ordinal, broker.reason) for broker in brokers if isinstance(broker, AbsentBroker)]
    windows: list[BrokerWindow] = []
    segments: list[Chosen] = []
    rows = 0
    for broker in present:
        window = _window_of(broker, end_ms, window_ms)
        reason = _silence(broker.listing, window, end_ms, stale_ms, live=as_of_ms is None)
        if reason is not None:
            missing.append((broker.ordinal, reason))
        if window is not None:
            windows.append(window)
            chosen = _segments_of(broker, window)
            segments += [Chosen(broker.ordinal, segment.name) for segment in chosen]
            rows += sum(segment.rows for segment in chosen)
    return Plan(
        start_ms=end_ms - window_ms,
        end_ms=end_ms,
        windows=tuple(sorted(windows, key=lambda window: window.ordinal)),
        segments=tuple(sorted(segments, key=lambda segment: (segment.ordinal, segment.name))),
        rows=rows,
        missing=tuple(sorted(missing)),
    )


def _window_of(broker: PresentBroker, end_ms: int, window_ms: int) -> BrokerWindow | None:
    known = [segment for segment in broker.listing.segments if segment.first_ms <= end_ms]
    if not known:
        return None
    last_ms = min(max(segment.last_ms for segment in known), end_ms)
    return BrokerWindow(broker.ordinal, last_ms - window_ms, last_ms)


def _segments_of(broker: PresentBroker, window: BrokerWindow) -> list[SegmentInfo]:
    return [
        segment
        for segment in broker.listing.segments
        if segment.first_ms <= window.end_ms and segment.last_ms >= window.start_ms
    ]


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
