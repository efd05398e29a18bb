"""Which figures of a subscription hold although a part of its broker's ledger could not be read, and which do not.

Totals are cumulative: over a part that is not read they are exact, as long as the subscription is the same before and
after it. What does not hold is left out of the entry, so that no figure is smaller than the truth. Pure.
Source: docs/reference/lag-job.md, "What holds without a segment".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock_api.lag_result import LagState, SubscriptionLag
from penstock_lag_rules.entry import MESSAGE_LENGTH
from penstock_lag_rules.figures import Figures
from penstock_lag_rules.sentences import backlog, seconds

__all__ = ["Unread", "held_back", "is_whole"]

_LOSSES: Final = ("expired", "dead_lettered", "dropped", "moved", "purged", "lost_at_restart", "lost")
"""Counts of the window."""
_PERCENTILES: Final = (
    *("sojourn_p50_millis", "sojourn_p95_millis", "sojourn_p99_millis"),
    *("mean_wait_millis", "mean_hold_millis", "wait_p95_millis", "hold_p95_millis", "slow_part"),
)
"""Of the messages that were done in the window. A status that is Live takes from a run only such figures and `changes`,
and so could not say that a part of the window is not in them.
"""
_RATES: Final = ("arrival_per_minute", "settled_per_minute", "redelivery_percent")
_OF_STATE: Final = (
    *("drain_seconds", "drain_seconds_low", "drain_seconds_high", "suggested_consumers"),
    *("expiring_soon", "expiry_risk_percent", "capacity_per_minute"),
)
"""What is reckoned with the rates, or with the state."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A part of a broker's ledger of which no row was read: milliseconds of the broker's clock."""

    ordinal: int
    first_ms: int
    last_ms: int


def held_back(entry: SubscriptionLag, f: Figures, unread: Iterable[Unread]) -> SubscriptionLag:
    """The entry of a subscription without the figures that do not hold.

    - A part after its last snapshot takes nothing: the entry is of `observed_time`.
    - A part before its first snapshot: losses and percentiles are of less than the window, so they are left out. Rates
      are of the time since then, also if it was made in that part.
    - A part in between: when it was last caught up may be in it. If its broker restarted in the window, what it did in
      that part before is in no total: then losses, percentiles and rates are left out, and the state is Unknown.
    """
    before, between = _parts(f, unread)
    gone: list[str] = []
    changes: dict[str, Any] = {}
    if before:
        gone += [*_LOSSES, *_PERCENTILES]
    if f.caught_up_ms is not None and any(part.last_ms > f.caught_up_ms for part in between):
        gone.append("since_caught_up_seconds")
    if between and f.lives > 1:
        gone += [*_LOSSES, *_PERCENTILES, *_RATES, *_OF_STATE]
        if entry.state is not LagState.UNKNOWN:
            changes = {"state": LagState.UNKNOWN, "message": _restarted([*before, *between], f)}
    if not gone:
        return entry
    changes.setdefault(
        "message", f"{entry.message}; {_told([*before, *between])} of its time could not be read"[:MESSAGE_LENGTH]
    )
    return entry.model_copy(update={**dict.fromkeys(gone), **changes})


def is_whole(f: Figures, unread: Iterable[Unread]) -> bool:
    """Whether all that a subscription did in the window is in the growth of its totals, so that it can be compared with
    other hours.
    """
    before, between = _parts(f, unread)
    return not before and (not between or f.lives <= 1)


def _parts(f: Figures, unread: Iterable[Unread]) -> tuple[list[Unread], list[Unread]]:
    """Those before the first snapshot of a subscription, and those between its first and its last."""
    last_ms = f.standing.observed_ms
    first_ms = last_ms - f.window.elapsed_ms
    own = [part for part in unread if part.ordinal == f.subject.ordinal and part.first_ms < last_ms]
    return [part for part in own if part.last_ms <= first_ms], [part for part in own if part.last_ms > first_ms]


def _restarted(parts: Sequence[Unread], f: Figures) -> str:
    return (
        f"{_told(parts)} of the window could not be read, and in the window its broker was restarted, so rates are not "
        f"known; {backlog(f)}"
    )[:MESSAGE_LENGTH]


def _told(parts: Sequence[Unread]) -> str:
    return seconds(sum(part.last_ms - part.first_ms for part in parts))
