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
from penstock_lag_rules.figures import Figures
from penstock_lag_rules.sentences import attached, backlog, due, held, losses, named, rates, seconds, spent, waiting
from penstock_lag_rules.thresholds import Thresholds
from penstock_lag_rules.trend import drain_time, trend

__all__ = ["RULES", "LagVerdict", "judge"]


@dataclass(frozen=True, slots=True)
class LagVerdict:
    """A state and one sentence that says why, with figures, without its full stop."""

    state: LagState
    message: str


Rule = Callable[[Figures, Thresholds], str | None]
"""The reason if the rule matches, else None."""


def _losing(f: Figures, t: Thresholds) -> str | None:
    grown = f.recent.counted
    if grown.lost == 0 or grown.lost * 100 < t.loss_percent * (grown.lost + grown.acked):
        return None
    consumers = "no consumer is attached" if f.standing.consumers == 0 else f"{grown.acked} were accepted"
    lost = "1 message was" if grown.lost == 1 else f"{grown.lost} messages were"
    return f"{lost} lost in the last {seconds(f.recent.elapsed_ms)} ({losses(grown)}), and {consumers}; {backlog(f)}"


def _idle(f: Figures, _: Thresholds) -> str | None:
    grown = f.window.counted
    if grown.enqueued == 0 and grown.delivered == 0 and f.standing.depth == 0:
        return "no message waits, and none arrived or was delivered"
    return None


def _ok(f: Figures, t: Thresholds) -> str | None:
    now = f.standing
    if now.waiting <= t.allowed_messages and now.stranded == 0:
        waits = waiting(now.waiting) if now.waiting else "no message waits"
        return f"the consumers have caught up; {waits}{due(now)}"
    if now.age_ms is not None and now.age_ms <= t.allowed_age_ms:
        return f"the consumers keep up; {waiting(now.waiting)}, the oldest for {now.age_ms} ms{due(now)}"
    return None


def _unconsumed(f: Figures, t: Thresholds) -> str | None:
    if f.without_consumer_ms > t.stop_after_ms and f.standing.depth - f.standing.scheduled > t.allowed_messages:
        return f"no consumer for {seconds(f.without_consumer_ms)}; {backlog(f)}"
    return None


def _broker_stuck(f: Figures, t: Thresholds) -> str | None:
    recent = f.recent
    if recent.elapsed_ms < t.stuck_after_ms or f.standing.usable_consumers == 0:
        return None
    if recent.min_credit > 0 and recent.min_ready > 0 and recent.growth.delivered == 0:
        return (
            f"for {seconds(recent.elapsed_ms)} messages were ready and the consumers that may take them gave credit, "
            f"but the broker delivered none: this is a fault of the broker, not of its clients; {backlog(f)}"
        )
    return None


def _no_credit(f: Figures, t: Thresholds) -> str | None:
    recent = f.recent
    # What was delivered was asked for: a consumer of one message at a time shows no credit at any poll.
    if recent.elapsed_ms < t.stuck_after_ms or recent.growth.acked > 0 or recent.growth.delivered > 0:
        return None
    if recent.min_consumers > 0 and recent.max_credit == 0 and recent.min_in_flight > 0:
        now = f.standing
        held = "" if now.hold_ms is None else f", the longest for {seconds(now.hold_ms)}"
        who = f"{now.consumers} consumers hold" if now.consumers != 1 else "1 consumer holds"
        refuse = (
            "neither accept them nor give credit" if now.consumers != 1 else "neither accepts them nor gives credit"
        )
        return f"{who} {now.in_flight} messages{held}, and {refuse} for more; {backlog(f)}"
    return None


def _poison(f: Figures, t: Thresholds) -> str | None:
    grown = f.recent.growth
    worst = [each for each in f.standing.repeated if each.delivery_count >= t.poison_deliveries]
    repeats = grown.redelivered * 100 >= grown.delivered * t.poison_percent
    if f.recent.elapsed_ms >= t.stuck_after_ms and grown.delivered > 0 and grown.acked == 0 and repeats:
        return (
            f"{grown.redelivered} of {grown.delivered} deliveries in the last {seconds(f.recent.elapsed_ms)} were "
            f"repeated ones and none was accepted{named(f.standing.repeated)}; {backlog(f)}"
        )
    if worst:
        others = f"{grown.acked} other messages were accepted in the last {seconds(f.recent.elapsed_ms)}"
        return f"the delivery of some messages fails again and again{named(worst)}; {others}; {backlog(f)}"
    return None


