"""A lag result as text: one line per subscription. Pure."""

from __future__ import annotations

from penstock_api.result import LagResult, SubscriptionLag

__all__ = ["duration", "lag_table"]

HEAD = ("SUBSCRIPTION", "STATE", "MESSAGES", "READY", "IN-FLIGHT", "OLDEST", "IN/MIN", "OUT/MIN", "CONSUMERS")
LEFT = 2
"""Columns of words; those of figures are flush right."""


def lag_table(result: LagResult) -> str:
    """The result for a terminal: what it is about, a table, and what is missing."""
    rows = [HEAD, *(_row(entry) for entry in result.subscriptions)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = [
        f"run {result.run_name}: {result.window_start:%H:%M:%S} to {result.window_end:%H:%M:%S} UTC, "
        f"{len(result.segments)} segments, {result.reporting_brokers} of {result.expected_brokers} brokers"
    ]
    lines += ["  ".join(_cells(row, widths)).rstrip() for row in rows]
    lines += [f"missing: {sentence}" for sentence in result.missing]
    return "\n".join(lines)


def _cells(row: tuple[str, ...], widths: list[int]) -> list[str]:
    return [
        text.ljust(width) if column < LEFT else text.rjust(width)
        for column, (text, width) in enumerate(zip(row, widths, strict=True))
    ]


def _row(entry: SubscriptionLag) -> tuple[str, ...]:
    name = f"{entry.owner_namespace}/{entry.owner_name}" if entry.owner_name else entry.queue_name
    figures = (entry.messages, entry.ready, entry.in_flight)
    rates = (entry.arrival_per_minute, entry.settled_per_minute, entry.consumers)
    return (name, entry.state.value, *map(_figure, figures), duration(entry.oldest_age_seconds), *map(_figure, rates))


def _figure(value: int | None) -> str:
    return "-" if value is None else str(value)


def duration(seconds: int | None) -> str:
    """Seconds in the two largest units that are not zero, as kubectl writes ages."""
    if seconds is None:
        return "-"
    for unit, size, smaller, small in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= size:
            rest = seconds % size // small
            return f"{seconds // size}{unit}" + (f"{rest}{smaller}" if rest else "")
    return f"{seconds}s"
