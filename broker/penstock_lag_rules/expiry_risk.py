"""How many ready messages will expire before a consumer takes them, if consumers go on as now.

Messages are handed out in the order of arrival, so the last of n waits for V = n / pace. Between the first and the
last, what is left of their lives is taken to change evenly, from f to l. The one at the share x of the queue is handed
out after x * V and expires after f + x * (l - f): too early if x * (V - l + f) > f. So the share that expires is
1 - f / (V - l + f), or none if that is not above 0.

Pure. Source: docs/concepts/lag.md, "Expiry risk"; docs/decisions/073-capacity.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock_lag_rules.figures import Figures
from penstock_lag_rules.trend import DEVIATIONS

__all__ = ["ExpiryRisk", "expiry_risk"]


@dataclass(frozen=True, slots=True)
class ExpiryRisk:
    """Both rounded down: at least so many."""

    messages: int
    percent: int
    """Of the ready messages."""


def expiry_risk(figures: Figures) -> ExpiryRisk | None:
    """By the fastest pace that the noise of the recent span allows, so that chance is no risk. None if the broker does
    not say when messages expire, if some never do, or if the recent span has no length.
    """
    now, recent = figures.standing, figures.recent
    if now.expires_in_ms is None or recent.elapsed_ms <= 0:
        return None
    taken = recent.growth.acked + recent.growth.moved + recent.growth.dead_lettered
    fastest = taken + DEVIATIONS * math.sqrt(max(taken, 1))
    until_last_ms = now.ready * recent.elapsed_ms / fastest
    first_ms, last_ms = now.expires_in_ms
    behind_ms = until_last_ms - last_ms + first_ms
    if behind_ms <= first_ms:
        return ExpiryRisk(0, 0)
    share = 1 - first_ms / behind_ms
    return ExpiryRisk(int(share * now.ready), int(share * 100))
