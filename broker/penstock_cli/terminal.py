"""Whether a stream is a terminal on which what was shown can be erased and drawn anew."""

from __future__ import annotations

import os
from typing import Final, Protocol

__all__ = ["can_erase"]

CANNOT_ERASE: Final = ("", "dumb")
"""Of $TERM: nobody has said what the terminal can, or it can do nothing, as the shell of an editor."""


class _Stream(Protocol):
    def isatty(self) -> bool: ...


def can_erase(stream: _Stream | None) -> bool:
    """False for files, pipes, closed streams (None), and terminals that show control sequences as letters."""
    return stream is not None and stream.isatty() and os.environ.get("TERM", "") not in CANNOT_ERASE
