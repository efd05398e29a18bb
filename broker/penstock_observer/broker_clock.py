"""Whether the broker's clock was set between two polls, and when something happened by the clock as it is now.

Broker and observer run on one machine, so the broker's clock and a clock of the observer that nobody sets go on equally
fast. If they do not, the broker's clock was set. Times that the broker noted before that are of the clock as it was
then: they are moved by as much as it was set, and everything after this module (the rules, metrics, the ledger, the
page) has times of one clock. A time that may be of either clock is unknown, because a wrong age would look healthy; if
the two differ by little, the earlier one is taken.

Pure: the observer's clock is an argument. Source: docs/decisions/068-lag-rules.md, "A clock that is set".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock_api.state_documents import RepeatedMessage, SubscriptionState

__all__ = ["SMALLEST_STEP_MS", "BrokerClock", "ClockReading", "ClockSpan", "oldest_age_ms", "step_between"]

SMALLEST_STEP_MS: Final = 1_000
"""Less changes no state, and is not told from a machine that was busy."""
LITTLE_MS: Final = 10_000
"""As long as the time between two polls, unless that is told otherwise."""
REMEMBERED: Final = 16
"""Clocks that times are told apart of; a clock that is set more often makes older times unknown."""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The time that the broker told, and between which two times of the observer it did so. All in milliseconds; those
    of the observer count from some time on, and nobody sets them.
    """

    broker_ms: int
    asked_ms: float
    answered_ms: float


def step_between(before: ClockReading, now: ClockReading) -> int:
    """By how many milliseconds the broker's clock was set between two readings, above 0 if it was set forward; 0 if
    what is seen may be a slow answer, or is less than `SMALLEST_STEP_MS`.
    """
    # The broker tells whole milliseconds: the time was up to one more.
    least = (now.broker_ms - now.answered_ms) - (before.broker_ms + 1 - before.asked_ms)
    most = (now.broker_ms + 1 - now.asked_ms) - (before.broker_ms - before.answered_ms)
    return round((least + most) / 2) if least >= SMALLEST_STEP_MS or most <= -SMALLEST_STEP_MS else 0


def oldest_age_ms(state: SubscriptionState, now_ms: int) -> int | None:
    """How long the oldest message that is ready or in flight has been available; 0 if there is none; None if that is
    not known, because the clock was set.
    """
    since_ms = state.oldest_available_ms
    if since_ms is not None and since_ms <= now_ms:
        return now_ms - since_ms
    return 0 if state.ready == 0 and state.in_flight == 0 else None


@dataclass(frozen=True, slots=True)
class ClockSpan:
    """The broker's clock between two steps. `from_ms` to `until_ms`: which times it may have shown. The first one began
    before anything, the present one goes on.
    """

    from_ms: int | None
    until_ms: int | None = None
    later_ms: int = 0
    """By how much it was set since then."""


@dataclass(frozen=True, slots=True)
class _Since:
    """One time that the broker tells of a subscription."""

    told_ms: int | None
    present_ms: int | None
    """The same by the present clock; None if nothing is told, or if it is unknown."""
    oldest_clock: int = 0
    """Number of the first clock that it may be of: nothing that it stands for is older."""


@dataclass(slots=True)
class _Known:
    """A subscription: the state that the broker told, what became of it, and its times."""

    told: SubscriptionState
    present: SubscriptionState
    available: _Since
    held: _Since
    unused: _Since


