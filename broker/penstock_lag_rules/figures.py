"""What the rules know of one subscription: how it stands, and what happened over three spans of its snapshots.

Whoever has the snapshots makes these figures: the lag job from the ledger. Times and durations are integer
milliseconds, times since the epoch on the broker's clock; all other figures count messages, unless they say otherwise.
Source: docs/concepts/lag.md, "States".

Three spans end with the last snapshot:

- the *window* is everything that was looked at, since the queue was made: another one under the same name is not it;
- the *stretch* begins with the last snapshot in which the subscription was caught up, or with the window: what is wrong
  now began after it;
- the *recent* span is the part of the window that is no older than `Thresholds.recent_ms`, so that trouble shows soon
  although the window began well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Final

__all__ = [
    "NO_GROWTH",
    "TOTALS",
    "ConsumerWork",
    "Coverage",
    "Duration",
    "Figures",
    "Growth",
    "Percentiles",
    "RepeatedMessage",
    "Span",
    "Standing",
    "Subject",
    "Work",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Which subscription it is. The owner is the resource that declared it, if one did."""

    ordinal: int
    queue_name: str
    owner_namespace: str | None = None
    owner_name: str | None = None
    owner_uid: str | None = None


@dataclass(frozen=True, slots=True)
class RepeatedMessage:
    """A message that is unsettled although it was delivered again and again."""

    id: str
    delivery_count: int
    """Failed deliveries."""
    age_ms: int
    """Never below 0, also if the broker's clock went back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The last snapshot. depth = ready + in_flight + scheduled."""

    observed_ms: int
    depth: int
    ready: int
    in_flight: int
    scheduled: int = 0
    stranded: int = 0
    """Of the scheduled ones: wait for a dead-letter or expiry destination that does not take them."""
    age_ms: int | None
    """Age of the oldest unsettled message; None if none waits, or if the broker's clock went back behind it."""
    hold_ms: int | None
    """How long the longest-held delivery has been out; None as for `age_ms`."""
    expires_in_ms: tuple[int, int] | None = None
    """How long the ready messages live that are handed out first and last; None if one of them lives for ever, if they
    are not handed out in the order of arrival, or if the broker does not say.
    """
    consumers: int
    credit: int
    usable_consumers: int | None = None
    """Links that could take the first ready message; None if the broker does not say."""
    unused_since_ms: int | None = None
    """Since when no link consumes; None while one does."""
    repeated: tuple[RepeatedMessage, ...] = ()
    """The worst few, the highest delivery count first."""

    @property
    def later(self) -> int:
        """Messages that are due later: nobody is to take them now."""
        return max(self.scheduled - self.stranded, 0)

    @property
    def waiting(self) -> int:
        """All messages but those: what a consumer, or a destination, has not taken yet."""
        return self.depth - self.later


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How well the polls of its broker cover the window."""

    last_poll_ms: int
    elapsed_ms: int
    """Between the first and the last poll of the broker."""
    polls: int
    interval_ms: int
    """Intended time between two polls."""
    clock_steps: int = 0
    """Polls before which the broker's clock was set: the observer saw it, or the time was not after that of the poll
    before.
    """
    clock_step_ms: int | None = None
    """By how much it was set the last time, below 0 if back; None if the observer did not see it: it was set back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """By how much the totals of a subscription grew: over a span, or since a life began."""

    enqueued: int = 0
    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    expired: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    moved: int = 0
    """By an administrator, to another queue: neither accepted nor lost."""
    purged: int = 0
    """By an administrator, who wanted them gone: neither accepted nor lost."""
    lost_at_restart: int = 0

    @property
    def is_progress(self) -> bool:
        """A message was accepted, or an administrator took one out."""
        return self.acked > 0 or self.moved > 0 or self.purged > 0

    @property
    def lost(self) -> int:
        """Messages that went without having been accepted, and that nobody moved or purged on purpose."""
        return self.expired + self.dead_lettered + self.dropped + self.lost_at_restart

    def plus(self, other: Growth) -> Growth:
        """Both together."""
        return Growth(**{name: getattr(self, name) + getattr(other, name) for name in TOTALS})


