"""The result of a run as a table for people."""

from __future__ import annotations

from typing import Final

from penstock_api.lag_result import LagResult, SubscriptionLag
from penstock_lag.columns import ABSENT, aligned, for_terminal, number

__all__ = ["as_table"]

HEAD: Final = (
    "SUBSCRIPTION",
    "STATE",
    "LAG",
    "READY",
    "IN-FLIGHT",
    "OLDEST",
    "IN/MIN",
    "OUT/MIN",
    "LOST",
    "EXPIRING",
    "SLOW PART",
    "DRAINED IN",
    "CONSUMERS",
    "SUGGESTED",
    "FAIRNESS",
    "WHY",
)
TEXT_COLUMNS: Final = frozenset({0, 1, len(HEAD) - 1})


def as_table(result: LagResult) -> str:
    """Lines with aligned columns, then the brokers that are missing, then a summary; ends with a newline."""
    lines = aligned([HEAD, *(_row(one) for one in result.subscriptions)], TEXT_COLUMNS)
    lines += [f"CHANGED {_name(one)}: {sentence}" for one in result.subscriptions for sentence in one.changes]
    if not result.subscriptions:
        lines.append("(no subscriptions)")
    lines += [f"MISSING {sentence}" for sentence in result.missing]
    lines.append(
        f"{result.namespace}/{result.broker}: {result.reporting_brokers} of {result.expected_brokers} brokers, "
        f"{len(result.segments)} segments, window {_span(result)} UTC"
    )
    return for_terminal(lines)


def _row(lag: SubscriptionLag) -> tuple[str, ...]:
    return (
        _name(lag),
        lag.state.value,
        number(lag.waiting),
        number(lag.ready),
        number(lag.in_flight),
        number(lag.oldest_age_seconds, " s"),
        number(lag.arrival_per_minute),
        number(lag.settled_per_minute),
        number(lag.lost),
        number(lag.expiring_soon),
        ABSENT if lag.slow_part is None else lag.slow_part.value,
        _drain(lag),
        number(lag.consumers),
        number(lag.suggested_consumers),
        number(lag.fairness_percent, " %"),
        lag.message,
    )


def _span(result: LagResult) -> str:
    """With the day: a ledger may have ended long ago, and a window of a day ends at the time at which it began."""
    start, end = result.window_start, result.window_end
    day = "" if start.date() == end.date() else f"{end:%Y-%m-%d} "
    return f"{start:%Y-%m-%d %H:%M:%S} to {day}{end:%H:%M:%S}"


def _name(lag: SubscriptionLag) -> str:
    return lag.queue_name if lag.owner_name is None else f"{lag.owner_namespace}/{lag.owner_name}"


def _drain(lag: SubscriptionLag) -> str:
    if lag.drain_seconds_low is None or lag.drain_seconds_high is None:
        return number(lag.drain_seconds, " s")
    return f"{lag.drain_seconds_low}-{lag.drain_seconds_high} s"
