"""Lines for a terminal: rows in aligned columns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Final

from penstock_page.text import printable

__all__ = ["ABSENT", "aligned", "for_terminal", "number"]

ABSENT: Final = "-"


def aligned(rows: Iterable[tuple[str, ...]], texts: Set[int]) -> list[str]:
    """A line for each row, as wide in each column as its widest cell. `texts`: columns that begin at the left."""
    table = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if column in texts else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def number(value: int | None, unit: str = "") -> str:
    """Such as `12 s`; a dash for what is not known."""
    return ABSENT if value is None else f"{value}{unit}"


def for_terminal(lines: Iterable[str]) -> str:
    """The lines, each with its end. Names and identifiers come from clients; nothing of them can control a terminal."""
    return "".join(f"{printable(line)}\n" for line in lines)
