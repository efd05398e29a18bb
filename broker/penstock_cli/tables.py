"""Output of rows: as a table for people, or as one JSON object per line for scripts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

__all__ = ["as_lines", "as_table"]


def as_table(columns: Mapping[str, str], rows: Sequence[Mapping[str, object]]) -> str:
    """A table with a heading per column (`columns`: key and heading). Numbers are aligned right; a missing value is a
    dash.
    """
    cells = [list(columns.values())]
    cells += [[_cell(row.get(key)) for key in columns] for row in rows]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    is_number = [bool(rows) and all(isinstance(row.get(key), int | None) for row in rows) for key in columns]
    lines = [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ).rstrip()
        for line in cells
    ]
    return "\n".join(lines)


def as_lines(rows: Sequence[Mapping[str, object]]) -> str:
    """One JSON object per line."""
    return "\n".join(json.dumps(dict(row), ensure_ascii=False, default=str) for row in rows)


def _cell(value: object) -> str:
    """The value on one line, without control characters, which could trick a terminal: clients choose these values."""
    text = "-" if value is None else str(value)
    return "".join(letter if letter.isprintable() else " " for letter in text)
