"""What the answers of an observer say about the tokens that it knows.

An observer of an earlier release knows one token, for everything. One of this release refuses a token that was just
rotated, until kubelet has replaced the files in its pod; that must not be taken for an earlier release at once. Source:
docs/decisions/070-observer-tokens.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

__all__ = ["AcceptedTokens"]

_REFUSED_FOR: Final = timedelta(minutes=10)


@dataclass(slots=True)
class AcceptedTokens:
    """Whether the observer of one Broker knows tokens for less than everything."""

    clock: Callable[[], datetime]
    changed: Callable[[], None]
    """Called when `knows_scopes` changes."""
    knows_scopes: bool | None = None
    """None: it has neither accepted such a token nor refused it for ten minutes."""
    refused_since: datetime | None = None
    """Since when it has refused such a token without a break."""

    def note(self, *, accepted: bool) -> None:
        """Remember that the observer has accepted or refused a token for less than everything."""
        known = self.knows_scopes
        if accepted:
            self.refused_since, self.knows_scopes = None, True
        else:
            now = self.clock()
            self.refused_since = min(self.refused_since or now, now)  # the clock may have been set back
            if now - self.refused_since >= _REFUSED_FOR:
                self.knows_scopes = False
        if self.knows_scopes is not known:
            self.changed()
