"""For commands of hack/: those that need the locked dependencies continue in .venv, or print how to make it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["PYTHON", "ROOT", "enter", "require_python"]

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv" / "bin" / "python"
STAMP = ROOT / ".venv" / "penstock-stamp-all"
"""hack/env writes it at its end. Without it .venv is not complete, or has only what hack/demo runs."""


def enter(*folders: str) -> None:
    """Run in .venv, with these folders of the project on the import path. Exit code 3 if there is none."""
    if not (PYTHON.exists() and STAMP.exists()):
        found = "packages are missing in .venv" if PYTHON.exists() else "there is no .venv here"
        print(f"{sys.argv[0]}: {found}; run hack/env first", file=sys.stderr)
        raise SystemExit(3)
    if Path(sys.prefix) != PYTHON.parent.parent:
        os.execv(PYTHON, [str(PYTHON), *sys.argv])
    sys.path[:0] = [str(ROOT / folder) for folder in folders]


def require_python() -> None:
    """Exit code 3 if this Python is older than the project's code, which could not even be imported."""
    if sys.version_info < (3, 11):  # noqa: UP036 - what this is for
        found = ".".join(map(str, sys.version_info[:3]))
        print(f"{sys.argv[0]}: needs Python 3.11 or newer; python3 is {found}", file=sys.stderr)
        raise SystemExit(3)
