"""A small chart of bars in groups, as SVG. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Bar", "bars"]

WIDTH, LEFT, RIGHT, TOP, BAR, GAP = 640, 190, 90, 40, 16, 12


class Bar(NamedTuple):
    """One bar: the group that it stands in, what it is of, its colour, and how long it is."""

    group: str
    name: str
    colour: str
    value: float


def bars(title: str, unit: str, drawn: Sequence[Bar]) -> str:
    """A chart of them from top to bottom; the bars of a group follow each other."""
    longest = max((bar.value for bar in drawn), default=1.0)
    parts: list[str] = []
    y, group = TOP, ""
    for bar in drawn:
        if bar.group != group:
            group = bar.group
            y += GAP
            parts.append(f'<text x="8" y="{y + 12}" font-weight="bold">{group}</text>')
            y += BAR + 2
        width = bar.value / longest * (WIDTH - LEFT - RIGHT)
        parts.append(f'<text x="{LEFT - 6}" y="{y + 12}" text-anchor="end">{bar.name}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 2}" fill="{bar.colour}"/>')
        parts.append(f'<text x="{LEFT + width + 5:.1f}" y="{y + 12}">{_short(bar.value)}</text>')
        y += BAR + 2
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 16}" font-family="sans-serif" '
        'font-size="12" role="img">',
        f"<title>{title}</title>",
        f'<rect width="{WIDTH}" height="{y + 16}" fill="white"/>',
        f'<text x="8" y="22">{title} ({unit})</text>',
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
