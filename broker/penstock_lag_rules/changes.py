"""What changed: sentences that compare the window of a subscription with the hours before it.

A rule compares one figure, and says nothing of a change that chance explains or that is too small to matter; the
numbers are in `Floors`. The table `RULES` is the order of what matters most. Pure. Source: docs/concepts/lag.md, "What
changed".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import sqrt
from typing import Final

from penstock_lag_rules.paces import Pace

__all__ = ["LENGTH", "MOST", "RULES", "Fast", "Floors", "Past", "changes"]

MOST: Final = 3
"""Sentences about one subscription."""
LENGTH: Final = 160
"""Characters of one."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fast:
    """How a subscription does now, and what it did in the window."""

    elapsed_ms: int
    arrived: int
    accepted: int
    lost: int
    waiting: int
    """Ready or in flight: what is due later, or stranded, no consumer can accept."""
    age_ms: int | None
    consumers: int
    sojourn_p95_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The hours before: the last one, and up to 24. Either may not be known."""

    hour: Pace | None = None
    day: Pace | None = None
    hour_p95_ms: int | None = None
    day_p95_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Floors:
    """What a change has to be at least, so that it is named."""

    factor: float = 2.0
    """So many times as much, or as little."""
    messages: int = 20
    """In the window, or to be expected in it."""
    deviations: float = 4.0
    """So many times the square root of what is expected: independent arrivals wander by about one."""
    lost: int = 5
    sojourn_ms: int = 100
    age_ms: int = 60_000


Rule = Callable[[Fast, Past, Floors], str | None]


def changes(fast: Fast, past: Past, floors: Floors | None = None) -> tuple[str, ...]:
    """At most three sentences, without full stops, the weightiest first."""
    said = (rule(fast, past, floors or Floors()) for rule in RULES)
    return tuple(sentence[:LENGTH] for sentence in said if sentence is not None)[:MOST]


def _losses(fast: Fast, past: Past, floors: Floors) -> str | None:
    pace = past.day or past.hour
    if pace is None or fast.lost < floors.lost:
        return None
    expected = _expected(pace.lost, pace, fast)
    if fast.lost < floors.factor * expected or not _is_beyond_chance(fast.lost, expected, floors):
        return None
    before = "none was" if pace.lost == 0 else f"{_per_minute(pace.lost, pace.elapsed_ms)} a minute were"
    return f"{_per_minute(fast.lost, fast.elapsed_ms)} messages a minute are lost; {before} {_when(pace)}"


def _fewer_consumers(fast: Fast, past: Past, floors: Floors) -> str | None:
    pace = past.hour
    if pace is None or not pace.is_whole or fast.consumers >= pace.min_consumers:
        return None
    return f"the consumers fell from {pace.min_consumers} to {fast.consumers}, compared with the least {_when(pace)}"


def _slower_consumers(fast: Fast, past: Past, floors: Floors) -> str | None:
    """Only if messages wait and arrive as before: otherwise there is less to accept."""
    pace = past.hour or past.day
    if pace is None or fast.waiting == 0:
        return None
    expected = _expected(pace.accepted, pace, fast)
    if not _is_less(fast.accepted, expected, floors):
        return None
    if fast.waiting < expected and _is_less(fast.arrived, _expected(pace.arrived, pace, fast), floors):
        return None
    rates = _rates(fast.accepted, fast, pace.accepted, pace)
    return f"the consumers accept {_share(fast.accepted, expected)} of what they did {rates}"


def _older(fast: Fast, past: Past, floors: Floors) -> str | None:
    pace = past.hour
    if pace is None or not pace.is_whole or fast.age_ms is None or fast.age_ms < floors.age_ms:
        return None
    if fast.age_ms < floors.factor * pace.max_age_ms:
        return None
    longest = f"none waited for more than {_duration(pace.max_age_ms)}" if pace.max_age_ms else "none waited"
    return f"the oldest message has waited for {_duration(fast.age_ms)}; {longest} {_when(pace)}"


def _more_arrivals(fast: Fast, past: Past, floors: Floors) -> str | None:
    pace = past.day or past.hour
    if pace is None:
        return None
    expected = _expected(pace.arrived, pace, fast)
    if fast.arrived < max(floors.messages, floors.factor * expected):
        return None
    if not _is_beyond_chance(fast.arrived, expected, floors):
        return None
    if pace.arrived == 0:
        return f"{_per_minute(fast.arrived, fast.elapsed_ms)} messages a minute arrive; none did {_when(pace)}"
    times = round(fast.arrived / expected)
    return f"{times} times as many messages arrive as {_rates(fast.arrived, fast, pace.arrived, pace)}"


def _slower_sojourn(fast: Fast, past: Past, floors: Floors) -> str | None:
    pace, before = (past.day, past.day_p95_ms) if past.day_p95_ms is not None else (past.hour, past.hour_p95_ms)
    now = fast.sojourn_p95_ms
    if pace is None or before is None or now is None:
        return None
    if now < floors.factor * before or now - before < floors.sojourn_ms:
        return None
    return f"p95 of the sojourn grew from {_duration(before)} to {_duration(now)}, compared with that {_when(pace)}"


def _fewer_arrivals(fast: Fast, past: Past, floors: Floors) -> str | None:
    pace = past.day or past.hour
    if pace is None:
        return None
    expected = _expected(pace.arrived, pace, fast)
    if not _is_less(fast.arrived, expected, floors):
        return None
    if fast.arrived == 0:
        return f"no messages arrive; {_per_minute(pace.arrived, pace.elapsed_ms)} a minute did {_when(pace)}"
    share, rates = _share(fast.arrived, expected), _rates(fast.arrived, fast, pace.arrived, pace)
    return f"only {share} as many messages arrive as {rates}"


def _more_consumers(fast: Fast, past: Past, floors: Floors) -> str | None:
    pace = past.hour
    if pace is None or not pace.is_whole or fast.consumers <= pace.max_consumers:
        return None
    return f"the consumers rose from {pace.max_consumers} to {fast.consumers}, compared with the most {_when(pace)}"


RULES: Final[tuple[Rule, ...]] = (
    _losses,
    _fewer_consumers,
    _slower_consumers,
    _older,
    _more_arrivals,
    _slower_sojourn,
    _fewer_arrivals,
    _more_consumers,
)
"""The weightiest first: what is lost, then what the consumers do, then what comes in."""


def _expected(count: int, pace: Pace, fast: Fast) -> float:
    """How many there would be in the window at the slow pace."""
    return count * fast.elapsed_ms / pace.elapsed_ms


def _is_beyond_chance(count: int, expected: float, floors: Floors) -> bool:
    return abs(count - expected) > floors.deviations * sqrt(max(expected, 1.0))


def _is_less(count: int, expected: float, floors: Floors) -> bool:
    enough = expected >= floors.messages and count * floors.factor <= expected
    return enough and _is_beyond_chance(count, expected, floors)


def _rates(count: int, fast: Fast, before: int, pace: Pace) -> str:
    now, then = _per_minute(count, fast.elapsed_ms), _per_minute(before, pace.elapsed_ms)
    return f"{_when(pace)}: {now} instead of {then} a minute"


def _when(pace: Pace) -> str:
    hours = max(round(pace.elapsed_ms / 3_600_000), 1)
    end = _EPOCH + timedelta(milliseconds=pace.end_ms)
    return f"in the {'hour' if hours == 1 else f'{hours} hours'} before {end:%H:%M} UTC"


def _per_minute(count: int, elapsed_ms: int) -> str:
    rate = count * 60_000 / elapsed_ms
    return f"{rate:.0f}" if rate >= 10 or rate == 0 else f"{rate:.1g}" if rate < 1 else f"{rate:.1f}".removesuffix(".0")


def _share(count: int, expected: float) -> str:
    return f"{round(100 * count / expected)} %"


def _duration(milliseconds: int) -> str:
    seconds = milliseconds / 1000
    if seconds < 1:
        return f"{milliseconds} ms"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
