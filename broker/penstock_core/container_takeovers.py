"""When two programs that use one container-id keep taking it from each other.

Each believes that it is the only one: it closes the other's connection, or steals its links, the other connects again
and does the same. Nothing is lost, and nothing gets done. A client that fails over takes from its own dead connection
once, however many links it had: so only a change of the one who takes counts, and a connection whose peer is gone is
not counted at all (the caller knows). Must not know connections, clocks or where it is shown. Source: decision 13 of
the design.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

__all__ = ["LONGEST_SPAN_MS", "SHORTEST_QUIET_MS", "TAKEOVERS", "Contest", "is_contested", "taken_over"]

TAKEOVERS: Final = 5
"""So many in a row make a container-id contested."""
LONGEST_SPAN_MS: Final = 30 * 60_000
"""The last five lie within this: two pods that crash in turn, each held back five minutes, need twenty."""
SHORTEST_QUIET_MS: Final = 60_000
"""The contest is over after as long a silence as the last five took, but not before this."""


@dataclass(frozen=True, slots=True)
class Contest:
    """What has become of one container-id so far. Times in milliseconds on any one clock that never goes back."""

    winner: int
    """The connection that took last."""
    times: tuple[int, ...]
    """The last takeovers, at most five, in order."""
    takeovers: int
    """All of this contest."""


def taken_over(before: Contest | None, winner: int, now_ms: int) -> Contest:
    """The connection `winner` has just taken something from another one of its container-id, whose peer may live."""
    if before is None or now_ms - before.times[-1] > LONGEST_SPAN_MS:
        return Contest(winner, (now_ms,), 1)
    if before.winner == winner:
        # One connection takes one link after the other: it counts once.
        return before
    return replace(before, winner=winner, times=(*before.times, now_ms)[-TAKEOVERS:], takeovers=before.takeovers + 1)


def is_contested(contest: Contest, now_ms: int) -> bool:
    """True while the container-id keeps changing hands."""
    if len(contest.times) < TAKEOVERS:
        return False
    span = contest.times[-1] - contest.times[0]
    return span <= LONGEST_SPAN_MS and now_ms - contest.times[-1] <= max(span, SHORTEST_QUIET_MS)
