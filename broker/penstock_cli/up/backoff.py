"""When a child that died starts again. Pure: how long it lived goes in, how long to wait comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["FIRST_SECONDS", "LONGEST_SECONDS", "STEADY_SECONDS", "Backoff"]

FIRST_SECONDS: Final = 0.1
LONGEST_SECONDS: Final = 10.0
STEADY_SECONDS: Final = 30.0
"""A child that lived so long was healthy: its next start is the first of a new row."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delay before the next start."""

    seconds: float = FIRST_SECONDS

    def after(self, lived_seconds: float) -> Backoff:
        """The backoff of the start after next, given how long the child lived this time."""
        if lived_seconds >= STEADY_SECONDS:
            return Backoff()
        return Backoff(min(self.seconds * 2, LONGEST_SECONDS))
