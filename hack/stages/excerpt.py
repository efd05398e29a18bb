"""What hack/test repeats of a failed stage's output at its very end, where whoever looks at CI's output sees it."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["excerpt"]

LINES: Final = 40
LENGTH: Final = 500
"""Characters of a line: the rest is in the log."""
NAMED: Final = re.compile(r"(FAILED|ERROR) \S+::")
"""How pytest's summary begins to tell of a test."""


def excerpt(text: str) -> list[str]:
    """The last lines of an output, and before them the lines further up that name a test that failed."""
    lines = [line[:LENGTH] for line in text.splitlines() if line.strip()]
    named = [line for line in lines[:-LINES] if NAMED.match(line)]
    return named[-LINES:] + lines[-LINES:]
