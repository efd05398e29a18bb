"""Notes in a file which tests start and end, and when, for hack/test: it stops a stage in which no test ends any more,
and says which test ended last. Without the variable in the environment nothing is noted.
"""

from __future__ import annotations

import os
import time
from typing import Final

__all__ = ["VARIABLE", "note_end", "note_start"]

VARIABLE: Final = "PENSTOCK_TEST_PROGRESS"
"""Names the file; hack/stages/progress.py reads it."""


def note_start(name: str) -> None:
    """A test starts."""
    _note("start", name)


def note_end(name: str) -> None:
    """A test has ended, whatever its outcome."""
    _note("end", name)


def _note(word: str, name: str) -> None:
    path = os.environ.get(VARIABLE)
    if path is None:
        return
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, f"{time.time():.2f} {word} {name}\n".encode())  # one write each: several processes may append
    finally:
        os.close(file)