TOTALS: Final = tuple(field.name for field in fields(Growth))
"""The names of the totals."""
NO_GROWTH: Final = Growth()


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A row of snapshots that ends with the last one. `min_` and `max_` are over all of them, the first included."""

    elapsed_ms: int
    """From its first snapshot to its last."""
    snapshots: int
    first_depth: int
    first_scheduled: int = 0
    first_age_ms: int | None
    """As `Standing.age_ms`, in its first snapshot."""
    falls: int = 0
    """Snapshots with a smaller depth than the one before."""
    restarts: int = 0
    """Snapshots of another start of the broker than the one before: what is there then may be what a backup had, and no
    total tells how it came or went.
    """
    min_depth: int
    min_ready: int
    min_in_flight: int
    min_consumers: int
    min_credit: int
    """The smallest credit of the links that could take the first ready message."""
    max_credit: int
    """The largest credit of all links."""
    growth: Growth = NO_GROWTH
    """From its first snapshot to its last, so a rate is this divided by `elapsed_ms`."""
    born: Growth = NO_GROWTH
    """What had happened before its first snapshot, if the subscription was made after the poll before: nobody knows how
    long that took, so it is in no rate.
    """

    @property
    def counted(self) -> Growth:
        """All that happened in the span."""
        return self.growth if self.born is NO_GROWTH else self.growth.plus(self.born)


@dataclass(frozen=True, slots=True)
class Duration:
    """How long something took, of everything of which it ended in the window."""

    count: int = 0
    sum_ms: int = 0
    p95: int | None = None
    """Bucket as in penstock_lag_rules.buckets; None: nothing, or not known without the ledger."""

    @property
    def mean_ms(self) -> int | None:
        """Rounded down; None if nothing ended."""
        return self.sum_ms // self.count if self.count else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the consumers did while all of them had something to do: over the busy intervals of the window.

    An interval between two snapshots is busy if at both ends messages were ready, the subscription was not caught up,
    and every consumer could take the first ready message (penstock_lag_rules.history.work_between).
    """

    intervals: int = 0
    accepted: int = 0
    consumer_ms: int = 0
    """Connected time of all consumers together."""


@dataclass(frozen=True, slots=True)
class ConsumerWork:
    """What one container got in the window."""

    container: str
    delivered: int
    connected_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Of the messages that were accepted in the window: buckets as in penstock_lag_rules.buckets, None without any."""

    completions: int = 0
    sojourn_p50: int | None = None
    sojourn_p95: int | None = None
    sojourn_p99: int | None = None
    hold_p99: int | None = None
    """Of the queue's whole life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Everything that is known of one subscription."""

    subject: Subject
    standing: Standing
    coverage: Coverage
    window: Span
    stretch: Span
    recent: Span
    caught_up_ms: int | None
    """Time of the last snapshot in which it was caught up; None: in none of the window."""
    progressed_ms: int
    """Time of the last snapshot in which a message was seen to have been accepted, or moved; the first of the window if
    there was none.
    """
    consumed_ms: int | None
    """Time of the last snapshot with a consumer; None if there was none."""
    percentiles: Percentiles = field(default_factory=Percentiles)
    work: Work = field(default_factory=Work)
    wait: Duration = Duration()
    """From available to the first delivery."""
    hold: Duration = Duration()
    """From a delivery to its outcome."""
    consumers: tuple[ConsumerWork, ...] = ()
    """Those at the end of the window that got most; the first got most. Empty without the ledger."""
    lives: int = field(default=1, compare=False)
    """How many lives of it are in the window, as far as its rows were read: one for each start of its broker. Only with
    the ledger.
    """

    @property
    def without_consumer_ms(self) -> int:
        """How long there has been no consumer; 0 while there is one. What the broker reports is preferred to the
        samples.
        """
        now = self.standing
        if now.consumers > 0:
            return 0
        since_ms = now.unused_since_ms
        if since_ms is None:
            since_ms = now.observed_ms - self.window.elapsed_ms if self.consumed_ms is None else self.consumed_ms
        return max(now.observed_ms - since_ms, 0)

    @property
    def without_progress_ms(self) -> int:
        """How long no message has been accepted, as far as the window shows."""
        return max(self.standing.observed_ms - self.progressed_ms, 0)
