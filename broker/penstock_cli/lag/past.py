"""The lag of a past time from ledgers: states at its end by the rules of the live state, and time series of the worst.

Segments are read one at a time, twice: for the states, which need the last minutes, and for the time series. So memory
grows with the number of subscriptions, and not with the length of the time.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from penstock_api.lag_result import SubscriptionLag
from penstock_api.ledger_format import RowKind
from penstock_api.management import Owner
from penstock_api.observer_api import SegmentInfo, SegmentList
from penstock_api.state_documents import BrokerState, DurationHistogram, RepeatedMessage, SubscriptionState
from penstock_cli.progress import Follow, silent
from penstock_lag_rules.entry import unknown
from penstock_lag_rules.sentences import seconds
from penstock_lag_rules.thresholds import Thresholds
from penstock_observer.live_lag import LiveLag
from penstock_observer.rows import Poll
from penstock_page.documents import BrokerPlace, Report
from penstock_page.segment_rows import UnreadableSegment, rows_in, snapshots_in
from penstock_page.text import day_and_clock
from penstock_page.time_series import TimeSeries, TimeSeriesBuilder
from penstock_page.trouble import counts_by_trouble, sorted_by_trouble

__all__ = ["JUDGED_MS", "LISTED", "Ledger", "report"]

JUDGED_MS: Final = 300_000
"""As long as the window of the live state."""
DEFAULT_INTERVAL_MS: Final = 10_000
LISTED: Final = 1000
"""Most subscriptions in the table."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The segments of one observer, and how to get their files."""

    listed: SegmentList
    fetch: Callable[[SegmentInfo], bytes]

    def between(self, begin_ms: int, end_ms: int) -> list[SegmentInfo]:
        """The segments with rows of this time, in the order of the ledger."""
        return [each for each in self.listed.segments if each.last_ms >= begin_ms and each.first_ms <= end_ms]


def report(
    ledgers: Sequence[Ledger],
    begin_ms: int,
    end_ms: int,
    worst: int,
    problems: Sequence[str] = (),
    *,
    follow: Follow = silent,
) -> Report:
    """The report from `begin_ms` to `end_ms`, with plots of the `worst` subscriptions. There is at least one ledger.

    `follow` is told how far it is; it takes minutes if there are thousands of subscriptions.
    """
    told = list(problems)
    found = [(ledger, lag) for ledger in ledgers for lag in _judged(ledger, end_ms, told, follow("judging"))]
    ranked = sorted_by_trouble(lag for _, lag in found)
    chosen = {lag.queue_name for lag in ranked[:worst]}
    time_series: dict[str, TimeSeries] = {}
    for ledger in ledgers:
        names = {lag.queue_name for of, lag in found if of is ledger} & chosen
        if not names:
            continue
        time_series |= _time_series(ledger, names, begin_ms, end_ms, told, follow("reading the courses"))
    first = ledgers[0].listed
    return Report(
        place=BrokerPlace(first.broker, first.namespace, first.ordinal),
        begin_ms=begin_ms,
        end_ms=end_ms,
        lags=ranked[:LISTED],
        total=len(ranked),
        counts=counts_by_trouble(ranked),
        time_series=time_series,
        problems=tuple(dict.fromkeys(told)),
    )


def _judged(
    ledger: Ledger, end_ms: int, told: list[str], done: Callable[[int, int], None]
) -> Iterable[SubscriptionLag]:
    begin_ms = end_ms - JUDGED_MS
    rows: list[Mapping[str, Any]] = []
    holds = _Holds()
    for info in ledger.between(begin_ms, end_ms):
        try:
            read = rows_in(io.BytesIO(ledger.fetch(info)), begin_ms, frozenset({"hold"}))
            rows += [holds.taken_from(row) for row in read if row["time_ms"] <= end_ms]
        except UnreadableSegment as error:
            told.append(f"the segment {info.name} can't be read: {error}")
    # A segment has its rows by subscription; polls are judged in their order.
    rows.sort(key=lambda row: int(row["seq"]))
    live: LiveLag | None = None
    judged = seen_ms = 0
    for _, grouped in groupby(rows, key=lambda row: row["poll"]):
        poll_rows = list(grouped)
        judged += len(poll_rows)
        done(judged, len(rows))
        if poll_rows[-1]["kind"] != RowKind.BROKER.value:
            continue  # the row that closes a poll is lost
        live = live or LiveLag(ledger.listed.ordinal, poll_rows[-1]["interval_ms"], Thresholds(), JUDGED_MS)
        live.observe(_poll(poll_rows, holds))
        seen_ms = poll_rows[-1]["time_ms"]
    if live is None:
        of, minutes = f"{ledger.listed.broker}-{ledger.listed.ordinal}", JUDGED_MS // 60_000
        told.append(
            f"the ledger of {of} has no poll in the {minutes} minutes before {day_and_clock(end_ms)}, so its "
            "subscriptions are missing"
        )
        return ()
    silent_ms = end_ms - seen_ms
    if silent_ms <= Thresholds().stale_after_ms:
        return live.lags()
    why = f"its broker was last seen {seconds(silent_ms)} before the end of this time"
    return [unknown(lag, why) for lag in live.lags()]


