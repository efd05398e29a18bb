"""What the observer knows about its broker now; the poller writes it, HTTP and metrics read it.

Held in memory only. While the broker does not answer, the last answer stays, together with the reason. The states of
lag stay, too, if it is only one poll that was missed. Source: docs/concepts/lag.md, "States".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from penstock_api.lag_result import SubscriptionLag
from penstock_lag_rules.entry import unknown
from penstock_observer.durations import NO_DURATIONS, Durations
from penstock_observer.rows import Poll

__all__ = ["OUTAGE_POLLS", "LiveBroker", "LiveView"]

OUTAGE_POLLS: Final = 2
"""Polls in a row without an answer after which the states are Unknown. One alone is no outage: it would take every
state away for a few seconds, and with it the time for which an alert has waited.
"""


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """One immutable view, replaced as a whole, so that a reader never sees halves of two polls."""

    poll: Poll | None = None
    """The last successful poll, None before the first."""
    problem: str | None = "the broker has not answered yet"
    """Why the broker can't be reached; None while it answers."""
    ledger_problem: str | None = None
    """Why the ledger can't be written, None while it can."""
    unanswered_writes: int = 0
    """Polls that are not in the ledger because its volume did not answer: nothing has failed then, only waited."""
    lags: tuple[SubscriptionLag, ...] = ()
    """How each subscription stood at the last successful poll, by the rules of lag."""
    durations: Durations = NO_DURATIONS
    """How long messages waited and were held, of all subscriptions together."""
    polls: int = 0
    failures: int = 0
    missed: int = 0
    """Polls without an answer since the last one that was answered."""

    @property
    def reachable(self) -> bool:
        """True if the broker answered the last poll."""
        return self.problem is None

    @property
    def outage(self) -> str | None:
        """Why the last answer says nothing of the present any more; None while it does, also if one poll was missed."""
        return self.problem if self.poll is None or self.missed >= OUTAGE_POLLS else None

    def lags_now(self) -> Iterator[SubscriptionLag]:
        """How each subscription stands; Unknown during an outage."""
        return self.lags_despite(self.outage)

    def lags_despite(self, problem: str | None) -> Iterator[SubscriptionLag]:
        """How each subscription stands; with a problem the figures are the last ones that are known, without forecasts,
        and the state is Unknown, with the problem as the reason.
        """
        if problem is None:
            yield from self.lags
            return
        for lag in self.lags:
            yield unknown(lag, problem)


@dataclass(slots=True)
class LiveView:
    """Holder of the current view."""

    known: LiveBroker = field(default_factory=LiveBroker)
    on_answer: Callable[[Poll], None] | None = None
    """Called with each poll that the broker answered."""

    def answered(self, poll: Poll, lags: tuple[SubscriptionLag, ...] = (), durations: Durations = NO_DURATIONS) -> None:
        """Note a poll that the broker answered, how its subscriptions stand, and the durations up to it."""
        self.known = replace(
            self.known, poll=poll, lags=lags, durations=durations, problem=None, polls=self.known.polls + 1, missed=0
        )
        if self.on_answer is not None:
            self.on_answer(poll)

    def away(self, problem: str) -> None:
        """Note a poll that the broker did not answer; ``problem`` is a sentence without its full stop."""
        known = self.known
        self.known = replace(
            known, problem=problem, polls=known.polls + 1, failures=known.failures + 1, missed=known.missed + 1
        )

    def ledger(self, problem: str | None) -> None:
        """Note that the ledger was written (None), or why not (a sentence without its full stop)."""
        self.known = replace(self.known, ledger_problem=problem)

    def ledger_silent(self) -> None:
        """Note that the volume of the ledger does not answer."""
        self.known = replace(self.known, unanswered_writes=self.known.unanswered_writes + 1)
