"""How messages are divided among consumers: shares, and whether all get as much in the same time.

Pure. Source: Jain's index of fairness, (sum x)^2 / (n * sum x^2), of deliveries per connected time;
docs/concepts/lag.md, "Shares and fairness".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock_api.lag_result import ConsumerShare
from penstock_lag_rules.figures import ConsumerWork
from penstock_lag_rules.thresholds import Thresholds

__all__ = ["MOST_SHARES", "fairness_percent", "shares"]

MOST_SHARES: Final = 8
NAME_LENGTH: Final = 255


def shares(consumers: Sequence[ConsumerWork]) -> tuple[ConsumerShare, ...]:
    """Of those that got most; empty if nobody got anything."""
    total = sum(each.delivered for each in consumers)
    if total == 0:
        return ()
    return tuple(
        ConsumerShare(
            container=each.container[:NAME_LENGTH],
            delivered=each.delivered,
            percent=(each.delivered * 200 + total) // (total * 2),
        )
        for each in consumers[:MOST_SHARES]
    )


def fairness_percent(consumers: Sequence[ConsumerWork], thresholds: Thresholds) -> int | None:
    """100 if all get the same in the same time, 100 / n if one of n gets everything. None if there are fewer than two
    to compare, or too few deliveries to tell. Who has just come is left out.
    """
    compared = [each for each in consumers if each.connected_ms >= thresholds.minimum_connected_ms]
    delivered = sum(each.delivered for each in compared)
    if len(compared) < 2 or delivered < thresholds.minimum_deliveries * len(compared):
        return None
    rates = [each.delivered / each.connected_ms for each in compared]
    return round(100 * sum(rates) ** 2 / (len(rates) * sum(rate**2 for rate in rates)))
