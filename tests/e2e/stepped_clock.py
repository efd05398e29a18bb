"""Runs `penstock` with a time of day that another process sets: `stepped_clock.py FILE VERB ...`.

FILE has the seconds, as decimal digits with a sign, by which the clock is ahead. Whatever in the process asks for the
time of day gets it from there; the clock that never goes back, by which timers run, stays as it is, as it does on a
machine whose time of day is set.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Final

__all__ = ["set_ahead"]

WIDTH: Final = 16
"""Bytes of FILE, so that one write replaces all of them."""


def set_ahead(file: Path, seconds: int) -> None:
    """Set the clock of whoever runs with this file."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(handle, str(seconds).ljust(WIDTH).encode(), 0)
    finally:
        os.close(handle)


def _run(file: str) -> None:
    handle = os.open(file, os.O_RDONLY)
    real_ns = time.time_ns
    time.time_ns = lambda: real_ns() + int(os.pread(handle, WIDTH, 0)) * 1_000_000_000
    time.time = lambda: time.time_ns() / 1e9
    from penstock_cli.main import main  # after the clock was replaced

    main()


if __name__ == "__main__":
    _, given, *sys.argv[1:] = sys.argv
    _run(given)
