"""How long messages waited and were held, of all subscriptions of the broker together, since the observer started.

The broker counts durations per subscription. Their sum falls when a subscription ends, which a reader of counters takes
for a restart. So what each histogram grew by from poll to poll is added up here, and stays. What was counted before the
observer's first complete poll is left out: it may have been told by an observer before this one. Pure: no clock, no
sockets. Source: docs/reference/observer.md, "Metrics".
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from penstock_api.state_documents import DurationHistogram, SubscriptionState
from penstock_observer.rows import BrokerRun, Poll

__all__ = ["NO_DURATIONS", "DurationTotals", "Durations"]

EMPTY: Final = DurationHistogram()


@dataclass(frozen=True, slots=True)
class Durations:
    """Of the messages of all subscriptions, as in SubscriptionState."""

    sojourn: DurationHistogram = EMPTY
    wait: DurationHistogram = EMPTY
    hold: DurationHistogram = EMPTY


NO_DURATIONS: Final = Durations()


class _Total:
    """One histogram that is added to."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._sum_ms = 0

    def add(self, before: DurationHistogram, now: DurationHistogram) -> None:
        """What a life's histogram has more than before."""
        if before == now:
            return
        self._sum_ms += now.sum_ms - before.sum_ms
        counts = self._counts
        for index, count in zip(now.indexes, now.counts, strict=True):
            counts[index] += count
        for index, count in zip(before.indexes, before.counts, strict=True):
            counts[index] -= count

    def histogram(self) -> DurationHistogram:
        """The sum of all that was added."""
        found = sorted((index, count) for index, count in self._counts.items() if count)
        return DurationHistogram(
            indexes=tuple(index for index, _ in found), counts=tuple(count for _, count in found), sum_ms=self._sum_ms
        )


class DurationTotals:
    """Takes polls, adds up durations."""

    def __init__(self) -> None:
        self._sojourn, self._wait, self._hold = _Total(), _Total(), _Total()
        self._seen: dict[str, SubscriptionState] = {}
        """The last state of each subscription in this run of the broker."""
        self._run: BrokerRun | None = None
        self._from_zero = False
        """A life that is seen first now has counted nothing that was told before."""

    def observe(self, poll: Poll) -> Durations:
        """The broker has answered a poll; the sums up to it."""
        if poll.run != self._run:
            self._from_zero = self._run is not None
            self._run = poll.run
            self._seen = {}
        seen = self._seen
        for state in poll.subscriptions:
            before = seen.get(state.queue_name)
            if before is not state:
                self._add(before, state)
                seen[state.queue_name] = state
        if poll.complete:
            self._from_zero = True
            if len(seen) > len(poll.subscriptions):
                self._seen = {state.queue_name: state for state in poll.subscriptions}
        return Durations(self._sojourn.histogram(), self._wait.histogram(), self._hold.histogram())

    def _add(self, before: SubscriptionState | None, now: SubscriptionState) -> None:
        if before is not None and before.incarnation == now.incarnation:
            self._sojourn.add(before.sojourn, now.sojourn)
            self._wait.add(before.wait, now.wait)
            self._hold.add(before.hold, now.hold)
        elif before is not None or self._from_zero:
            self._sojourn.add(EMPTY, now.sojourn)
            self._wait.add(EMPTY, now.wait)
            self._hold.add(EMPTY, now.hold)
