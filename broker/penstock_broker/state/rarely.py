"""Log lines about what may happen thousands of times a second: one in a while for each subject.

Must not know the clock: whoever asks says what time it is.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Rarely"]

PAUSE_MS: Final = 60_000
MOST_SUBJECTS: Final = 1000


class Rarely:
    """Says whether it is time for a line."""

    __slots__ = ("_said",)

    def __init__(self) -> None:
        self._said: dict[str, int] = {}

    def may_say(self, subject: str, now_ms: int) -> bool:
        """True if nothing was said about `subject` for a minute; then the caller says it."""
        said = self._said.get(subject)
        if said is not None and now_ms - said < PAUSE_MS:
            return False
        if len(self._said) >= MOST_SUBJECTS:
            self._said.clear()
        self._said[subject] = now_ms
        return True
