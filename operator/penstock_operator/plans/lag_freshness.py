"""Whether what a Subscription shows about its lag is current: condition LagFresh, and what is shown when it is not.

It is judged in every round by the operator's own clock, whether or not the observer answers: from the newest result,
or, if this operator has not seen one, from the time that the status shows. Figures that are too old stay, with their
time; their state becomes Unknown, because OK would be a claim about the present. Pure. Source:
docs/decisions/067-freshness-of-lag.md, docs/reference/operator.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from penstock_api.lag_result import LagResult, LagState, SubscriptionLag
from penstock_api.resources import Condition, Lag, LagAnalysis, Subscription
from penstock_operator.plans.conditions import FRESH, LAGGING, ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.lag_status import is_noticeable, lag_status, lagging_condition
from penstock_operator.plans.observer_contact import ObserverContact

__all__ = ["BrokerLag", "LagVerdict", "is_worth_writing", "judge"]

_STALE_PERIODS: Final = 3
"""A lag is stale after this number of intervals of the schedule."""
_MAX_CHARACTERS: Final = 1024
_PODS_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLag:
    """What is known about the lag of one Broker's Subscriptions."""

    broker: str
    """Name of the Broker."""
    analysis: LagAnalysis = field(default_factory=LagAnalysis)
    """Its schedule."""
    contact: ObserverContact = field(default_factory=ObserverContact)
    """What asking its observer has come to."""
    result: LagResult | None = None
    """The newest result that this operator has seen."""
    first_seen: datetime | None = None
    """When it saw it first."""

    def reported_at(self) -> datetime | None:
        """The time of the newest result: the end of its window by the broker's clock, but no later than it was seen,
        so that a clock that is ahead does not make old figures look new.
        """
        if self.result is None or self.first_seen is None:
            return None
        return min(self.result.window_end, self.first_seen)

    def is_stale(self, moment: datetime, now: datetime) -> bool:
        """Whether what was so at `moment` says nothing about the present."""
        return now - moment >= timedelta(minutes=_STALE_PERIODS * self.analysis.interval_minutes)


@dataclass(frozen=True, slots=True)
class LagVerdict:
    """What the status of a Subscription has to say about its lag."""

    lag: Lag | None
    """`status.lag`; None if nothing was ever known."""
    conditions: tuple[StatusCondition, ...]
    """LagFresh, and Lagging if there is a lag."""


def judge(
    subscription: Subscription, entry: SubscriptionLag | None, known: BrokerLag, now: datetime
) -> LagVerdict | None:
    """What the status has to say; None if it stays as it is.

    `entry`: that of the Subscription in the newest result, None if there is none.
    """
    shown = subscription.status.lag
    if known.result is None and not known.contact.has_answered and not known.contact.is_unreachable(now):
        # The operator has just started. It does not know better than the last one until it has asked for a while.
        return None
    if known.result is not None and entry is not None and not _is_older(entry, known.result, shown):
        return _reported(subscription, entry, known, known.result, now)
    if shown is None:
        return LagVerdict(None, (_nothing_known(known, now),))
    return _not_reported(subscription, shown, entry, known, now)


def is_worth_writing(subscription: Subscription, verdict: LagVerdict) -> bool:
    """Whether a verdict is written: a condition or the state changed, or a figure did noticeably."""
    before = {condition.type: condition for condition in subscription.status.conditions}
    if any(_is_news(before.get(condition.type), condition) for condition in verdict.conditions):
        return True
    return verdict.lag is not None and is_noticeable(subscription.status.lag, verdict.lag)


def _is_news(before: Condition | None, condition: StatusCondition) -> bool:
    if before is None or (before.status, before.reason) != (condition.status.value, str(condition.reason)):
        return True
    # The sentence of Lagging has figures, which change with each result; that of LagFresh is the same for as long as
    # its cause is.
    return condition.type == FRESH and before.message != condition.message


def _is_older(entry: SubscriptionLag, result: LagResult, shown: Lag | None) -> bool:
    """Whether an entry says less than the status: an observer that lost its newest results serves an older one. An
    entry of the state Unknown has the time of its last snapshot, and counts by the end of the window.
    """
    if shown is None:
        return False
    said_at = result.window_end if entry.state is LagState.UNKNOWN else entry.observed_time
    return said_at < shown.observed_time


def _reported(
    subscription: Subscription, entry: SubscriptionLag, known: BrokerLag, result: LagResult, now: datetime
) -> LagVerdict:
    """The verdict if the newest result has the Subscription."""
    shown = subscription.status.lag
    newer = shown is None or entry.observed_time > shown.observed_time
    figures = lag_status(entry, result) if newer or shown is None else shown
    if known.is_stale(known.reported_at() or result.window_end, now):
        return _unknown(figures, _why_stale(figures, known, now))
    if entry.state is not LagState.UNKNOWN:
        current = lag_status(entry, result) if figures.state != entry.state else figures
        return LagVerdict(current, (lagging_condition(subscription, entry), _fresh(ConditionReason.CURRENT, _CURRENT)))
    fresh = StatusCondition(FRESH, ConditionStatus.UNKNOWN, entry.state.value, _CANNOT_TELL)
    if known.is_stale(figures.observed_time, now):
        message = f"The figures are from {_minute(figures.observed_time)}. {_CANNOT_TELL}"
        fresh = _fresh(ConditionReason.LAG_REPORT_STALE, message)
    return LagVerdict(
        figures.model_copy(update={"state": LagState.UNKNOWN.value, "message": entry.message}),
        (lagging_condition(subscription, entry), fresh),
    )


