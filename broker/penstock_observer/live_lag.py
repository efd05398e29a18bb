"""The lag of every subscription of the broker now: each poll is judged by the rules that the lag job uses.

It keeps the window of each subscription in memory, so it begins anew when the observer does; percentiles of the window
need the ledger and are left to the lag job. It owns no socket and no clock.

A subscription is not judged anew while it is idle: its state did not change since the last poll (a poll then has the
same object), and in its whole window nothing waited and no total grew. Its next entry then differs only in its time, as
long as the polls cover the window; whether they do is judged with one of these subscriptions for all of them.
Source: docs/concepts/lag.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from penstock_api.lag_result import LagState, SubscriptionLag
from penstock_api.state_documents import SubscriptionState
from penstock_lag_rules.buckets import bucket_of_rank
from penstock_lag_rules.entry import subscription_lag, time_of
from penstock_lag_rules.figures import TOTALS, Coverage, Growth, Percentiles, RepeatedMessage, Subject
from penstock_lag_rules.history import Snapshot
from penstock_lag_rules.thresholds import Thresholds
from penstock_lag_rules.track import Track
from penstock_observer.rows import BrokerRun, Poll

__all__ = ["LiveLag", "Watched", "snapshot_of"]

WINDOW_MS: Final = 300_000
"""As long as the window of the lag job, unless that is told otherwise."""


@dataclass(slots=True)
class Watched:
    """One subscription: its track, and what identifies it."""

    track: Track
    subject: Subject
    life: tuple[str, int, int, int]
    state: SubscriptionState
    """What the last poll said of it."""
    lag: SubscriptionLag | None = None
    """Its last entry, if it can be repeated until something changes."""


class LiveLag:
    """Takes polls, says how every subscription stands."""

    def __init__(self, ordinal: int, interval_ms: int, thresholds: Thresholds, window_ms: int = WINDOW_MS) -> None:
        self._ordinal = ordinal
        self._interval_ms = interval_ms
        self._thresholds = thresholds
        self._window_ms = window_ms
        self._watched: dict[str, Watched] = {}
        self._poll_times: deque[int] = deque()
        self._run: BrokerRun | None = None
        self._complete_in_run = False
        """A complete poll of this run of the broker was seen: what appears after it began after it."""
        self._set_ms: int | None = None
        """The time of the first poll after the broker's clock was set; None if that is a window ago."""
        self._step_ms: int | None = None
        """By how much it was set then, if that is known."""

    def observe(self, poll: Poll) -> None:
        """The broker has answered a poll. Subscriptions that a complete poll does not have are forgotten."""
        now_ms = poll.broker.now_ms
        self._look_at_clock(now_ms, poll.clock_step_ms)
        if poll.run != self._run:
            self._run, self._complete_in_run = poll.run, False
        self._cover(now_ms)
        for state in poll.subscriptions:
            self._add(state, poll.run, now_ms)
        if poll.complete:
            there = {state.queue_name for state in poll.subscriptions}
            for name in self._watched.keys() - there:
                del self._watched[name]
            self._complete_in_run = True

    def lags(self) -> Iterator[SubscriptionLag]:
        """The entry of each subscription at the last poll, in no order."""
        if not self._poll_times:
            return
        times = self._poll_times
        end_ms = times[-1]
        coverage = Coverage(
            last_poll_ms=end_ms,
            elapsed_ms=max(end_ms - times[0], 0),
            polls=len(times),
            interval_ms=self._interval_ms,
            clock_steps=0 if self._set_ms is None else 1,
            clock_step_ms=None if self._set_ms is None else self._step_ms,
        )
        observed = {"observed_time": time_of(end_ms)}
        is_covered: bool | None = None
        for watched in self._watched.values():
            known, track = watched.lag, watched.track
            is_there = track.observed_ms == end_ms and track.snapshots >= self._thresholds.minimum_snapshots
            if known is not None and is_there:
                if is_covered is None:
                    is_covered = self._judged(watched, coverage, end_ms).state is LagState.IDLE
                if is_covered:
                    yield known.model_copy(update=observed)
                    continue
            yield self._judged(watched, coverage, end_ms)

    def _judged(self, watched: Watched, coverage: Coverage, end_ms: int) -> SubscriptionLag:
        figures = watched.track.figures(watched.subject, coverage)
        if watched.state.in_flight and figures.without_progress_ms >= self._thresholds.stall_after_ms:
            figures = replace(figures, percentiles=Percentiles(hold_p99=_hold_p99(watched.state)))
        lag = subscription_lag(figures, None, end_ms, self._thresholds)
        watched.lag = lag if lag.state is LagState.IDLE and watched.track.is_still else None
        return lag

    def _look_at_clock(self, now_ms: int, step_ms: int | None) -> None:
        """If the clock was set, the polls before it have no place in a window by that clock: all begins anew."""
        if step_ms or (self._poll_times and now_ms <= self._poll_times[-1]):
            self._poll_times.clear()
            self._watched.clear()
            self._complete_in_run = False
            self._set_ms, self._step_ms = now_ms, step_ms or None
        elif self._set_ms is not None and now_ms - self._set_ms > self._window_ms:
            self._set_ms = None

    def _cover(self, now_ms: int) -> None:
        times = self._poll_times
        times.append(now_ms)
        while times[0] < now_ms - self._window_ms:
            times.popleft()

    def _add(self, state: SubscriptionState, run: BrokerRun, now_ms: int) -> None:
        instance, epoch, started_ms = run
        life = (instance, epoch, state.incarnation, started_ms)
        watched = self._watched.get(state.queue_name)
        if watched is not None and watched.lag is not None and watched.state is state and watched.life == life:
            watched.track.repeat(now_ms)
            return
        is_born = self._complete_in_run and (watched is None or watched.life != life)
        subject = _subject(state, self._ordinal)
        if watched is None:
            watched = Watched(Track(self._thresholds, self._window_ms), subject, life, state)
            self._watched[state.queue_name] = watched
        watched.subject, watched.life, watched.state, watched.lag = subject, life, state, None
        watched.track.add(snapshot_of(state, now_ms, life, is_born=is_born))


