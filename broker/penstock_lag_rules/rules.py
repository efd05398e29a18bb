"""The state of a subscription: a fixed list of rules over its figures; the first rule that matches decides.

Pure: no Spark, no clock. The rules judge progress, not counts, because a count that is much for one application is
nothing for another; loss is never progress; and what is wrong now is judged since the subscription was last caught up,
so that an hour of health does not hide two minutes of trouble. The order is that of `LagState`.
Source: docs/concepts/lag.md, "States"; docs/decisions/068-lag-rules.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock_api.lag_result import LagState
from penstock_lag_rules.buckets import midpoint_ms
from penstock_lag_rules.figures import Figures, Growth, RepeatedMessage, Standing
from penstock_lag_rules.trend import drain_time, per_minute, trend

__all__ = ["RULES", "LagVerdict", "Thresholds", "judge"]


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


@dataclass(frozen=True, slots=True)
class LagVerdict:
    """A state and one sentence that says why, with figures, without its full stop."""

    state: LagState
    message: str


Rule = Callable[[Figures, Thresholds], str | None]
"""The reason if the rule matches, else None."""


def _losing(f: Figures, t: Thresholds) -> str | None:
    grown = f.recent.growth
    if grown.lost == 0 or grown.lost * 100 < t.loss_percent * (grown.lost + grown.acked):
        return None
    consumers = "no consumer is attached" if f.standing.consumers == 0 else f"{grown.acked} were accepted"
    lost = "1 message was" if grown.lost == 1 else f"{grown.lost} messages were"
    return f"{lost} lost in the last {_s(f.recent.elapsed_ms)} ({_losses(grown)}), and {consumers}; {_backlog(f)}"


def _idle(f: Figures, _: Thresholds) -> str | None:
    grown = f.window.growth
    if grown.enqueued == 0 and grown.delivered == 0 and f.standing.depth == 0:
        return "no message waits, and none arrived or was delivered"
    return None


def _ok(f: Figures, t: Thresholds) -> str | None:
    now = f.standing
    if now.depth - now.scheduled <= t.allowed_messages and now.stranded == 0:
        waits = "no message waits" if now.depth == now.scheduled else _waiting(now.depth - now.scheduled)
        return f"the consumers have caught up; {waits}" + (f"; {now.scheduled} are due later" if now.scheduled else "")
    if now.age_ms is not None and now.age_ms <= t.allowed_age_ms:
        return f"the consumers keep up; {_waiting(now.depth)}, the oldest for {now.age_ms} ms"
    return None


def _unconsumed(f: Figures, t: Thresholds) -> str | None:
    if f.without_consumer_ms > t.stop_after_ms and f.standing.depth > t.allowed_messages:
        return f"no consumer for {_s(f.without_consumer_ms)}; {_backlog(f)}"
    return None


def _broker_stuck(f: Figures, t: Thresholds) -> str | None:
    recent = f.recent
    if recent.elapsed_ms < t.stuck_after_ms or f.standing.usable_consumers == 0:
        return None
    if recent.min_credit > 0 and recent.min_ready > 0 and recent.growth.delivered == 0:
        return (
            f"for {_s(recent.elapsed_ms)} messages were ready and the consumers that may take them gave credit, but "
            f"the broker delivered none: this is a fault of the broker, not of its clients; {_backlog(f)}"
        )
    return None


def _no_credit(f: Figures, t: Thresholds) -> str | None:
    recent = f.recent
    if recent.elapsed_ms < t.stuck_after_ms or recent.growth.acked > 0:
        return None
    if recent.min_consumers > 0 and recent.max_credit == 0 and recent.min_in_flight > 0:
        now = f.standing
        held = "" if now.hold_ms is None else f", the longest for {_s(now.hold_ms)}"
        who = f"{now.consumers} consumers hold" if now.consumers != 1 else "1 consumer holds"
        refuse = (
            "neither accept them nor give credit" if now.consumers != 1 else "neither accepts them nor gives credit"
        )
        return f"{who} {now.in_flight} messages{held}, and {refuse} for more; {_backlog(f)}"
    return None


def _poison(f: Figures, t: Thresholds) -> str | None:
    grown = f.recent.growth
    worst = [each for each in f.standing.repeated if each.delivery_count >= t.poison_deliveries]
    repeats = grown.redelivered * 100 >= grown.delivered * t.poison_percent
    if f.recent.elapsed_ms >= t.stuck_after_ms and grown.delivered > 0 and grown.acked == 0 and repeats:
        return (
            f"{grown.redelivered} of {grown.delivered} deliveries in the last {_s(f.recent.elapsed_ms)} were repeated "
            f"ones and none was accepted{_named(f.standing.repeated)}; {_backlog(f)}"
        )
    if worst:
        others = f"{grown.acked} other messages were accepted in the last {_s(f.recent.elapsed_ms)}"
        return f"the delivery of some messages fails again and again{_named(worst)}; {others}; {_backlog(f)}"
    return None


def _stalled(f: Figures, t: Thresholds) -> str | None:
    now = f.standing
    if now.stranded > 0 and now.stranded == now.depth:
        return f"all {now.depth} messages wait for a dead-letter or expiry destination that does not take them"
    slow_ms = 0 if f.percentiles.hold_p99 is None else 3 * midpoint_ms(f.percentiles.hold_p99)
    # Before it was last caught up there was nothing to accept.
    stalled_ms = min(f.without_progress_ms, f.stretch.elapsed_ms)
    long_enough = stalled_ms >= max(t.stall_after_ms, slow_ms)
    if f.recent.min_consumers > 0 and now.depth > t.allowed_messages and long_enough:
        return f"no message was accepted for {_s(stalled_ms)}, although {_attached(now)}; {_backlog(f)}"
    return None


def _young(f: Figures, t: Thresholds) -> str | None:
    """A backlog that has just begun: no other rule is to judge it by its trend."""
    age_ms = f.standing.age_ms
    if age_ms is not None and age_ms < t.lag_after_ms and f.stretch.elapsed_ms < t.lag_after_ms:
        return f"{_backlog(f)}, which is too short for a judgement"
    return None


def _lagging(f: Figures, t: Thresholds) -> str | None:
    now, stretch = f.standing, f.stretch
    direction = trend(f).direction
    is_aging = (
        stretch.falls == 0
        and now.age_ms is not None
        and stretch.first_age_ms is not None
        and (now.age_ms - stretch.first_age_ms) * 2 >= stretch.elapsed_ms > 0
    )
    if not (direction > 0 or (is_aging and direction == 0)):
        return None
    return f"the consumers fall behind: {_rates(f)}; {_backlog(f)}{_spent(f, t)}"


def _recovering(f: Figures, _: Thresholds) -> str | None:
    drain = drain_time(f)
    if drain is None:
        return None
    found = trend(f)
    before = f.standing.depth - found.change
    fell = f"the backlog fell from {before} to {f.standing.depth} messages in {_s(found.elapsed_ms)}"
    return f"{fell} and will be empty in {drain.low} to {drain.high} s if this goes on; {_backlog(f)}"


RULES: Final[tuple[tuple[LagState, Rule], ...]] = (
    (LagState.LOSING, _losing),
    (LagState.IDLE, _idle),
    (LagState.OK, _ok),
    (LagState.UNCONSUMED, _unconsumed),
    (LagState.BROKER_STUCK, _broker_stuck),
    (LagState.NO_CREDIT, _no_credit),
    (LagState.POISON, _poison),
    (LagState.STALLED, _stalled),
    (LagState.OK, _young),
    (LagState.LAGGING, _lagging),
    (LagState.RECOVERING, _recovering),
)
"""In order, after Unknown and before BacklogSteady, which need no rule of their own."""


def judge(figures: Figures, thresholds: Thresholds, end_ms: int, missing: str | None) -> LagVerdict:
    """The state at the end of the window, `end_ms`.

    `missing`: why the broker of the subscription does not report; None if it does.
    """
    unknown = missing or _unknown(figures, thresholds, end_ms)
    if unknown is not None:
        return LagVerdict(LagState.UNKNOWN, unknown)
    for state, rule in RULES:
        reason = rule(figures, thresholds)
        if reason is not None:
            return LagVerdict(state, reason)
    return LagVerdict(
        LagState.BACKLOG_STEADY,
        f"the backlog neither grows nor shrinks: {_rates(figures)}; {_backlog(figures)}{_spent(figures, thresholds)}",
    )


def _unknown(f: Figures, t: Thresholds, end_ms: int) -> str | None:
    covered = f.coverage
    silent_ms = end_ms - covered.last_poll_ms
    if silent_ms > t.stale_after_ms:
        return f"its broker was last seen {_s(silent_ms)} before the end of the window"
    if covered.clock_steps > 0:
        return _clock_was_set(f)
    expected = covered.elapsed_ms // max(covered.interval_ms, 1) + 1
    if covered.polls * 100 < expected * t.minimum_complete_percent:
        return f"only {covered.polls} of {expected} expected polls of its broker are in the ledger"
    if f.window.snapshots < t.minimum_snapshots:
        few = "is only 1 snapshot" if f.window.snapshots == 1 else f"are only {f.window.snapshots} snapshots"
        return f"there {few} so far; {t.minimum_snapshots} are needed"
    return None


def _clock_was_set(f: Figures) -> str:
    step_ms = f.coverage.clock_step_ms
    if step_ms is None:  # ages may be wrong, too: an earlier release of the observer did not correct them
        waiting = _waiting(f.standing.depth)
        return f"the clock of its broker was set back within the window, so ages and rates are not known; {waiting}"
    how = f"{'forward' if step_ms > 0 else 'back'} by {round(abs(step_ms) / 1000)} s"
    return f"the clock of its broker was set {how} within the window, so rates are not known; {_backlog(f)}"


def _backlog(f: Figures) -> str:
    now = f.standing
    age = "" if now.age_ms is None else f", the oldest for {_s(now.age_ms)}"
    stranded = f"; {now.stranded} of them for a destination that does not take them" if now.stranded else ""
    return f"{_waiting(now.depth)}{age}{stranded}"


def _waiting(messages: int) -> str:
    return "1 message waits" if messages == 1 else f"{messages} messages wait"


def _attached(now: Standing) -> str:
    """How many consumers there are, and how many of them may take the first ready message if that is not all."""
    attached = "1 consumer is attached" if now.consumers == 1 else f"{now.consumers} consumers are attached"
    usable = now.usable_consumers
    if usable is None or now.ready == 0 or usable >= now.consumers:
        return attached
    return f"{attached}, of which {usable or 'none'} may take the first message that is ready"


def _rates(f: Figures) -> str:
    span = f.recent
    come = per_minute(span.growth.enqueued, span.elapsed_ms)
    go = per_minute(span.growth.acked, span.elapsed_ms)
    return f"{come} messages a minute arrive and {go} are accepted"


def _spent(f: Figures, t: Thresholds) -> str:
    """Where messages spend their time: with the consumers, or before."""
    waits, holds = f.wait.mean_ms, f.hold.mean_ms
    if waits is None or holds is None or min(f.wait.count, f.hold.count) < t.minimum_durations:
        return ""
    return f"; on average a message waited {_short(waits)} for a consumer and was held for {_short(holds)}"


def _losses(grown: Growth) -> str:
    parts = (
        (grown.expired, "expired", "expired"),
        (grown.dead_lettered, "became a dead letter", "became dead letters"),
        (grown.dropped, "was dropped", "were dropped"),
        (grown.lost_at_restart, "was lost at a restart of the broker", "were lost at a restart of the broker"),
    )
    return ", ".join(f"{count} {one if count == 1 else many}" for count, one, many in parts if count)


def _named(messages: tuple[RepeatedMessage, ...] | list[RepeatedMessage]) -> str:
    if not messages:
        return ""
    worst = messages[0]
    more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
    return f" ({worst.id} failed {worst.delivery_count} times{more})"


def _short(milliseconds: int) -> str:
    """As exact as it matters."""
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    return f"{milliseconds / 1000:.1f} s" if milliseconds < 10_000 else _s(milliseconds)


def _s(milliseconds: int) -> str:
    return f"{milliseconds // 1000} s"
