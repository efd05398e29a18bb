"""The two sources of lag: what a Broker's observer says live, and the newest result of a run of the lag job.

Which of the two says something about the present is judged per source, on the operator's own clock: a live statement
holds for a minute and a half, a run for three intervals of the schedule. Pure. Source:
docs/decisions/069-two-sources-of-lag.md, docs/decisions/067-freshness-of-lag.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum, StrEnum, auto
from typing import Final, Self

from penstock_api.lag_result import LagResult, LagState, SubscriptionLag
from penstock_operator.plans.lag_service import LagService
from penstock_operator.plans.observer_contact import ObserverContact

__all__ = ["LIVE_HOLDS", "BrokerLag", "LagEntries", "LagSource", "LiveAnswer", "LiveResult"]

LIVE_HOLDS: Final = timedelta(seconds=90)
"""So long a live statement holds after it was made. An observer that is restarted can judge again within that time, and
one that does not answer counts as unreachable by then.
"""
_CLOCKS_DIFFER: Final = timedelta(minutes=2)
"""A poll is read within that time."""
_RUN_PERIODS: Final = 3
"""A run's result holds for this number of intervals of the schedule."""


class LagSource(StrEnum):
    """`status.lag.source`."""

    LIVE = "Live"
    RUN = "Run"


class LiveAnswer(Enum):
    """What the live source says about one Subscription now."""

    TELLS = auto()
    """Its state."""
    AWAY = auto()
    """That the broker does not answer its observer."""
    HOLDS = auto()
    """Nothing new, but its last statement still holds, or it may be about to make one."""
    SILENT = auto()
    """Nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveResult:
    """The newest live result of a Broker."""

    result: LagResult
    first_seen: datetime
    """When the operator saw it first."""
    follows: bool
    """Whether the operator had seen another one before. Then the poll is new, whatever the broker's clock says."""

    @property
    def said_at(self) -> datetime:
        """The time of its statements, on the operator's clock. A first result may be an old one, so it counts from its
        own time, but no later than when it was seen.
        """
        return self.first_seen if self.follows else min(self.result.window_end, self.first_seen)

    @property
    def reaches_broker(self) -> bool:
        """Whether the broker answers its observer."""
        return self.result.reporting_brokers > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LagEntries:
    """What the two results have about one Subscription."""

    live: SubscriptionLag | None = None
    run: SubscriptionLag | None = None
    told_at: datetime | None = None
    """When the live source told its state last, on the operator's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLag:
    """What is known about the lag of one Broker's Subscriptions."""

    broker: str
    """Name of the Broker."""
    service: LagService = field(default_factory=LagService)
    """The job that analyses it."""
    contact: ObserverContact = field(default_factory=ObserverContact)
    """What asking its observer for the result of the newest run has come to."""
    result: LagResult | None = None
    """The result of the newest run that this operator has seen."""
    first_seen: datetime | None = None
    """When it saw it first."""
    live_contact: ObserverContact = field(default_factory=ObserverContact)
    """What asking its observer for the live result has come to."""
    live: LiveResult | None = None
    """The newest live result."""
    is_gone: bool = False
    """There is no such Broker."""
    is_live_offered: bool = True
    """False if the observer is of an earlier release, which has no live result."""

    def with_live(self, result: LagResult, now: datetime) -> Self:
        """The knowledge after an observer has answered with its live result. One whose window ends at another time is
        new, also if it ends earlier: the broker's clock may have been set back, and the observer keeps no older ones.
        """
        last = self.live
        if last is not None and last.result.window_end == result.window_end:
            live = replace(last, result=result)  # The same poll; whether the broker still answers may have changed.
        else:
            live = LiveResult(result=result, first_seen=now, follows=last is not None)
        return replace(self, live=live, is_live_offered=True, live_contact=self.live_contact.answered(now))

    def without_live(self, now: datetime) -> Self:
        """The knowledge after an observer has answered that it has no live result."""
        return replace(self, live=None, is_live_offered=False, live_contact=self.live_contact.answered(now))

    def with_run(self, result: LagResult, now: datetime) -> Self:
        """The knowledge after an observer has answered with the result of a run. An older one changes nothing, unless
        the window of the last one is yet to come by the broker's clock as it is now: that was set back since.
        """
        last = self.result
        if last is not None and result.window_end <= last.window_end:
            is_newer = self._is_yet_to_come(last, now) and not self._is_yet_to_come(result, now)
            if not is_newer:
                return self
        return replace(self, result=result, first_seen=now)

    def seen_by(self, now: datetime) -> Self:
        """The same knowledge, of which nothing was seen later than now: the operator's clock may have been set back
        since. What it saw counts from now then, so that it does not look new for as long as the clock was set back.
        """
        live, first_seen = self.live, self.first_seen
        if live is not None and live.first_seen > now:
            live = replace(live, first_seen=now)
        if first_seen is not None and first_seen > now:
            first_seen = now
        if live is self.live and first_seen is self.first_seen:
            return self
        return replace(self, live=live, first_seen=first_seen)

    def _is_yet_to_come(self, result: LagResult, now: datetime) -> bool:
        """Whether a window ends after the newest poll, by more than it may while both are read. False if no poll tells
        the broker's clock as it is now.
        """
        live = self.live
        if live is None or not live.reaches_broker or self.is_stale(live.said_at, now, LagSource.LIVE):
            return False
        return live.follows and result.window_end - live.result.window_end >= _CLOCKS_DIFFER

    def reported_at(self) -> datetime | None:
        """The time of the newest run on the operator's clock: the end of its window, but no later than it was seen, so
        that a clock that is ahead does not make old figures look new.
        """
        if self.result is None or self.first_seen is None:
            return None
        return min(self.result.window_end + self._clock_behind(), self.first_seen)

    def _clock_behind(self) -> timedelta:
        """By how much the broker's clock is behind the operator's, as the newest poll has shown it: below 0 if it is
        ahead, 0 if that is not known, or if it may be the time between the poll and the reading.
        """
        live = self.live
        if live is None or not live.follows or not live.reaches_broker:
            return timedelta(0)
        behind = live.first_seen - live.result.window_end
        return behind if abs(behind) >= _CLOCKS_DIFFER else timedelta(0)

    def is_stale(self, moment: datetime, now: datetime, source: str | None = LagSource.RUN) -> bool:
        """Whether what a source said at `moment` says nothing about the present. How old a time is that is yet to come,
        nobody knows: a clock was set back since, or another clock is ahead.
        """
        if moment - now >= _CLOCKS_DIFFER:
            return True
        if source == LagSource.LIVE and self.is_live_offered:
            return now - moment >= LIVE_HOLDS
        return now - moment >= timedelta(minutes=_RUN_PERIODS * self.service.interval_minutes)

    def live_answer(self, entries: LagEntries, now: datetime) -> LiveAnswer:
        """What the live source says about a Subscription."""
        live, contact = self.live, self.live_contact
        if live is not None and entries.live is not None and not live.reaches_broker and contact.failures == 0:
            return LiveAnswer.AWAY
        if live is not None and now - live.said_at < LIVE_HOLDS:
            if entries.live is not None and entries.live.state is not LagState.UNKNOWN:
                return LiveAnswer.TELLS
        elif live is not None and now - live.first_seen < LIVE_HOLDS:
            # The first result seems to be old. If only the clocks differ, the next one shows it.
            return LiveAnswer.HOLDS
        if entries.told_at is not None and now - entries.told_at < LIVE_HOLDS:
            return LiveAnswer.HOLDS
        if self.is_live_offered and contact.failures > 0 and not contact.is_unreachable(now):
            return LiveAnswer.HOLDS
        return LiveAnswer.SILENT

    def has_been_asked_for(self, now: datetime) -> bool:
        """Whether the operator has asked for both results long enough to know better than the last operator did."""
        live = not self.is_live_offered or _is_decided(self.live_contact, now)
        return live and (self.result is not None or _is_decided(self.contact, now))


def _is_decided(contact: ObserverContact, now: datetime) -> bool:
    return contact.has_answered or contact.is_unreachable(now)
