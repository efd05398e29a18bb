"""What a Subscription or a Queue shows about its lag: from which source, and whether it is current (LagFresh).

It is judged in every round by the operator's own clock, whether or not the observer answers: the live state if there is
one, else the newest run if it is newer, else what is shown for as long as that holds. Figures that are too old stay,
with their time; their state becomes Unknown, because OK would be a claim about the present. Those of a Broker that is
gone are removed. Pure. Source: docs/decisions/067-freshness-of-lag.md, docs/decisions/069-two-sources-of-lag.md,
docs/decisions/134-lag-of-a-deleted-broker.md, docs/reference/operator.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from penstock_api.lag_result import LagResult, LagState, SubscriptionLag
from penstock_api.resources import Holding, Lag
from penstock_operator.plans.conditions import FRESH, LAGGING, ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.lag_sources import BrokerLag, LagEntries, LagSource, LiveAnswer
from penstock_operator.plans.lag_status import FORECASTS_SHOWN, History, lag_status, lagging_condition

__all__ = ["LagUpdate", "lag_update"]

_MAX_CHARACTERS: Final = 1024
_PODS_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class LagUpdate:
    """What the status of a Subscription or a Queue has to say about its lag."""

    lag: Lag | None
    """`status.lag`; None if nothing was ever known, or if nothing of it can be true any more."""
    conditions: tuple[StatusCondition, ...]
    """LagFresh, and Lagging if there is a lag."""


def lag_update(resource: Holding, entries: LagEntries, known: BrokerLag, now: datetime) -> LagUpdate | None:
    """What the status has to say; None if it stays as it is. `entries`: those of the resource in both results."""
    if known.is_gone:
        return LagUpdate(None, (_of_no_broker(known),))
    live, entry = known.live, entries.live
    answer = known.live_answer(entries, now)
    if answer is LiveAnswer.HOLDS:
        return None
    if live is not None and entry is not None:
        if answer is LiveAnswer.TELLS:
            told = lag_status(entry, live.result, LagSource.LIVE, _history(entries, known, now))
            return LagUpdate(told, (lagging_condition(resource, entry), _CURRENT))
        if answer is LiveAnswer.AWAY:
            return _cannot_tell(resource, entries, known, LagSource.LIVE, now)
    if not known.has_been_asked_for(now):
        # The operator has just started. It does not know better than the last one until it has asked for a while.
        return None
    return _without_live(resource, entries, known, now)


def _without_live(resource: Holding, entries: LagEntries, known: BrokerLag, now: datetime) -> LagUpdate | None:
    """The update if the live source does not tell the state."""
    shown, live = resource.status.lag, known.live
    by_run = _by_run(resource, entries, known, now)
    if by_run is not None and by_run.conditions[-1] == _CURRENT:
        return by_run
    if live is not None and not known.is_stale(live.said_at, now, LagSource.LIVE):
        if entries.live is not None:
            return _cannot_tell(resource, entries, known, LagSource.LIVE, now)
        if shown is not None:
            return _unknown(shown, _missing(resource.kind.lower(), shown, live.result))
    if by_run is not None:
        return by_run
    if shown is None:
        return LagUpdate(None, (_nothing_known(resource.kind.lower(), known, now),))
    return _not_reported(resource, shown, entries, known, now)


def _by_run(resource: Holding, entries: LagEntries, known: BrokerLag, now: datetime) -> LagUpdate | None:
    """The update of the newest run; None if it says nothing newer than the live source has told, or the status has."""
    shown, entry, result, reported_at = resource.status.lag, entries.run, known.result, known.reported_at()
    if entry is None or result is None or reported_at is None or _is_older(entry, result, shown):
        return None
    if entries.told_at is not None and reported_at <= entries.told_at:
        return None
    newer = shown is None or entry.observed_time > shown.observed_time
    figures = lag_status(entry, result) if newer or shown is None else shown
    if known.is_stale(reported_at, now):
        return _unknown(figures, _why_stale(figures, known, now))
    if entry.state is LagState.UNKNOWN:
        return _cannot_tell(resource, entries, known, LagSource.RUN, now)
    current = lag_status(entry, result) if figures.state != entry.state else figures
    return LagUpdate(current, (lagging_condition(resource, entry), _CURRENT))


def _is_older(entry: SubscriptionLag, result: LagResult, shown: Lag | None) -> bool:
    """Whether an entry says less than the status: an observer that lost its newest results serves an older one. An
    entry of the state Unknown has the time of its last snapshot, and counts by the end of the window.
    """
    if shown is None:
        return False
    said_at = result.window_end if entry.state is LagState.UNKNOWN else entry.observed_time
    return said_at < shown.observed_time


def _cannot_tell(
    resource: Holding, entries: LagEntries, known: BrokerLag, source: LagSource, now: datetime
) -> LagUpdate:
    """The update for an entry whose state is Unknown: its source answers, but can't tell how things stand."""
    shown = resource.status.lag
    if source is LagSource.LIVE:
        assert known.live is not None and entries.live is not None, "this source answers"
        entry, said_at = entries.live, known.live.said_at
        found = lag_status(entry, known.live.result, source, _history(entries, known, now))
        figures = found if shown is None or entry.observed_time != shown.observed_time else shown
    else:
        assert known.result is not None and entries.run is not None, "this source answers"
        entry = entries.run
        newer = shown is None or entry.observed_time > shown.observed_time
        figures = lag_status(entry, known.result) if newer or shown is None else shown
        said_at = min(figures.observed_time, known.reported_at() or now)  # The broker's clock may be ahead.
    fresh = StatusCondition(FRESH, ConditionStatus.UNKNOWN, entry.state.value, _CANNOT_TELL)
    if known.is_stale(said_at, now, source):
        message = f"The figures are from {_minute(figures.observed_time)}. {_CANNOT_TELL}"
        fresh = _fresh(ConditionReason.LAG_REPORT_STALE, message)
    return LagUpdate(_of_the_past(figures, entry.message), (lagging_condition(resource, entry), fresh))


