"""Runs the commands of docs/reference/lag-compared.md at the end of the live scenarios: each of our cells is true.

Commands of kubectl are left to tests/hack/test_page_commands.py, and those about closed hours to
tests/observer/test_observer_compared_page.py.
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

__all__ = ["HOURLY", "PAGE", "check", "fault"]

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "lag-compared.md"
HOURLY: Final = "job hourly "
"""How a command begins that needs a result with closed hours, which no live scenario has."""
COMMAND_SECONDS: Final = 120

Say = Callable[[str], None]


def check(site: LocalSite, say: Say, *, of_job: bool) -> None:
    """Run each command that shows what a run of the lag job has found, or each other one, and tell what it printed.

    Raises:
        WrongState: one failed, or printed other names, kinds of values or states than the page.
    """
    wrong: list[str] = []
    for each in shown(PAGE):
        program = each.command.partition(" ")[0]
        if program != "kubectl" and (program == "job") is of_job and not each.command.startswith(HOURLY):
            found = fault(each, str(site.state()["observer"]), site.data / "observer.token", say)
            wrong += [] if found is None else [found]
    if wrong:
        raise WrongState("\n".join((f"commands of {PAGE.name} print something else:", *wrong)))


def fault(command: Shown, observer: str, token: Path, say: Say) -> str | None:
    """Run a command of the page against an observer; what it printed, if that is not what the page shows, else None."""
    environment = {
        **os.environ,
        "O": observer,
        "TOKEN": str(token),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    ran = subprocess.run(
        ["bash", "-c", f"set -o pipefail\n{functions(PAGE)}\n{command.command}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
    )
    told = f"$ {command.command}\n{ran.stdout.rstrip()}"
    say(told)
    if ran.returncode == 0 and _is_as_shown(command, ran.stdout):
        return None
    return f"{told}\n{ran.stderr.rstrip()}"


def _is_as_shown(command: Shown, printed: str) -> bool:
    """The same text, or JSON of the same shape."""
    if tuple(printed.splitlines()) == command.output:
        return True
    try:
        return shape_of_lines(tuple(printed.splitlines())) == shape_of_lines(command.output)
    except ValueError:
        return False
