"""Runs the commands of docs/reference/lag-compared.md at the end of the live scenarios: each of our cells is true.

Commands of kubectl are left to tests/hack/test_page_commands.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from e2e.local_site import LocalSite
from e2e.state_watch import WrongState
from support.page_commands import Shown, functions, shape_of_lines, shown

__all__ = ["PAGE", "check"]

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "lag-compared.md"
COMMAND_SECONDS: Final = 120


def check(site: LocalSite, say: Callable[[str], None], *, of_job: bool) -> None:
    """Run each command that shows what a run of the lag job has found, or each other one, and tell what it printed.

    Raises:
        WrongState: one failed, or printed other names, kinds of values or states than the page.
    """
    environment = {
        **os.environ,
        "O": str(site.state()["observer"]),
        "TOKEN": str(site.data / "observer.token"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    wrong: list[str] = []
    for each in shown(PAGE):
        program = each.command.partition(" ")[0]
        if program != "kubectl" and (program == "job") is of_job:
            ran = subprocess.run(
                ["bash", "-c", f"set -o pipefail\n{functions(PAGE)}\n{each.command}"],
                env=environment,
                capture_output=True,
                text=True,
                timeout=COMMAND_SECONDS,
            )
            say(f"$ {each.command}\n{ran.stdout.rstrip()}")
            if ran.returncode != 0 or not _is_as_shown(each, ran.stdout):
                wrong.append(f"$ {each.command}\n{ran.stdout.rstrip()}\n{ran.stderr.rstrip()}")
    if wrong:
        raise WrongState("\n".join((f"commands of {PAGE.name} print something else:", *wrong)))


def _is_as_shown(command: Shown, printed: str) -> bool:
    """The same text, or JSON of the same shape."""
    if tuple(printed.splitlines()) == command.output:
        return True
    try:
        return shape_of_lines(tuple(printed.splitlines())) == shape_of_lines(command.output)
    except ValueError:
        return False
