"""When two programs that use one container-id keep taking it from each other.

Each believes that it is the only one: it closes the other's connection, or steals its links; the other connects again
and does the same. No message is lost, but no work is done either. A client that fails over takes from its own dead
connection once, however many links it had. So only a change of the winner counts, and a connection whose peer is known
to be gone is not counted at all (the caller knows that). This module must not know connections, clocks, or where a
contest is shown. Source: docs/decisions/013-container-uniqueness.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

__all__ = ["LONGEST_SPAN_MS", "SHORTEST_QUIET_MS", "TAKEOVERS", "Contest", "is_contested", "taken_over"]

TAKEOVERS: Final = 5
"""This many takeovers in a row make a container-id contested."""
LONGEST_SPAN_MS: Final = 30 * 60_000
"""The last five takeovers must lie within this span. Two pods that crash in turn, each held back for five minutes by
Kubernetes, need twenty minutes for five takeovers.
"""
SHORTEST_QUIET_MS: Final = 60_000
"""A contest is over when nothing was taken over for as long as the last five takeovers took, and at least for this."""


@dataclass(frozen=True, slots=True)
class Contest:
    """The takeovers of one container-id so far. Times are milliseconds on any clock that never goes back."""

    winner: int
    """The connection that took last."""
    times: tuple[int, ...]
    """The last takeovers, at most five, in order."""
    takeovers: int
    """Number of takeovers since the contest began."""


def taken_over(before: Contest | None, winner: int, now_ms: int) -> Contest:
    """The contest after the connection `winner` took something from another one of its container-id, which may live."""
    if before is None or now_ms - before.times[-1] > LONGEST_SPAN_MS:
        return Contest(winner, (now_ms,), 1)
    if before.winner == winner:
        # One connection that takes several links, one after the other, counts once.
        return before
    return replace(before, winner=winner, times=(*before.times, now_ms)[-TAKEOVERS:], takeovers=before.takeovers + 1)


def is_contested(contest: Contest, now_ms: int) -> bool:
    """True while connections keep taking the container-id from each other."""
    if len(contest.times) < TAKEOVERS:
        return False
    span = contest.times[-1] - contest.times[0]
    return span <= LONGEST_SPAN_MS and now_ms - contest.times[-1] <= max(span, SHORTEST_QUIET_MS)
