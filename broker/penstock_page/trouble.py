"""How much each state of lag is in trouble: the order of the page, and how a state is shown without relying on colour.

Pure. Source: docs/concepts/lag.md, "States"; docs/reference/observer.md, "The page".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock_api.lag_result import LagState, SlowPart, SubscriptionLag

__all__ = ["SHOWN", "SLOW_PARTS", "Shown", "counts_by_trouble", "sorted_by_trouble"]


@dataclass(frozen=True, slots=True)
class Shown:
    """How a state is shown."""

    severity: str
    """bad, wary, unknown or good: the class of the style sheet, and the word for it."""
    symbol: str
    """One character beside the name of the state, so that colour is not the only difference."""


_BAD: Final = Shown("bad", "✖")
_WARY: Final = Shown("wary", "▲")
_UNKNOWN: Final = Shown("unknown", "?")
_GOOD: Final = Shown("good", "✔")

SHOWN: Final = {
    # What loses messages, then what nobody works on, then what is not known, then what is only slow.
    LagState.LOSING: _BAD,
    LagState.BROKER_STUCK: _BAD,
    LagState.POISON: _BAD,
    LagState.UNCONSUMED: _BAD,
    LagState.NO_CREDIT: _BAD,
    LagState.STALLED: _BAD,
    LagState.UNKNOWN: _UNKNOWN,
    LagState.LAGGING: _WARY,
    LagState.BACKLOG_STEADY: _WARY,
    LagState.RECOVERING: _WARY,
    LagState.OK: _GOOD,
    LagState.IDLE: _GOOD,
}
"""Every state, the worst first."""

SLOW_PARTS: Final = {
    SlowPart.HANDLER: "the handler: messages are held longer than they wait",
    SlowPart.QUEUE: "the queue: messages wait longer than they are held",
    SlowPart.NONE: "neither the queue nor the handler",
}
"""Where the messages spend their time, in words."""

_RANK: Final = {state: rank for rank, state in enumerate(SHOWN)}


def counts_by_trouble(lags: Iterable[SubscriptionLag]) -> dict[LagState, int]:
    """How many subscriptions are in each state, the worst first, without the states that none is in."""
    found = Counter(lag.state for lag in lags)
    return {state: found[state] for state in SHOWN if found[state]}


def sorted_by_trouble(lags: Iterable[SubscriptionLag]) -> list[SubscriptionLag]:
    """The worst state first; within a state the oldest message first, then the largest lag, then by name."""
    return sorted(lags, key=_trouble)


def _trouble(lag: SubscriptionLag) -> tuple[int, int, int, str]:
    return _RANK[lag.state], -(lag.oldest_age_seconds or 0), -(lag.waiting or 0), lag.queue_name