def _not_reported(
    resource: Holding, shown: Lag, entries: LagEntries, known: BrokerLag, now: datetime
) -> LagUpdate | None:
    """The update if neither source says anything newer about the resource than the status shows."""
    reported_at, result = known.reported_at(), known.result
    is_live = shown.source == LagSource.LIVE and known.is_live_offered
    figures = _last_told(shown, entries, known, now)
    said_at = shown.observed_time
    if is_live and entries.told_at is not None:
        said_at = min(entries.told_at, said_at)  # The broker's clock may be ahead.
    elif not is_live and reported_at is not None:
        said_at = max(reported_at, said_at)
    if known.is_stale(said_at, now, shown.source):
        return _unknown(figures, _why_stale(figures, known, now))
    if not is_live and result is not None and entries.run is None and result.window_end > shown.observed_time:
        return _unknown(shown, _missing(resource.kind.lower(), shown, result))
    if known.is_stale(shown.observed_time, now, shown.source):
        return _unknown(figures, _why_stale(figures, known, now))
    before = {condition.type: condition for condition in resource.status.conditions}
    if FRESH in before:
        return None
    lagging = before.get(LAGGING)
    kept = (
        ()
        if lagging is None
        else (StatusCondition(LAGGING, ConditionStatus(lagging.status), lagging.reason, lagging.message),)
    )
    return LagUpdate(shown, (*kept, _CURRENT))


def _history(entries: LagEntries, known: BrokerLag, now: datetime) -> History | None:
    """What the newest run adds to a live state; nothing if it is too old, because that would not be seen in a column of
    figures: the run, or its entry. A broker whose ledger can't be written has its last window in each new run.
    """
    reported_at, result, entry = known.reported_at(), known.result, entries.run
    if reported_at is None or result is None or entry is None:
        return None
    behind = max(result.window_end - entry.observed_time, timedelta(0))
    return None if known.is_stale(reported_at - behind, now) else History.of(entry, result)


def _last_told(shown: Lag, entries: LagEntries, known: BrokerLag, now: datetime) -> Lag:
    """The figures that the live source has told last: they may differ a little from those that are shown, and they are
    newer.
    """
    if known.live is None or entries.live is None or entries.live.observed_time <= shown.observed_time:
        return shown
    return lag_status(entries.live, known.live.result, LagSource.LIVE, _history(entries, known, now))


def _unknown(figures: Lag, fresh: StatusCondition) -> LagUpdate:
    """The update for figures that say nothing about the present: they stay, with their time."""
    return LagUpdate(
        _of_the_past(figures, fresh.message[:_MAX_CHARACTERS]),
        (StatusCondition(LAGGING, ConditionStatus.UNKNOWN, fresh.reason, fresh.message), fresh),
    )


