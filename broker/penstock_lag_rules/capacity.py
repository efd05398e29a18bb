"""What one consumer is capable of, and how many consumers would keep up.

The capacity is measured while every consumer had something to do; that of a consumer which waits for messages is not
known. It is not one divided by the time that a message is held: a client that takes messages ahead holds many at a
time. Pure. Source: docs/concepts/lag.md, "Capacity and suggested consumers"; docs/decisions/073-capacity.md.
"""

from __future__ import annotations

import math
from typing import Final

from penstock_api.lag_result import LagState
from penstock_lag_rules.figures import Figures, Work
from penstock_lag_rules.thresholds import Thresholds
from penstock_lag_rules.trend import DEVIATIONS, became_due, due_later, per_minute

__all__ = ["MORE_DO_NOT_HELP", "WITHOUT_SUGGESTION", "capacity_per_minute", "consumer_cap", "suggested_consumers"]

MORE_DO_NOT_HELP: Final = frozenset({LagState.BROKER_STUCK, LagState.NO_CREDIT, LagState.POISON, LagState.STALLED})
"""States in which another consumer would only hold messages, too."""

WITHOUT_SUGGESTION: Final = MORE_DO_NOT_HELP | {LagState.UNKNOWN, LagState.LOSING}
"""States in which no number of consumers is suggested."""


def capacity_per_minute(work: Work, thresholds: Thresholds) -> int | None:
    """Messages that one consumer accepts a minute; None if there is too little to tell."""
    return per_minute(work.accepted, work.consumer_ms) if _is_enough(work, thresholds) else None


def suggested_consumers(figures: Figures, state: LagState, thresholds: Thresholds) -> int | None:
    """How many consumers would take what arrives and work off what waits within the objective, loaded by no more than
    `load_percent`: at least 1, and the number that there is if it is within the noise. None if the capacity is not
    known, or if more consumers would not help.
    """
    work, now, elapsed_ms = figures.work, figures.standing, figures.window.elapsed_ms
    if state in WITHOUT_SUGGESTION or not _is_enough(work, thresholds) or elapsed_ms <= 0:
        return None
    window = figures.window
    # A message with a delay is work when it is due.
    arrived = window.growth.enqueued + became_due(window, now) - due_later(window, now)
    to_accept = arrived + (now.depth - now.scheduled) * elapsed_ms / thresholds.drain_objective_ms
    one_accepts = work.accepted / work.consumer_ms * elapsed_ms * thresholds.load_percent / 100
    needed = to_accept / one_accepts
    found = math.ceil(needed)
    if needed > 0:
        noise = DEVIATIONS * math.sqrt(1 / work.accepted + arrived / to_accept**2)
        if math.ceil(needed * (1 - noise)) <= now.consumers <= math.ceil(needed * (1 + noise)):
            found = now.consumers
    return min(max(found, 1), thresholds.most_times * max(now.consumers, 1))


def consumer_cap(state: LagState, suggested: int | None, consumers: int, thresholds: Thresholds) -> int:
    """How many consumers an autoscaler may ask for: the suggested ones; those that there are where more would not help;
    if nothing is known, `most_times` those that there are. At least 1.
    """
    if state in MORE_DO_NOT_HELP:
        return max(consumers, 1)
    return thresholds.most_times * max(consumers, 1) if suggested is None else suggested


def _is_enough(work: Work, thresholds: Thresholds) -> bool:
    return work.intervals >= thresholds.minimum_busy_intervals and work.accepted >= thresholds.minimum_accepted
