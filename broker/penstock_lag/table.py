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
        f"{len(result.segments)} segments, window {result.window_start:%H:%M:%S} to {result.window_end:%H:%M:%S} UTC"
    )
    return for_terminal(lines)


def _row(lag: SubscriptionLag) -> tuple[str, ...]:
    return (
        _name(lag),
        lag.state.value,
        number(lag.messages),
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


def _name(lag: SubscriptionLag) -> str:
    return lag.queue_name if lag.owner_name is None else f"{lag.owner_namespace}/{lag.owner_name}"


def _drain(lag: SubscriptionLag) -> str:
    if lag.drain_seconds_low is None or lag.drain_seconds_high is None:
        return number(lag.drain_seconds, " s")
    return f"{lag.drain_seconds_low}-{lag.drain_seconds_high} s"
