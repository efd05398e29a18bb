"""Who is logged in to the page: sessions in memory, each for a random name that a cookie holds.

A session ends after `SESSION_SECONDS`, when its reader logs out, when the observer ends, and as soon as the token with
which it began is valid no longer. Clock and randomness are arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["MOST_SESSIONS", "SESSION_SECONDS", "Sessions"]

SESSION_SECONDS: Final = 3600
MOST_SESSIONS: Final = 1000
"""If there are more, the oldest one ends."""


@dataclass(frozen=True, slots=True)
class _Session:
    token: str
    ends: float


class Sessions:
    """The open sessions. Holds tokens in memory and nowhere else."""

    def __init__(self, clock: Callable[[], float], new_name: Callable[[], str]) -> None:
        self._clock = clock
        self._new_name = new_name
        self._open: dict[str, _Session] = {}

    def begin(self, token: str) -> str:
        """A new session of someone who has shown a token; its name."""
        now = self._clock()
        self._open = {name: each for name, each in self._open.items() if each.ends > now}
        while len(self._open) >= MOST_SESSIONS:
            del self._open[next(iter(self._open))]
        name = self._new_name()
        self._open[name] = _Session(token, now + SESSION_SECONDS)
        return name

    def token(self, name: str | None) -> str | None:
        """The token of an open session, which must still be checked; None if there is no such session."""
        session = self._open.get(name or "")
        return session.token if session is not None and session.ends > self._clock() else None

    def end(self, name: str | None) -> None:
        """End a session; one that does not exist has ended already."""
        self._open.pop(name or "", None)
