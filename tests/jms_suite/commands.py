"""Commands for Java tests that start brokers of their own: they run this Python, whatever the PATH says."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["declaring_command", "penstock_command"]


def penstock_command(folder: Path) -> Path:
    """`penstock`."""
    return _executable(folder / "penstock", "-m penstock_cli")


def declaring_command(folder: Path) -> Path:
    """`declare.py`."""
    return _executable(folder / "declare", str(Path(__file__).with_name("declare.py")))


def _executable(path: Path, what: str) -> Path:
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {what} "$@"\n')
    path.chmod(0o755)
    return path
