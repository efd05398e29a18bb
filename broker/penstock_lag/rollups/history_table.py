"""The history of subscriptions as a table for people."""

from __future__ import annotations

from typing import Final

from penstock_api.lag_history import LagHistory, PeriodHistory, SubscriptionHistory
from penstock_page.text import printable

__all__ = ["as_history_table"]

HEAD: Final = (
    *("FROM", "SUBSCRIPTION", "ARRIVED", "ACCEPTED", "LOST", "LAG", "MOST", "MEAN", "OLDEST", "P95", "CONSUMERS"),
)
TEXTS: Final = 2
ABSENT: Final = "-"


def as_history_table(history: LagHistory) -> str:
    """Lines with aligned columns, then what is missing, then a summary; ends with a newline. No name can control the
    terminal.
    """
    rows = [HEAD, *(_row(period, one) for period in history.periods for one in period.subscriptions)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = ["  ".join(_cell(row, column, width) for column, width in enumerate(widths)).rstrip() for row in rows]
    for period in history.periods:
        lines += [f"MISSING {period.start:%Y-%m-%d %H:%M}: {sentence}" for sentence in period.missing]
    lines.append(
        f"{history.namespace}/{history.broker}: {history.from_time:%Y-%m-%d %H:%M} to "
        f"{history.to_time:%Y-%m-%d %H:%M} UTC, {len(history.periods)} periods, {len(history.written)} rollups made"
    )
    return "\n".join(map(printable, lines)) + "\n"


def _row(period: PeriodHistory, one: SubscriptionHistory) -> tuple[str, ...]:
    return (
        f"{period.start:%Y-%m-%d %H:%M}",
        one.queue_name if one.owner_name is None else f"{one.owner_namespace}/{one.owner_name}",
        str(one.arrived),
        str(one.accepted),
        str(one.lost),
        str(one.messages),
        str(one.most_messages),
        _number(one.mean_messages),
        _number(one.oldest_age_seconds, " s"),
        _number(one.sojourn_p95_millis, " ms"),
        f"{one.least_consumers}-{one.most_consumers}",
    )


def _number(value: int | None, unit: str = "") -> str:
    return ABSENT if value is None else f"{value}{unit}"


def _cell(row: tuple[str, ...], column: int, width: int) -> str:
    return row[column].ljust(width) if column < TEXTS else row[column].rjust(width)
