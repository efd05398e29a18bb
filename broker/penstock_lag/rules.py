"""The state of a subscription over a window: a fixed list of rules over figures; the first that matches decides.

Pure: no Spark, no clock. The rules judge progress over the window, not counts, because a count that is much for one
application is nothing for another. The order is that of penstock_api.lag_result.LagState.
Source: docs/concepts/lag.md, "States".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from penstock_api.lag_result import LagState
from penstock_lag_rules.buckets import midpoint_ms

__all__ = ["RULES", "Figures", "LagVerdict", "Thresholds", "judge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The bounds that the rules compare figures with."""

    allowed_messages: int = 0
    """A depth up to this is no backlog."""
    allowed_age_ms: int = 1_000
    """A backlog whose oldest message is no older than this is work in progress."""
    stop_after_ms: int = 60_000
    """A subscription without a consumer for longer than this is Unconsumed. The roll-out of a new version
    takes less.
    """
    stall_after_ms: int = 120_000
    """A subscription is Stalled if no message has left it for longer than this, and for longer than three times the
    99th percentile of hold.
    """
    stale_after_ms: int = 180_000
    minimum_snapshots: int = 3
    minimum_complete_percent: int = 50
    """The share of the expected polls that must be present. Expected is one poll per interval, from the first to the
    last.
    """
    poison_percent: int = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What is known of one subscription over the window; made by penstock_lag.transforms.figures.

    Times and durations are milliseconds. ``new_`` counts inside the window; ``min_`` and ``max_`` are over its
    snapshots.
    """

    ordinal: int
    queue_name: str
    owner_namespace: str | None
    owner_name: str | None
    owner_uid: str | None
    observed_ms: int
    last_poll_ms: int
    elapsed_ms: int
    polls: int
    interval_ms: int
    snapshots: int
    depth: int
    ready: int
    in_flight: int
    scheduled: int
    age_ms: int
    hold_ms: int
    consumers: int
    credit: int
    unused_since_ms: int | None
    max_delivery_count: int
    new_enqueued: int
    new_delivered: int
    new_redelivered: int
    new_acked: int
    new_removed: int
    first_depth: int
    falls: int
    min_depth: int
    min_age_ms: int
    first_age_ms: int
    min_ready: int
    min_in_flight: int
    min_credit: int
    max_credit: int
    min_consumers: int
    consumed_ms: int | None
    progressed_ms: int
    arrival_per_minute: int | None
    settled_per_minute: int | None
    velocity_per_minute: int | None
    drain_seconds: int | None
    completions: int
    sojourn_p50: int | None
    sojourn_p95: int | None
    sojourn_p99: int | None
    hold_p99: int | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Figures:  # Any: what a Spark row holds is known by its schema only
        """From a row with these columns. Raises KeyError for one that is missing."""
        return cls(**{field.name: row[field.name] for field in fields(cls)})

    @property
    def without_consumer_ms(self) -> int:
        """How long there has been no consumer; 0 while there is one. What the broker reports is preferred to the
        samples.
        """
        if self.consumers > 0:
            return 0
        since_ms = self.unused_since_ms
        if since_ms is None:
            since_ms = self.observed_ms - self.elapsed_ms if self.consumed_ms is None else self.consumed_ms
        return max(self.observed_ms - since_ms, 0)

    @property
    def without_progress_ms(self) -> int:
        """How long no message has left the queue, as far as the window shows."""
        return max(self.observed_ms - self.progressed_ms, 0)


@dataclass(frozen=True, slots=True)
class LagVerdict:
    """A state and one sentence that says why, with figures, without its full stop."""

    state: LagState
    message: str


Rule = Callable[[Figures, Thresholds], str | None]
"""The reason if the rule matches, else None."""


def _idle(f: Figures, _: Thresholds) -> str | None:
    if f.new_enqueued == 0 and f.new_delivered == 0 and f.depth == 0:
        return "no message waits, and none came or left"
    return None


def _ok(f: Figures, t: Thresholds) -> str | None:
    if f.min_depth <= t.allowed_messages:
        return f"the backlog fell to {f.min_depth} messages within the window; {f.depth} messages now"
    if f.min_age_ms <= t.allowed_age_ms:
        return f"{f.depth} messages are being processed; the oldest was only {f.min_age_ms} ms old within the window"
    return None


def _unconsumed(f: Figures, t: Thresholds) -> str | None:
    if f.without_consumer_ms > t.stop_after_ms and f.depth > t.allowed_messages:
        return f"no consumer for {_s(f.without_consumer_ms)}; {_backlog(f)}"
    return None


def _broker_stuck(f: Figures, _: Thresholds) -> str | None:
    if f.min_credit > 0 and f.min_ready > 0 and f.new_delivered == 0:
        return (
            f"consumers gave credit and messages were ready all the time, but the broker delivered none for "
            f"{_s(f.elapsed_ms)}: a fault of the broker, not of its clients"
        )
    return None


def _no_credit(f: Figures, _: Thresholds) -> str | None:
    if f.min_consumers > 0 and f.max_credit == 0 and f.min_in_flight > 0 and f.new_acked == 0:
        return (
            f"{f.consumers} consumers hold {f.in_flight} messages, the longest for {_s(f.hold_ms)}, and neither accept "
            f"them nor ask for more; {_backlog(f)}"
        )
    return None


def _poison(f: Figures, t: Thresholds) -> str | None:
    if f.new_delivered > 0 and f.new_acked == 0 and f.new_redelivered * 100 >= f.new_delivered * t.poison_percent:
        return (
            f"{f.new_redelivered} of {f.new_delivered} deliveries were repeated ones and none was accepted; "
            f"the highest delivery count is {f.max_delivery_count}; {_backlog(f)}"
        )
    return None


def _stalled(f: Figures, t: Thresholds) -> str | None:
    slow_ms = 0 if f.hold_p99 is None else 3 * midpoint_ms(f.hold_p99)
    long_enough = f.without_progress_ms >= max(t.stall_after_ms, slow_ms)
    if f.min_consumers > 0 and f.min_depth > t.allowed_messages and long_enough:
        return (
            f"no message has left the queue for {_s(f.without_progress_ms)}, although {f.consumers} consumers are "
            f"attached; {_backlog(f)}"
        )
    return None


def _lagging(f: Figures, _: Thresholds) -> str | None:
    if f.falls == 0 and f.age_ms > f.first_age_ms:
        rates = f"{f.arrival_per_minute} messages come and {f.settled_per_minute} are settled per minute"
        return f"the backlog never fell in {f.snapshots} snapshots; {rates}; {_backlog(f)}"
    return None


def _recovering(f: Figures, t: Thresholds) -> str | None:
    if f.depth < f.first_depth and f.depth > t.allowed_messages:
        drain = "" if f.drain_seconds is None else f", at this rate it is empty in {f.drain_seconds} s"
        return f"the backlog fell from {f.first_depth} to {f.depth} messages{drain}; {_backlog(f)}"
    return None


RULES: Final[tuple[tuple[LagState, Rule], ...]] = (
    (LagState.IDLE, _idle),
    (LagState.OK, _ok),
    (LagState.UNCONSUMED, _unconsumed),
    (LagState.BROKER_STUCK, _broker_stuck),
    (LagState.NO_CREDIT, _no_credit),
    (LagState.POISON, _poison),
    (LagState.STALLED, _stalled),
    (LagState.LAGGING, _lagging),
    (LagState.RECOVERING, _recovering),
)
"""In order, after Unknown and before BacklogSteady, which need no rule of their own."""


def judge(figures: Figures, thresholds: Thresholds, end_ms: int, missing: str | None) -> LagVerdict:
    """The state at the end of the window ``end_ms``; ``missing`` is why its broker does not report, None if it does."""
    unknown = missing or _unknown(figures, thresholds, end_ms)
    if unknown is not None:
        return LagVerdict(LagState.UNKNOWN, unknown)
    for state, rule in RULES:
        reason = rule(figures, thresholds)
        if reason is not None:
            return LagVerdict(state, reason)
    return LagVerdict(LagState.BACKLOG_STEADY, f"the backlog rose and fell, but did not shrink; {_backlog(figures)}")


def _unknown(f: Figures, t: Thresholds, end_ms: int) -> str | None:
    silent_ms = end_ms - f.last_poll_ms
    if silent_ms > t.stale_after_ms:
        return f"its broker was last seen {_s(silent_ms)} before the end of the window"
    expected = f.elapsed_ms // max(f.interval_ms, 1) + 1
    if f.polls * 100 < expected * t.minimum_complete_percent:
        return f"only {f.polls} of {expected} expected polls of its broker are in the ledger"
    if f.snapshots < t.minimum_snapshots:
        return f"there are only {f.snapshots} snapshots so far; {t.minimum_snapshots} are needed"
    return None


def _backlog(f: Figures) -> str:
    return f"{f.depth} messages wait, the oldest for {_s(f.age_ms)}"


def _s(milliseconds: int) -> str:
    return f"{milliseconds // 1000} s"
