"""Plays the live scenarios and writes what was seen into docs/reference/lag-states.md: `python -m e2e.states_page`."""

from __future__ import annotations

import argparse
import re
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from e2e import live_states, local_demo
from e2e.state_watch import Seen, WrongState
from e2e.story import StoryError

__all__ = ["PAGE", "main", "rows", "table", "with_table"]

PAGE: Final = local_demo.ROOT / "docs" / "reference" / "lag-states.md"
HEADS: Final = ("injected", "state", "seen after", "sentence")
TABLE: Final = re.compile(r"^\| injected \|.*?(?=\n\n|\n?\Z)", re.MULTILINE | re.DOTALL)


def table(seen: Sequence[Seen]) -> str:
    """A Markdown table, without a newline at its end."""
    lines = [HEADS, ("---",) * len(HEADS)]
    for each in seen:
        state = "none" if each.state is None else each.state.value
        lines.append((each.injected, state, f"{each.seconds} s", f"`{each.sentence}`"))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def with_table(page: str, seen: Sequence[Seen]) -> str:
    """The page with this table instead of its own."""
    made, count = TABLE.subn(lambda _: table(seen), page)
    assert count == 1, "the page has one such table"
    return made


def rows(page: str) -> list[tuple[str, str]]:
    """What was injected and which state was seen, of each line of the page's table."""
    found = TABLE.search(page)
    assert found is not None, "the page has such a table"
    cells = [line.strip("| ").split(" | ") for line in found[0].splitlines()[2:]]
    return [(injected, state) for injected, state, *_ in cells]


def main() -> int:
    """Play and write; 0 if every state was seen as it has to be."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    started = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"[{time.monotonic() - started:4.0f} s] {text}")

    try:
        say("compiling the JMS clients")
        local_demo.build_clients(options.work / "maven.log")
        seen = live_states.play(options.work, say)
    except (WrongState, StoryError, TimeoutError, RuntimeError) as error:
        click.echo(f"hack/states: {error}", err=True)
        return 1
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), seen), encoding="utf-8")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    say(f"brokers, observers, clients and Spark used {used.ru_utime + used.ru_stime:.0f} s of processor time")
    say(f"written: {PAGE.relative_to(local_demo.ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