def _stalled(f: Figures, t: Thresholds) -> str | None:
    now = f.standing
    if now.stranded > 0 and now.stranded == now.waiting:
        they = f"all {now.stranded} messages wait"
        return f"{they} for a dead-letter or expiry destination that does not take them{due(now)}"
    hold_p99 = f.percentiles.hold_p99
    slow_ms = 0 if hold_p99 is None or now.in_flight == 0 else 3 * midpoint_ms(hold_p99)
    # Before it was last caught up there was nothing to accept.
    stalled_ms = min(f.without_progress_ms, f.stretch.elapsed_ms)
    # What takes handlers longer than the window is not seen in it, but in the delivery that is out for longest.
    long_enough = stalled_ms >= t.stall_after_ms and max(stalled_ms, now.hold_ms or 0) >= slow_ms
    if f.recent.min_consumers > 0 and now.depth > t.allowed_messages and long_enough:
        return f"no message was accepted for {seconds(stalled_ms)}, although {attached(now)}; {backlog(f)}"
    return None


def _young(f: Figures, t: Thresholds) -> str | None:
    """A backlog that has just begun: no other rule is to judge it by its trend."""
    age_ms = f.standing.age_ms
    if age_ms is not None and age_ms < t.lag_after_ms and f.stretch.elapsed_ms < t.lag_after_ms:
        return f"{backlog(f)}, which is too short for a judgement"
    return None


def _lagging(f: Figures, t: Thresholds) -> str | None:
    now, stretch = f.standing, f.stretch
    direction = trend(f).direction
    is_aging = (
        stretch.falls == stretch.restarts == 0
        and now.age_ms is not None
        and stretch.first_age_ms is not None
        and (now.age_ms - stretch.first_age_ms) * 2 >= stretch.elapsed_ms > 0
    )
    if not (direction > 0 or (is_aging and direction == 0)):
        return None
    return f"the consumers fall behind: {rates(f)}; {backlog(f)}{held(now)}{spent(f, t)}"


def _recovering(f: Figures, _: Thresholds) -> str | None:
    drain = drain_time(f)
    if drain is None:
        return None
    found, now = trend(f), f.standing
    waits = now.depth - now.scheduled
    before = waits + found.fell + found.removed
    fell = f"the backlog fell from {before} to {waits} messages in {seconds(found.elapsed_ms)}"
    if found.removed:
        fell += f" ({found.removed} were not accepted, but lost, moved or purged)"
    if now.consumers == 0:  # what those did that have left says nothing of what comes
        return f"{fell}, but no consumer is attached now; {backlog(f)}"
    return f"{fell} and will be empty in {drain.low} to {drain.high} s if this goes on; {backlog(f)}"


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
    stays = f"{rates(figures)}; {backlog(figures)}{held(figures.standing)}{spent(figures, thresholds)}"
    return LagVerdict(LagState.BACKLOG_STEADY, f"the backlog neither grows nor shrinks: {stays}")


def _unknown(f: Figures, t: Thresholds, end_ms: int) -> str | None:
    covered = f.coverage
    silent_ms = end_ms - covered.last_poll_ms
    if silent_ms > t.stale_after_ms:
        return f"its broker was last seen {seconds(silent_ms)} before the end of the window"
    unseen_ms = end_ms - f.standing.observed_ms
    if unseen_ms > t.stale_after_ms:
        return f"the polls of its broker are there, but it was last in one {seconds(unseen_ms)} before their end"
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
        now = f"{waiting(f.standing.waiting)}{due(f.standing)}"
        return f"the clock of its broker was set back within the window, so ages and rates are not known; {now}"
    how = f"{'forward' if step_ms > 0 else 'back'} by {round(abs(step_ms) / 1000)} s"
    return f"the clock of its broker was set {how} within the window, so rates are not known; {backlog(f)}"
