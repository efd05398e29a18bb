"""A limit for the rate of writes to the API server, shared by all who write. Pure; the time comes in."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["WritePace"]


@dataclass(slots=True)
class WritePace:
    """At most so many writes per second, evenly spaced, in the order in which they were asked for."""

    writes_per_second: float
    _next_at: float = float("-inf")

    def wait(self, now: float) -> float:
        """Seconds that the caller has to wait before its write; `now`: seconds of a clock that never goes back."""
        turn = max(now, self._next_at)
        self._next_at = turn + 1 / self.writes_per_second
        return turn - now