class BrokerClock:
    """Takes the readings and states of all polls of one broker. `clocks`: those of an earlier observer, if any."""

    def __init__(self, clocks: Sequence[ClockSpan] = ()) -> None:
        self._reading: ClockReading | None = None
        self._told: Sequence[SubscriptionState] | None = None
        """Of the last poll; remembered one by one only once the clock was set."""
        self._clocks = [*clocks] or [ClockSpan(None)]
        self._forgotten = 0
        """So many clocks were before the first of `_clocks`, since this began."""
        self._known: dict[str, _Known] = {}

    @property
    def clocks(self) -> Sequence[ClockSpan]:
        """All that are known, the present one last; one if it was never set."""
        return tuple(self._clocks)

    def read(self, reading: ClockReading) -> int | None:
        """The step between the poll before and this one, as `step_between`; None if it is the first."""
        before, self._reading = self._reading, reading
        if before is None:
            return None
        step_ms = step_between(before, reading)
        if step_ms:
            self._set(before, reading, step_ms)
        return step_ms

    def on_present_clock(self, states: tuple[SubscriptionState, ...]) -> tuple[SubscriptionState, ...]:
        """The states of this poll, after `read`, with times of the present clock. A state that did not change stays
        the same object as long as the clock is not set.
        """
        is_first, self._told = self._told is None, states
        if len(self._clocks) == 1:
            return states
        self._known = {state.queue_name: self._moved(state, 0 if is_first else self._present) for state in states}
        return tuple([known.present for known in self._known.values()])

    @property
    def _present(self) -> int:
        return self._forgotten + len(self._clocks) - 1

    def _set(self, before: ClockReading, now: ClockReading, step_ms: int) -> None:
        if not self._known:
            self._known = {state.queue_name: _as_told(state) for state in self._told or ()}
        for known in self._known.values():
            known.available = _later(known.available, step_ms)
            known.held = _later(known.held, step_ms)
            known.unused = _later(known.unused, step_ms)
            known.told = known.told.model_copy()  # another object than the broker will tell: it has to be moved again
        clocks = [replace(clock, later_ms=clock.later_ms + step_ms) for clock in self._clocks]
        most_ms = math.ceil(now.answered_ms - before.asked_ms) + 1  # between the readings, as far as is known
        clocks[-1] = replace(clocks[-1], until_ms=before.broker_ms + most_ms)
        self._clocks = [*clocks, ClockSpan(now.broker_ms - most_ms)]
        if len(self._clocks) > REMEMBERED:
            del self._clocks[0]
            self._forgotten += 1

    def _moved(self, state: SubscriptionState, new_since: int) -> _Known:
        """`new_since`: the number of the clock that was there when a subscription began that is not known."""
        known = self._known.get(state.queue_name)
        if known is not None and known.told is state:
            return known
        new = _Since(None, None, new_since)
        available = self._since(known.available if known else new, state.oldest_available_ms)
        held = self._since(known.held if known else new, state.oldest_hold_ms)
        unused = self._since(known.unused if known else new, state.unused_since_ms)
        times = {
            "oldest_available_ms": available.present_ms,
            "oldest_hold_ms": held.present_ms,
            "unused_since_ms": unused.present_ms,
            "repeated": tuple(self._repeated(each, available.oldest_clock) for each in state.repeated),
        }
        changed = {name: value for name, value in times.items() if value != getattr(state, name)}
        present = state.model_copy(update=changed) if changed else state
        return _Known(state, present, available, held, unused)

    def _since(self, known: _Since, told_ms: int | None) -> _Since:
        if told_ms is None:  # what comes after it is not older
            return _Since(None, None, self._present)
        if told_ms == known.told_ms:
            return known
        return _Since(told_ms, self._by_present_clock(told_ms, known.oldest_clock), known.oldest_clock)

    def _by_present_clock(self, told_ms: int, oldest_clock: int) -> int | None:
        """None if several clocks may have shown this time, or one that is forgotten."""
        clocks = self._clocks[max(oldest_clock - self._forgotten, 0) :]
        may_be = [told_ms + clock.later_ms for clock in clocks if self._may_have_shown(clock, told_ms)]
        if may_be:
            return min(may_be) if max(may_be) - min(may_be) <= LITTLE_MS else None
        if oldest_clock < self._forgotten:
            return None
        # A delayed message fell due because the clock was set beyond its time.
        later = [clock for clock in clocks if clock.from_ms is not None and clock.from_ms > told_ms]
        return None if not later or later[0].from_ms is None else later[0].from_ms + later[0].later_ms

    def _may_have_shown(self, clock: ClockSpan, told_ms: int) -> bool:
        until_ms = clock.until_ms
        if until_ms is None:
            assert self._reading is not None, "there is no second clock without a reading"
            until_ms = self._reading.broker_ms
        return told_ms <= until_ms and (clock.from_ms is None or told_ms >= clock.from_ms)

    def _repeated(self, message: RepeatedMessage, oldest_clock: int) -> RepeatedMessage:
        """If its time is unknown it stays as it is: no rule looks at it."""
        present_ms = self._by_present_clock(message.available_ms, oldest_clock)
        return message if present_ms is None else message.model_copy(update={"available_ms": present_ms})


def _as_told(state: SubscriptionState) -> _Known:
    """Before the clock was set for the first time."""
    available = _Since(state.oldest_available_ms, state.oldest_available_ms)
    held = _Since(state.oldest_hold_ms, state.oldest_hold_ms)
    return _Known(state, state, available, held, _Since(state.unused_since_ms, state.unused_since_ms))


def _later(since: _Since, step_ms: int) -> _Since:
    return since if since.present_ms is None else replace(since, present_ms=since.present_ms + step_ms)
