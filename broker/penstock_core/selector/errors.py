"""Why a text is no selector, and where."""

from __future__ import annotations

__all__ = ["InvalidSelector"]


class InvalidSelector(ValueError):
    """A text that is no selector; ``position`` counts characters from 1."""

    def __init__(self, position: int, cause: str) -> None:
        super().__init__(f"at character {position}: {cause}")
        self.position = position
        self.cause = cause