class _Holds:
    """The last histogram of the hold of each life: a ledger does not repeat it in every row."""

    def __init__(self) -> None:
        self._last: dict[tuple[object, ...], tuple[int, DurationHistogram]] = {}

    def taken_from(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The row without its histogram, which is kept if no later row has one."""
        indexes, counts = row.get("hold_indexes"), row.get("hold_counts")
        if indexes is None or counts is None:
            return row
        life = _life(row)
        if life not in self._last or self._last[life][0] < row["seq"]:
            told = DurationHistogram.model_construct(indexes=tuple(indexes), counts=tuple(counts), sum_ms=0)
            self._last[life] = row["seq"], told
        return {name: value for name, value in row.items() if not name.startswith("hold_")}

    def of(self, row: Mapping[str, Any]) -> DurationHistogram:
        """That of the life of a row; an empty one if no row has it."""
        found = self._last.get(_life(row))
        return DurationHistogram() if found is None else found[1]


def _life(row: Mapping[str, Any]) -> tuple[object, ...]:
    return row["queue_name"], row["instance"], row["epoch"], row.get("started_ms"), row["incarnation"]


def _time_series(
    ledger: Ledger,
    names: set[str],
    begin_ms: int,
    end_ms: int,
    told: list[str],
    done: Callable[[int, int], None],
) -> dict[str, TimeSeries]:
    builders: dict[str, TimeSeriesBuilder] = {}
    needed = ledger.between(begin_ms, end_ms)
    for number, info in enumerate(needed):
        done(number, len(needed))
        try:
            content = ledger.fetch(info)
            if not builders:
                interval_ms = _interval_ms(content)
                builders = {name: TimeSeriesBuilder(begin_ms, end_ms, interval_ms) for name in names}
            for name, snapshot in snapshots_in(io.BytesIO(content), names):
                builders[name].add(snapshot)
        except UnreadableSegment as error:
            told.append(f"the segment {info.name} can't be read: {error}")
    return {name: builder.time_series() for name, builder in builders.items()}


def _interval_ms(segment: bytes) -> int:
    """Of the polls, as a segment says it."""
    rows = rows_in(io.BytesIO(segment), 0)
    return next((row["interval_ms"] for row in rows if row["kind"] == RowKind.BROKER.value), DEFAULT_INTERVAL_MS)


def _poll(rows: Sequence[Mapping[str, Any]], holds: _Holds) -> Poll:
    closing = rows[-1]
    broker = BrokerState.model_construct(
        instance_id=closing["instance"],
        epoch=closing["epoch"],
        started_ms=closing.get("started_ms") or 0,  # absent or null in a ledger of an earlier release
        now_ms=closing["time_ms"],
    )
    return Poll(
        broker,
        tuple(_state(row, holds.of(row)) for row in rows[:-1]),
        complete=bool(closing["complete"]),
        clock_step_ms=closing.get("clock_step_ms"),
    )


def _state(row: Mapping[str, Any], hold: DurationHistogram) -> SubscriptionState:
    """The state that the row was made of, without what the ledger does not hold. `hold`: as it was last."""
    known = {name: value for name, value in row.items() if value is not None and name in SubscriptionState.model_fields}
    known["repeated"] = _repeated(row.get("repeated"))
    known["hold"] = hold
    if row["owner_name"] is not None:
        names = {key: row[f"owner_{key}"] for key in ("namespace", "name", "uid")}
        known["owner"] = Owner.model_construct(**names)
    return SubscriptionState.model_construct(**known)


def _repeated(text: str | None) -> tuple[RepeatedMessage, ...]:
    """The ledger does not hold the states of the messages."""
    return tuple(
        RepeatedMessage(id=each["id"], delivery_count=each["deliveryCount"], available_ms=each["availableMs"], state="")
        for each in json.loads(text or "[]")
    )
