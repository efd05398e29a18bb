"""How many writes may be on the way to the API server at the same time: more while it answers soon, fewer when it is
slow, one after it has refused. Pure; measured times come in. Source: docs/decisions/069-two-sources-of-lag.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["WriteWindow"]

MOST: Final = 8
"""Never more. Kubernetes gives all clients of a priority level together a few dozen places."""
_SOON_SECONDS: Final = 0.1
"""An answer within this time says that there is room for more."""
_SLOW_SECONDS: Final = 0.5
"""An answer after this time says that there are too many already."""


@dataclass(slots=True)
class WriteWindow:
    """How many writes may be on the way."""

    limit: int = 1
    _soon: int = 0
    """Answers that came soon, since the limit changed."""

    def answered(self, seconds: float) -> None:
        """A write was answered after so many seconds. As many soon answers as the limit has raise it by one."""
        if seconds > _SLOW_SECONDS:
            self.limit, self._soon = max(1, self.limit // 2), 0
        elif seconds <= _SOON_SECONDS:
            self._soon += 1
            if self._soon >= self.limit and self.limit < MOST:
                self.limit, self._soon = self.limit + 1, 0

    def refused(self) -> None:
        """The API server was overloaded, or could not be reached."""
        self.limit, self._soon = 1, 0
