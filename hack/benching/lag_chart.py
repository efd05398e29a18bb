"""A small chart of processor time against rows, both logarithmic, as SVG. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benching.log_chart import Line, LogChart

__all__ = ["chart"]

COLOURS = {"spark": "#c44601", "duckdb": "#054fb9", "polars": "#5b7c00"}
NAMES = {"spark": "lag job (Spark)", "duckdb": "DuckDB", "polars": "Polars"}


def chart(points: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """From (rows, CPU seconds) by engine. Rows 100 to 100 million, 0.1 to 1,000 s."""
    title = "Processor time of the lag job, DuckDB and Polars against the rows of the window"
    lines = [Line(NAMES[name], COLOURS[name], found) for name, found in points.items()]
    return LogChart(title, "rows in the window", (2, 8), (-1, 3)).drawn(lines)
