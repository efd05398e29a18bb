"""The bounds with which the rules of a state compare figures. Source: docs/concepts/lag.md, "States"."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Thresholds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The bounds with which the rules compare figures."""

    allowed_messages: int = 0
    """A depth up to this is no backlog."""
    allowed_age_ms: int = 1_000
    """A backlog whose oldest message is no older than this is work in progress."""
    recent_ms: int = 60_000
    """How far back the recent span goes."""
    stop_after_ms: int = 60_000
    """A subscription without a consumer for longer is Unconsumed. The roll-out of a new version takes less."""
    stuck_after_ms: int = 45_000
    """How long deliveries must have failed, or must have been missing, before a cause is named. It is less than
    `recent_ms` by one poll and a half: polls are not exactly ten seconds apart, so the recent span may cover a little
    less than five intervals.
    """
    stall_after_ms: int = 120_000
    """A subscription of which no message was accepted for longer than this, and for longer than three times the 99th
    percentile of hold, is Stalled.
    """
    lag_after_ms: int = 60_000
    """A backlog that is younger is not judged by its trend yet."""
    stale_after_ms: int = 180_000
    minimum_snapshots: int = 3
    minimum_complete_percent: int = 50
    """Least share of polls that must be present, of those expected from the interval between first and last."""
    poison_percent: int = 90
    """Least share of repeated deliveries among all, if none is accepted."""
    poison_deliveries: int = 5
    """A message whose delivery failed so often is poison, also while others are accepted."""
    loss_percent: int = 1
    """Least share of lost messages among those that left."""
    slow_ms: int = 100
    """A wait or a hold of less on average is not slow."""
    slow_times: int = 2
    """One of them is the slow part if it takes at least so many times as long as the other."""
    minimum_durations: int = 20
    """Means of fewer would depend on chance."""
    minimum_connected_ms: int = 30_000
    """A consumer that is there for less is not compared with others."""
    minimum_deliveries: int = 20
    """For each consumer on average; fewer differ by chance."""
    busy_interval_ms: int = 90_000
    """Two snapshots that are further apart do not show that the consumers were busy in between."""
    minimum_busy_intervals: int = 3
    minimum_accepted: int = 20
    """Fewer messages say nothing about what a consumer is capable of."""
    drain_objective_ms: int = 600_000
    """So soon the suggested consumers are to have worked off what waits."""
    load_percent: int = 80
    """The suggested consumers are loaded by no more than this."""
    most_times: int = 10
    """No more consumers are suggested than so many times those that there are: what one of a few does says little about
    one of very many, which share a database or a processor.
    """
