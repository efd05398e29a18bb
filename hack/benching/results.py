"""What a benchmark found: its runs, their medians, a table, and a JSON file with all of it. Pure, but for `keep`."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

__all__ = ["BUILD", "Column", "Run", "keep", "medians", "percentile", "relative", "table"]

BUILD = Path(__file__).resolve().parent.parent.parent / "build" / "bench"


@dataclass(frozen=True)
class Run:
    """One measurement, or the median of several (round 0)."""

    round: int
    broker: str
    case: str
    figures: Mapping[str, float]


class Column(NamedTuple):
    """Of a table: its heading, the name of the figure, and how it is written."""

    heading: str
    figure: str
    written: str


def percentile(buckets: Sequence[tuple[int, int]], share: float) -> float:
    """The value that `share` of the counted ones do not exceed. A bucket is the value that all in it are below, and how
    many are in it; the buckets ascend. Raises ValueError if nothing was counted.
    """
    if not buckets:
        raise ValueError("nothing was counted")
    wanted = share * sum(count for _, count in buckets)
    passed, at = buckets[0][1], 0
    while passed < wanted and at + 1 < len(buckets):
        at += 1
        passed += buckets[at][1]
    return float(buckets[at][0])


def medians(runs: Sequence[Run]) -> list[Run]:
    """For each case and broker, in the order in which they first ran, the median of each figure on its own. A figure is
    left out if most of the runs do not have it.
    """
    grouped: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        grouped.setdefault((run.case, run.broker), []).append(run)
    order = {case: number for number, case in enumerate(dict.fromkeys(run.case for run in runs))}
    found: list[Run] = []
    for (case, broker), group in sorted(grouped.items(), key=lambda item: order[item[0][0]]):
        names = dict.fromkeys(name for run in group for name in run.figures)
        values = {name: [run.figures[name] for run in group if name in run.figures] for name in names}
        most = {name: statistics.median(seen) for name, seen in values.items() if len(seen) * 2 > len(group)}
        found.append(Run(0, broker, case, most))
    return found


def relative(runs: Sequence[Run], to: str, figure: str, name: str) -> list[Run]:
    """The runs with one figure more: `figure` as a share of that of the broker `to`, same round and case."""
    base = {(run.round, run.case): run.figures[figure] for run in runs if run.broker == to and figure in run.figures}
    return [
        replace(run, figures={**run.figures, name: run.figures[figure] / base[run.round, run.case]})
        if figure in run.figures and (run.round, run.case) in base
        else run
        for run in runs
    ]


def table(rows: Sequence[Run], columns: Sequence[Column], heads: tuple[str, str] = ("case", "broker")) -> str:
    """A table of Markdown, which can be read as plain text, too. A figure that a row does not have is left out."""
    cells = [[*heads, *(column.heading for column in columns)]]
    for row in rows:
        values = (row.figures.get(column.figure) for column in columns)
        written = (
            "-" if value is None else format(value, column.written)
            for value, column in zip(values, columns, strict=True)
        )
        cells.append([row.case, row.broker, *written])
    widths = [max(len(line[at]) for line in cells) for at in range(len(cells[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    lines.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(lines)


def keep(name: str, machine: Mapping[str, object], runs: Sequence[Run], charts: Mapping[str, str]) -> Path:
    """Write build/bench/NAME.json, and the charts beside it; returns the former."""
    BUILD.mkdir(parents=True, exist_ok=True)
    content = {
        "bench": name,
        "machine": machine,
        "medians": [asdict(run) for run in medians(runs)],
        "rounds": [asdict(run) for run in runs],
    }
    for stem, drawing in charts.items():
        (BUILD / f"{stem}.svg").write_text(drawing)
    path = BUILD / f"{name}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path
