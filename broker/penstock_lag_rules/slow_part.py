"""Where messages spend their time: waiting for a consumer, or held by one.

Both are means over what ended in the window, so they say nothing of a message that still waits or is still held; its
age does. Pure. Source: docs/concepts/lag.md, "Hold against wait".
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock_api.lag_result import SlowPart
from penstock_lag_rules.figures import Duration
from penstock_lag_rules.thresholds import Thresholds

__all__ = ["Means", "means", "slow_part"]


@dataclass(frozen=True, slots=True)
class Means:
    """Mean durations in milliseconds."""

    wait_ms: int
    hold_ms: int


def means(wait: Duration, hold: Duration, thresholds: Thresholds) -> Means | None:
    """None if too little ended."""
    if wait.mean_ms is None or hold.mean_ms is None or min(wait.count, hold.count) < thresholds.minimum_durations:
        return None
    return Means(wait.mean_ms, hold.mean_ms)


def slow_part(mean: Means, thresholds: Thresholds) -> SlowPart:
    """The one that takes much longer than the other, if it is slow at all."""
    for slow, other, part in (
        (mean.hold_ms, mean.wait_ms, SlowPart.HANDLER),
        (mean.wait_ms, mean.hold_ms, SlowPart.QUEUE),
    ):
        if slow >= thresholds.slow_ms and slow >= thresholds.slow_times * other:
            return part
    return SlowPart.NONE
