"""The file in which a running stage notes each test that starts and ends, and what is read from it.

The environment of the stage's processes names the file. tests/support/progress.py writes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["VARIABLE", "Progress", "read_progress"]

VARIABLE = "PENSTOCK_TEST_PROGRESS"


@dataclass(frozen=True)
class Progress:
    """`last` is the test that ended last, empty if none has; `running` are those that started and did not end."""

    last: str
    running: tuple[str, ...]

    def __str__(self) -> str:
        """As words of a sentence."""
        ended = f"the last test that ended is {self.last}" if self.last else "no test has ended"
        return f"{ended}; still running: {', '.join(self.running)}" if self.running else ended


def read_progress(file: Path) -> Progress:
    """What the lines `SECONDS start NAME` and `SECONDS end NAME` tell; an incomplete last line is left out.

    SECONDS, since 1970, are for people who want to know which test takes long.
    """
    last, running = "", dict[str, None]()
    text = file.read_text(errors="replace") if file.exists() else ""
    for line in text[: text.rfind("\n") + 1].splitlines():
        _, word, name = line.split(" ", 2)
        if word == "start":
            running[name] = None
        else:
            running.pop(name, None)
            last = name
    return Progress(last, tuple(running))
