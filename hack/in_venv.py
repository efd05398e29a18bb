"""For commands of hack/ that need the locked dependencies: they continue in .venv, or print how to make it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["PYTHON", "ROOT", "enter"]

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv" / "bin" / "python"


def enter(*folders: str) -> None:
    """Run in .venv, with these folders of the project on the import path. Exit code 3 if there is none."""
    if not PYTHON.exists():
        print(f"{sys.argv[0]}: there is no .venv here; run hack/env first", file=sys.stderr)
        raise SystemExit(3)
    if Path(sys.prefix) != PYTHON.parent.parent:
        os.execv(PYTHON, [str(PYTHON), *sys.argv])
    sys.path[:0] = [str(ROOT / folder) for folder in folders]
