"""A small chart of processor time against rows, both logarithmic, as SVG. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

__all__ = ["chart"]

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 64, 96, 16, 44
COLOURS = {"spark": "#c44601", "duckdb": "#054fb9", "polars": "#5b7c00"}
NAMES = {"spark": "lag job (Spark)", "duckdb": "DuckDB", "polars": "Polars"}


def chart(points: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """From (rows, CPU seconds) by engine. Rows 100 to 100 million, 0.1 to 1,000 s."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12" role="img">',
        "<title>Processor time of the lag job, DuckDB and Polars against the rows of the window</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for power in range(2, 9):
        x = _x(10**power)
        parts.append(_line(x, TOP, x, HEIGHT - BOTTOM))
        parts.append(_text(x, HEIGHT - BOTTOM + 16, f"{10**power:,}", "middle"))
    for power in range(-1, 4):
        y = _y(10**power)
        parts.append(_line(LEFT, y, WIDTH - RIGHT, y))
        parts.append(_text(LEFT - 6, y + 4, f"{10**power:,g} s", "end"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "rows in the window", "middle"))
    for name, found in points.items():
        if found:
            path = " ".join(f"{_x(rows):.1f},{_y(seconds):.1f}" for rows, seconds in found)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>')
            rows, seconds = found[-1]
            parts.append(_text(_x(rows) + 6, _y(seconds) + 4, NAMES[name], "start", COLOURS[name]))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(rows: float) -> float:
    return LEFT + (math.log10(rows) - 2) / 6 * (WIDTH - LEFT - RIGHT)


def _y(seconds: float) -> float:
    return HEIGHT - BOTTOM - (math.log10(max(seconds, 0.1)) + 1) / 4 * (HEIGHT - TOP - BOTTOM)


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#ddd"/>'


def _text(x: float, y: float, text: str, anchor: str, colour: str = "black") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{text}</text>'
