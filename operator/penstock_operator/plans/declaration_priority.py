"""How long writes of status that can wait let declarations go first.

A broker that begins empty needs all its declarations, and whoever publishes to it needs them at once; that a figure in
a status is a minute older hurts nobody. API server, operator and broker may share two cores. But declarations may never
end, so their priority does: at most a minute in a row, and afterwards half of the time. Pure; the time comes in.
Source: docs/decisions/121-declarations-go-first.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["LONGEST_SECONDS", "LOOK_AGAIN_SECONDS", "DeclarationPriority"]

LONGEST_SECONDS: Final = 60.0
"""The longest wait in a row. It is below the 90 s after which lag that is not read is called unknown."""
LOOK_AGAIN_SECONDS: Final = 0.1
"""Who waits asks again after that."""


@dataclass(slots=True)
class DeclarationPriority:
    """What is left of it; what was waited for comes back as fast as time passes."""

    _seconds_left: float = LONGEST_SECONDS
    _is_waiting: bool = False
    _asked_at: float | None = None

    def must_wait(self, now: float, *, is_declaring: bool) -> bool:
        """Whether to wait now. `is_declaring`: whether declarations are on the way to a broker; `now`: seconds of a
        clock that never goes back.
        """
        passed = 0.0 if self._asked_at is None else now - self._asked_at
        left = self._seconds_left + (-passed if self._is_waiting else passed)
        self._seconds_left, self._asked_at = min(left, LONGEST_SECONDS), now
        self._is_waiting = is_declaring and self._seconds_left > 0
        return self._is_waiting
