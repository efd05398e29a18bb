"""How many requests of one operator may be on the way to the API server at the same time: more while they are answered
as fast as the server can, fewer when they wait for one another there.

A server that is far away answers all requests slowly, and more of them at a time do no harm. A server without idle
processors answers the slower the more it is asked, and whoever asks it for something urgent, such as the renewal of a
Lease, waits as long. So what is slow is measured by the fastest answers. Pure; measured times come in. Source:
docs/decisions/129-the-process-goes-on.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["LEAST", "MOST", "RequestWindow"]

LEAST: Final = 8
MOST: Final = 64
_SOON_SECONDS: Final = 0.1
"""An answer within this time is never too late,"""
_SLOW_SECONDS: Final = 0.5
"""and one within this time never much too late."""
_SOON_TIMES: Final = 2
"""An answer that took at most so many times as long as the fastest says that there is room for more."""
_SLOW_TIMES: Final = 4
"""One that took longer than so many times the fastest says that there are too many."""


@dataclass(slots=True)
class RequestWindow:
    """How many requests may be on the way."""

    limit: int = LEAST
    _fastest: float = float("inf")
    """Never forgotten: a server that is busy for an hour would otherwise seem to be far away."""
    _soon: int = 0
    """Answers that came soon, since the limit changed."""

    def answered(self, seconds: float) -> None:
        """A request was answered after so many seconds. As many soon answers as the limit has raise it by one."""
        self._fastest = min(seconds, self._fastest)
        if seconds > max(_SLOW_SECONDS, _SLOW_TIMES * self._fastest):
            self.limit, self._soon = max(LEAST, self.limit // 2), 0
        elif seconds <= max(_SOON_SECONDS, _SOON_TIMES * self._fastest):
            self._soon += 1
            if self._soon >= self.limit and self.limit < MOST:
                self.limit, self._soon = self.limit + 1, 0

    def refused(self) -> None:
        """The API server was overloaded, or could not be reached."""
        self.limit, self._soon = LEAST, 0