def _not_reported(
    subscription: Subscription, shown: Lag, entry: SubscriptionLag | None, known: BrokerLag, now: datetime
) -> LagVerdict | None:
    """The verdict if there is no newer result about the Subscription than the status shows."""
    reported_at, result = known.reported_at(), known.result
    if known.is_stale(shown.observed_time if reported_at is None else max(reported_at, shown.observed_time), now):
        return _unknown(shown, _why_stale(shown, known, now))
    if result is not None and entry is None and result.window_end > shown.observed_time:
        return _unknown(shown, _missing(shown, result))
    if known.is_stale(shown.observed_time, now):
        return _unknown(shown, _why_stale(shown, known, now))
    before = {condition.type: condition for condition in subscription.status.conditions}
    if FRESH in before:
        return None
    lagging = before.get(LAGGING)
    kept = (
        ()
        if lagging is None
        else (StatusCondition(LAGGING, ConditionStatus(lagging.status), lagging.reason, lagging.message),)
    )
    return LagVerdict(shown, (*kept, _fresh(ConditionReason.CURRENT, _CURRENT)))


def _unknown(figures: Lag, fresh: StatusCondition) -> LagVerdict:
    """The verdict for figures that say nothing about the present: they stay, with their time."""
    return LagVerdict(
        figures.model_copy(update={"state": LagState.UNKNOWN.value, "message": fresh.message[:_MAX_CHARACTERS]}),
        (StatusCondition(LAGGING, ConditionStatus.UNKNOWN, fresh.reason, fresh.message), fresh),
    )


def _why_stale(figures: Lag, known: BrokerLag, now: datetime) -> StatusCondition:
    """LagFresh for figures that are too old. The words depend on what is shown, not on when the operator started."""
    since = f"There is no newer lag than that of {_minute(figures.observed_time)}"
    off = _why_off(known)
    if off is not None:
        return StatusCondition(FRESH, ConditionStatus.UNKNOWN, off[0], f"{since}, because {off[1]}.")
    if known.contact.is_unreachable(now):
        return _fresh(ConditionReason.OBSERVER_UNREACHABLE, f"{since}: {_unreachable(known)}")
    fault = f": {known.contact.fault}" if known.contact.fault else ""
    message = f"{since}{fault}. See condition LagAnalysisScheduled of Broker {known.broker} and its newest run."
    return _fresh(ConditionReason.LAG_REPORT_STALE, message)


def _nothing_known(known: BrokerLag, now: datetime) -> StatusCondition:
    """LagFresh of a Subscription about which no result has said anything yet."""
    off = _why_off(known)
    if off is not None:
        reason, message = off[0], f"No lag is known, because {off[1]}."
    elif known.contact.is_unreachable(now):
        reason, message = ConditionReason.OBSERVER_UNREACHABLE, f"No lag is known: {_unreachable(known)}"
    else:
        fault = f": {known.contact.fault}" if known.contact.fault else ""
        reason, message = (
            ConditionReason.PENDING,
            f"No lag result has said anything about this subscription yet{fault}.",
        )
    return StatusCondition(FRESH, ConditionStatus.UNKNOWN, reason, message)


def _unreachable(known: BrokerLag) -> str:
    return (
        f"{known.contact.failure}. See condition ObserverFailing of Broker {known.broker}, and the log of container "
        f"observer in pod {known.broker}-0."
    )


def _why_off(known: BrokerLag) -> tuple[ConditionReason, str] | None:
    """Why no results are to be expected, as reason and words; None if they are."""
    if known.analysis.backend == "None":
        return ConditionReason.DISABLED, f"`spec.lagAnalysis.backend` of Broker {known.broker} is `None`"
    if known.analysis.suspend:
        return ConditionReason.SUSPENDED, f"`spec.lagAnalysis.suspend` of Broker {known.broker} is set"
    return None


def _missing(shown: Lag, result: LagResult) -> StatusCondition:
    """LagFresh if the newest result does not have the Subscription and an older one had it. The pods that did not
    report are named without the result's reasons, whose figures differ from run to run.
    """
    pods = ", ".join(sentence.partition(":")[0] for sentence in result.missing[:_PODS_NAMED])
    why = f" Pods that did not report: {pods}." if pods else ""
    message = (
        f"There is no newer lag than that of {_minute(shown.observed_time)}: the newest lag result says nothing about "
        f"this subscription.{why}"
    )
    return _fresh(ConditionReason.LAG_REPORT_STALE, message)


def _fresh(reason: ConditionReason, message: str) -> StatusCondition:
    is_current = reason is ConditionReason.CURRENT
    return StatusCondition(FRESH, ConditionStatus.TRUE if is_current else ConditionStatus.FALSE, reason, message)


_CURRENT: Final = "The lag is from the newest result."
_CANNOT_TELL: Final = "The newest lag result can't tell the state; condition Lagging says why."


def _minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
