"""Commands for Java tests that start brokers of their own: they run this Python, whatever the PATH says.

With PENSTOCK_TEST_WINDOW=N in the environment, these brokers keep at most N messages of each queue in memory, so that
everything that the tests do is done with queues that are paged.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from support import paged_penstock

__all__ = ["declaring_command", "penstock_command"]


def penstock_command(folder: Path) -> Path:
    """`penstock`."""
    window = os.environ.get("PENSTOCK_TEST_WINDOW")
    return _executable(folder / "penstock", paged_penstock.command(window) if window else "-m penstock_cli")


def declaring_command(folder: Path) -> Path:
    """`declare.py`."""
    return _executable(folder / "declare", str(Path(__file__).with_name("declare.py")))


def _executable(path: Path, what: str) -> Path:
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {what} "$@"\n')
    path.chmod(0o755)
    return path