def _of_the_past(figures: Lag, message: str) -> Lag:
    """Figures of which nobody can say that they are of now: in the state Unknown, without forecasts."""
    changes = {"state": LagState.UNKNOWN.value, "message": message}
    return figures.model_copy(update={**dict.fromkeys(FORECASTS_SHOWN), **changes})


def _why_stale(figures: Lag, known: BrokerLag, now: datetime) -> StatusCondition:
    """LagFresh for figures that are too old. The words depend on what is shown, not on when the operator started."""
    since = f"There is no newer lag than that of {_minute(figures.observed_time)}"
    off = None if known.is_live_offered else known.service.off
    if off is not None:
        return StatusCondition(FRESH, ConditionStatus.UNKNOWN, off[0], f"{since}, because {off[1]}.")
    unreachable = _unreachable(known, now)
    if unreachable:
        return _fresh(ConditionReason.OBSERVER_UNREACHABLE, f"{since}: {unreachable}")
    fault = f": {_fault(known)}" if _fault(known) else ""
    look_at = (
        f"the log of container observer in pod {known.broker}-0"
        if known.is_live_offered
        else f"condition LagAnalysisScheduled of Broker {known.broker} and its newest run"
    )
    return _fresh(ConditionReason.LAG_REPORT_STALE, f"{since}{fault}. See {look_at}.")


def _nothing_known(what: str, known: BrokerLag, now: datetime) -> StatusCondition:
    """LagFresh of a resource about which no result has said anything yet."""
    off = None if known.is_live_offered else known.service.off
    unreachable = _unreachable(known, now)
    if off is not None:
        reason, message = off[0], f"No lag is known, because {off[1]}."
    elif unreachable:
        reason, message = ConditionReason.OBSERVER_UNREACHABLE, f"No lag is known: {unreachable}"
    else:
        fault = f": {_fault(known)}" if _fault(known) else ""
        reason, message = (
            ConditionReason.PENDING,
            f"No lag result has said anything about this {what} yet{fault}.",
        )
    return StatusCondition(FRESH, ConditionStatus.UNKNOWN, reason, message)


def _of_no_broker(known: BrokerLag) -> StatusCondition:
    """LagFresh of a resource whose Broker does not exist."""
    message = f"No lag is known, because there is no Broker {known.broker}."
    return StatusCondition(FRESH, ConditionStatus.UNKNOWN, ConditionReason.BROKER_NOT_FOUND, message)


def _unreachable(known: BrokerLag, now: datetime) -> str:
    """Why the observer can't be reached, and what to look at; empty if it can."""
    contact = known.live_contact if known.is_live_offered else known.contact
    if not contact.is_unreachable(now):
        return ""
    return (
        f"{contact.failure}. See condition ObserverFailing of Broker {known.broker}, and the log of container "
        f"observer in pod {known.broker}-0."
    )


def _fault(known: BrokerLag) -> str:
    """Why the last answer can't be used; empty if it can."""
    return (known.live_contact.fault if known.is_live_offered else "") or known.contact.fault


def _missing(what: str, shown: Lag, result: LagResult) -> StatusCondition:
    """LagFresh if the newest result does not have the resource and an older one had it. The pods that did not
    report are named without the result's reasons, whose figures differ from run to run.
    """
    pods = ", ".join(sentence.partition(":")[0] for sentence in result.missing[:_PODS_NAMED])
    why = f" Pods that did not report: {pods}." if pods else ""
    message = (
        f"There is no newer lag than that of {_minute(shown.observed_time)}: the newest lag result says nothing about "
        f"this {what}.{why}"
    )
    return _fresh(ConditionReason.LAG_REPORT_STALE, message)


def _fresh(reason: ConditionReason, message: str) -> StatusCondition:
    is_current = reason is ConditionReason.CURRENT
    return StatusCondition(FRESH, ConditionStatus.TRUE if is_current else ConditionStatus.FALSE, reason, message)


_CURRENT: Final = _fresh(ConditionReason.CURRENT, "The lag is from the newest result.")
_CANNOT_TELL: Final = "The newest lag result can't tell the state; condition Lagging says why."


def _minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
