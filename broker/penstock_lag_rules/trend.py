"""Whether a backlog grows or shrinks, how fast, and when it will be empty: only where counts are beyond their noise.

Arrivals and departures that are independent of each other make a depth wander by about the square root of their number,
without any trend. A change counts if it is more than twice that. What was lost, or taken out by an administrator, is no
work of the consumers, so it is no part of the change. Source: docs/concepts/lag.md, "What is measured".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from penstock_lag_rules.figures import Figures, Span, Standing

__all__ = ["DrainTime", "Trend", "became_due", "drain_time", "due_later", "per_minute", "trend", "trend_over"]

MINUTE_MS: Final = 60_000
DEVIATIONS: Final = 2
"""A change within so many standard deviations is noise."""


@dataclass(frozen=True, slots=True)
class Trend:
    """How the depth changed over a span. `change`, `removed` and `noise` count messages."""

    change: int
    """By arrivals, accepts and what became due: above 0 the backlog grew, without what is due later."""
    removed: int
    """Messages that were lost, moved or purged besides."""
    noise: float
    elapsed_ms: int
    fell: int
    """By how much that part of the backlog fell which a consumer may get now: by arrivals, accepts and what became due.
    """

    @property
    def direction(self) -> int:
        """1 if the backlog grew, -1 if it shrank, 0 if the change is noise."""
        if self.elapsed_ms <= 0 or abs(self.change) <= self.noise:
            return 0
        return 1 if self.change > 0 else -1


@dataclass(frozen=True, slots=True)
class DrainTime:
    """Seconds until the backlog is empty if it goes on like this: the likely value, and the range in which it lies."""

    likely: int
    low: int
    high: int


def trend_over(span: Span, now: Standing) -> Trend:
    """The change of depth from the first snapshot of a span to the last."""
    grown, removed = span.growth, _removed(span)
    noise = DEVIATIONS * math.sqrt(grown.enqueued + became_due(span, now) + grown.acked)
    if span.restarts:  # what else the depth changed by is nobody's work: it was not seen, or a backup has come back
        change = grown.enqueued - grown.acked
        return Trend(change, removed, noise, span.elapsed_ms, -change)
    available = now.depth - now.scheduled - (span.first_depth - span.first_scheduled)
    fell = -available - removed
    change = now.depth - span.first_depth + removed
    if change > 0:  # what is due later makes the depth grow, and no consumer can do anything about it
        change = min(change, max(-fell, 0))
    if available > 0:  # what became due is work, although the depth had it before
        change = max(change, available)
    return Trend(change, removed, noise, span.elapsed_ms, fell)


def became_due(span: Span, now: Standing) -> int:
    """How many messages became due in a span, beyond those that came in it with a delay: at least, because what was
    lost, moved or purged may have been delayed, too. Over a restart nobody knows, which is 0.
    """
    return 0 if span.restarts else max(span.first_scheduled - now.scheduled - _removed(span), 0)


def due_later(span: Span, now: Standing) -> int:
    """How many of the messages that came in a span are due after it, beyond those that became due in it: at least,
    because stranded ones are no arrivals. Over a restart as `became_due`.
    """
    return 0 if span.restarts else min(max(now.later - span.first_scheduled, 0), span.growth.enqueued)


def _removed(span: Span) -> int:
    return span.growth.lost + span.growth.moved + span.growth.purged


def trend(figures: Figures) -> Trend:
    """What the backlog does now: over the recent span, or, if its change is noise, over the stretch, unless the recent
    span shows that this is over.
    """
    recent = trend_over(figures.recent, figures.standing)
    if recent.direction:
        return recent
    stretch = trend_over(figures.stretch, figures.standing)
    if stretch.direction and stretch.elapsed_ms > recent.elapsed_ms:
        expected = stretch.change * recent.elapsed_ms / stretch.elapsed_ms
        if abs(recent.change - expected) <= recent.noise:
            return stretch
    return recent


def drain_time(figures: Figures) -> DrainTime | None:
    """Of what a consumer may get now, without what is due later or stranded. None unless that shrinks, and all of the
    backlog does, because messages are accepted: also in the recent span, or what was is taken for what will be.
    """
    found = trend(figures)
    waits = figures.standing.depth - figures.standing.scheduled
    if found.direction >= 0 or waits == 0 or figures.recent.growth.acked == 0:
        return None
    if found.fell <= found.noise:
        return None
    return DrainTime(
        likely=_seconds(waits * found.elapsed_ms / found.fell),
        low=_seconds(waits * found.elapsed_ms / (found.fell + found.noise)),
        high=_seconds(waits * found.elapsed_ms / (found.fell - found.noise)),
    )


def per_minute(count: int, elapsed_ms: int) -> int | None:
    """Rounded to the nearest, halves away from 0; None if no time has passed."""
    if elapsed_ms <= 0:
        return None
    size = (abs(count) * MINUTE_MS * 2 + elapsed_ms) // (elapsed_ms * 2)
    return size if count >= 0 else -size


def _seconds(milliseconds: float) -> int:
    return math.ceil(milliseconds / 1000)
