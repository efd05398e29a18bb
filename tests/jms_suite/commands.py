"""The command of the broker that all Java tests share: it runs this Python, whatever the PATH says.

With PENSTOCK_TEST_WINDOW=N in the environment it keeps at most N messages of each queue in memory, as in
`jms_suite.forks`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from support import paged_penstock

__all__ = ["penstock_command"]


def penstock_command(folder: Path) -> Path:
    """`penstock`."""
    window = os.environ.get("PENSTOCK_TEST_WINDOW")
    path = folder / "penstock"
    what = paged_penstock.command(window) if window else "-m penstock_cli"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {what} "$@"\n')
    path.chmod(0o755)
    return path