def snapshot_of(state: SubscriptionState, now_ms: int, life: tuple[str, int, int, int], *, is_born: bool) -> Snapshot:
    """What one poll said of one subscription. A broker of an earlier release does not say which credit is usable: then
    that of all links is.
    """
    says = "usable_credit" in state.model_fields_set
    return Snapshot(
        time_ms=now_ms,
        life=life,
        is_born=is_born,
        depth=state.depth,
        ready=state.ready,
        in_flight=state.in_flight,
        scheduled=state.scheduled,
        stranded=state.stranded,
        oldest_available_ms=state.oldest_available_ms,
        oldest_hold_ms=state.oldest_hold_ms,
        first_expires_ms=state.first_expires_ms,
        last_expires_ms=state.last_expires_ms,
        consumers=state.consumers,
        credit=state.credit,
        usable_credit=state.usable_credit if says else state.credit,
        usable_consumers=state.usable_consumers if says else None,
        unused_since_ms=state.unused_since_ms,
        totals=Growth(**{total: getattr(state, total) for total in TOTALS}),
        durations=(sum(state.wait.counts), state.wait.sum_ms, sum(state.hold.counts), state.hold.sum_ms),
        repeated=tuple(
            RepeatedMessage(each.id, each.delivery_count, max(now_ms - each.available_ms, 0)) for each in state.repeated
        ),
    )


def _hold_p99(state: SubscriptionState) -> int | None:
    """How long handlers take that are slow, over the queue's whole life: a rule gives them time."""
    return bucket_of_rank(dict(zip(state.hold.indexes, state.hold.counts, strict=True)), 99)


def _subject(state: SubscriptionState, ordinal: int) -> Subject:
    owner = state.owner
    if owner is None:
        return Subject(ordinal=ordinal, queue_name=state.queue_name)
    return Subject(
        ordinal=ordinal,
        queue_name=state.queue_name,
        owner_namespace=owner.namespace,
        owner_name=owner.name,
        owner_uid=owner.uid,
    )
