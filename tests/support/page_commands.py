"""The commands that a page of the documentation shows, and what it says they print.

A command stands in a block ```console, behind `$ `; a line that ends with a backslash goes on. What follows it up to
the next command is its output. Functions that commands use stand in a block ```sh of the same page.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Final, cast

__all__ = ["Shown", "functions", "inline", "shape", "shape_of_lines", "shown"]

_CONSOLE: Final = re.compile(r"^ *```console\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_SHELL: Final = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
_BLOCK: Final = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_INLINE: Final = re.compile(r"`((?:(?:\.venv/bin/)?penstock|curl|hack/\w+) [^`]*?(?<!\S)--?\w[^`]*)`")


@dataclass(frozen=True, slots=True)
class Shown:
    """A command as a page shows it, and the lines that the page shows below it."""

    page: str
    command: str
    output: tuple[str, ...]


def shown(page: Path) -> list[Shown]:
    """Every command of a page, in its order."""
    text = page.read_text(encoding="utf-8")
    return [each for block in _CONSOLE.findall(text) for each in _of_block(page.name, dedent(block).splitlines())]


def inline(page: Path) -> list[Shown]:
    """The commands with an option that stand in the page's running text."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    return [Shown(page.name, " ".join(each.split()), ()) for each in _INLINE.findall(text)]


def functions(page: Path) -> str:
    """What the page's commands need before them, as a shell reads it."""
    return "\n".join(_SHELL.findall(page.read_text(encoding="utf-8")))


def shape(value: object) -> object:
    """A JSON value without what differs between two runs: names and kinds of values; a state is kept as it is.

    An empty list has another shape than one with entries, and null another than a number.
    """
    match value:
        case dict():
            entries = cast("dict[str, object]", value)
            return {key: each if key == "state" else shape(each) for key, each in entries.items()}
        case list():
            return [shape(each) for each in cast("list[object]", value)[:1]]
        case _:
            return type(value).__name__


def _of_block(page: str, lines: list[str]) -> list[Shown]:
    found: list[Shown] = []
    command: list[str] = []
    output: list[str] = []

    def end() -> None:
        if command:
            found.append(Shown(page, "\n".join(command), tuple(output)))

    for line in lines:
        if line.startswith("$ "):
            end()
            command, output = [line[2:]], []
        elif command and not output and command[-1].endswith("\\"):
            command.append(line)
        else:
            output.append(line)
    end()
    return found


def shape_of_lines(lines: tuple[str, ...]) -> list[object]:
    """The shape of each line, which is a JSON value. Raises ValueError if one is not."""
    return [shape(json.loads(line)) for line in lines]
