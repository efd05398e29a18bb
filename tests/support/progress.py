"""Notes in a file which tests start and end, for hack/test: it stops a stage in which no test ends any more, and says
which test ended last. Without the variable in the environment nothing is noted.
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["VARIABLE", "note_end", "note_start"]

VARIABLE: Final = "PENSTOCK_TEST_PROGRESS"
"""Names the file; hack/stages/progress.py reads it."""


def note_start(name: str) -> None:
    """A test starts."""
    _note(f"start {name}\n")


def note_end(name: str) -> None:
    """A test has ended, whatever its outcome."""
    _note(f"end {name}\n")


def _note(line: str) -> None:
    path = os.environ.get(VARIABLE)
    if path is None:
        return
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())  # one write each: several processes may append
    finally:
        os.close(file)
