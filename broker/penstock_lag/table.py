"""The result of a run as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock_api.lag_result import LagResult, SubscriptionLag
from penstock_page.text import printable

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
ABSENT: Final = "-"


def as_table(result: LagResult) -> str:
    """Lines with aligned columns, then the brokers that are missing, then a summary; ends with a newline. Names and
    identifiers come from clients; nothing of them can control the terminal.
    """
    rows = [HEAD, *(_row(one) for one in result.subscriptions)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = ["  ".join(_cell(row, column, width) for column, width in enumerate(widths)).rstrip() for row in rows]
    lines += [f"CHANGED {_name(one)}: {sentence}" for one in result.subscriptions for sentence in one.changes]
    if not result.subscriptions:
        lines.append("(no subscriptions)")
    lines += [f"MISSING {sentence}" for sentence in result.missing]
    lines.append(
        f"{result.namespace}/{result.broker}: {result.reporting_brokers} of {result.expected_brokers} brokers, "
        f"{len(result.segments)} segments, window {result.window_start:%H:%M:%S} to {result.window_end:%H:%M:%S} UTC"
    )
    return "\n".join(map(printable, lines)) + "\n"


def _row(lag: SubscriptionLag) -> tuple[str, ...]:
    return (
        _name(lag),
        lag.state.value,
        _number(lag.messages),
        _number(lag.ready),
        _number(lag.in_flight),
        _number(lag.oldest_age_seconds, " s"),
        _number(lag.arrival_per_minute),
        _number(lag.settled_per_minute),
        _number(lag.lost),
        _number(lag.expiring_soon),
        ABSENT if lag.slow_part is None else lag.slow_part.value,
        _drain(lag),
        _number(lag.consumers),
        _number(lag.suggested_consumers),
        _number(lag.fairness_percent, " %"),
        lag.message,
    )


def _name(lag: SubscriptionLag) -> str:
    return lag.queue_name if lag.owner_name is None else f"{lag.owner_namespace}/{lag.owner_name}"


def _drain(lag: SubscriptionLag) -> str:
    if lag.drain_seconds_low is None or lag.drain_seconds_high is None:
        return _number(lag.drain_seconds, " s")
    return f"{lag.drain_seconds_low}-{lag.drain_seconds_high} s"


def _number(value: int | None, unit: str = "") -> str:
    return ABSENT if value is None else f"{value}{unit}"


def _cell(row: Sequence[str], column: int, width: int) -> str:
    return row[column].ljust(width) if column in TEXT_COLUMNS else row[column].rjust(width)
