"""A limit for the rate of writes to the API server, shared by all who write. Pure; the time comes in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["WritePace"]

_UNSAID_SECONDS: Final = 1.0
"""The rest after an answer that does not say how long to wait."""


@dataclass(slots=True)
class WritePace:
    """At most so many writes per second, evenly spaced, in the order in which they were asked for."""

    writes_per_second: float
    _next_at: float = float("-inf")
    _rests_until: float = float("-inf")

    def wait(self, now: float) -> float:
        """Seconds that the caller has to wait before its write; `now`: seconds of a clock that never goes back."""
        turn = max(now, self._next_at)
        self._next_at = turn + 1 / self.writes_per_second
        return turn - now

    def ahead(self, now: float) -> float:
        """Seconds until a write may begin, without asking for one."""
        return max(self._next_at - now, 0.0)

    def rest(self, now: float, seconds: float | None) -> None:
        """No write begins within so many seconds from `now`; None or 0: the API server did not say how many."""
        self._rests_until = max(self._rests_until, now + (seconds or _UNSAID_SECONDS))
        self._next_at = max(self._next_at, self._rests_until)

    def is_resting(self, now: float) -> bool:
        """Whether no write may begin: also one whose wait began before the rest."""
        return now < self._rests_until
