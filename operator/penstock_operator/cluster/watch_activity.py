"""When each watch was opened last: each ends after a while and is opened again, so one that is not is dead or stuck.

kopf opens a watch again when the server ends it after its time-out, when nothing has come for a while (the server sends
bookmarks), and when the connection is lost. Synchronous; times are seconds. Source:
docs/decisions/108-each-watch-is-seen.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["WatchActivity"]


@dataclass(slots=True)
class WatchActivity:
    """The watches of this operator."""

    timeout: float
    """The seconds after which the server ends each watch."""
    margin: float = 60.0
    """For the attempts to open a watch again while the API server restarts; then it is overdue."""
    patience: float = 300.0
    """For all watches to be started anew, after one is overdue: eleven minutes in all, as `health` waits for lists."""
    _opened: dict[str, float] = field(default_factory=dict[str, float])
    """By the path of the watch, when it was opened last, or was expected to be."""

    def expect(self, paths: Iterable[str], now: float) -> None:
        """From now on there is one watch of each path, and of no other; those that are known keep their times."""
        self._opened = {path: self._opened.get(path, now) for path in paths}

    def opened(self, path: str, now: float) -> None:
        """The API server has begun to answer a watch."""
        if path in self._opened:
            self._opened[path] = now

    def overdue(self, now: float) -> list[str]:
        """The watches that should have been opened again by now."""
        return sorted(path for path, at in self._opened.items() if now - at > self.timeout + self.margin)

    def problem(self, now: float) -> str | None:
        """Why the operator must be restarted, None if it need not be."""
        dead = self.overdue(now - self.patience)
        if not dead:
            return None
        longest = max(now - self._opened[path] for path in dead)
        return f"the watches of {', '.join(dead)} were not opened again for {longest:.0f} s"
