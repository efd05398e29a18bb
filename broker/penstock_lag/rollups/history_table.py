"""The history of subscriptions as a table for people."""

from __future__ import annotations

from typing import Final

from penstock_api.lag_history import LagHistory, PeriodHistory, SubscriptionHistory
from penstock_lag.columns import aligned, for_terminal, number

__all__ = ["as_history_table"]

HEAD: Final = (
    *("FROM", "SUBSCRIPTION", "ARRIVED", "ACCEPTED", "LOST", "DEPTH", "MOST", "MEAN", "OLDEST", "P95", "CONSUMERS"),
)
TEXT_COLUMNS: Final = frozenset({0, 1})


def as_history_table(history: LagHistory) -> str:
    """Lines with aligned columns, then what is missing, then a summary; ends with a newline."""
    rows = (_row(period, one) for period in history.periods for one in period.subscriptions)
    lines = aligned([HEAD, *rows], TEXT_COLUMNS)
    for period in history.periods:
        lines += [f"MISSING {period.start:%Y-%m-%d %H:%M}: {sentence}" for sentence in period.missing]
    lines.append(
        f"{history.namespace}/{history.broker}: {history.from_time:%Y-%m-%d %H:%M} to "
        f"{history.to_time:%Y-%m-%d %H:%M} UTC, {len(history.periods)} periods, {len(history.written)} rollups made"
    )
    return for_terminal(lines)


def _row(period: PeriodHistory, one: SubscriptionHistory) -> tuple[str, ...]:
    return (
        f"{period.start:%Y-%m-%d %H:%M}",
        one.queue_name if one.owner_name is None else f"{one.owner_namespace}/{one.owner_name}",
        str(one.arrived),
        str(one.accepted),
        str(one.lost),
        str(one.messages),
        str(one.most_messages),
        number(one.mean_messages),
        number(one.oldest_age_seconds, " s"),
        number(one.sojourn_p95_millis, " ms"),
        f"{one.least_consumers}-{one.most_consumers}",
    )
