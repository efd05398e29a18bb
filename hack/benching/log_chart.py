"""A small chart of seconds, or of something else, against numbers, both logarithmic, as SVG. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Line", "LogChart"]

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 64, 96, 16, 44
LETTER, APART = 7, 14
"""So wide is a letter at most, and so far are names apart."""


class Line(NamedTuple):
    """What is drawn in one colour: (number, seconds), and what stands at its end."""

    name: str
    colour: str
    points: Sequence[tuple[float, float]]


class LogChart:
    """The paper: from and to which powers of ten."""

    def __init__(
        self, title: str, below: str, numbers: tuple[int, int], seconds: tuple[int, int], unit: str = " s"
    ) -> None:
        """`below`: what the numbers are. `unit`: of what is drawn over them, if not seconds."""
        self._title, self._below, self._numbers, self._seconds = title, below, numbers, seconds
        self._unit = unit
        self._right = RIGHT

    def drawn(self, lines: Sequence[Line]) -> str:
        """The chart. The names stand at the ends of their lines, as far apart as they need to be."""
        shown = [line for line in lines if line.points]
        self._right = max([RIGHT, *(10 + LETTER * len(line.name) for line in shown)])
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
            'font-size="12" role="img">',
            f"<title>{self._title}</title>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        ]
        for power in range(self._numbers[0], self._numbers[1] + 1):
            x = self._x(10**power)
            parts.append(_line(x, TOP, x, HEIGHT - BOTTOM))
            parts.append(_text(x, HEIGHT - BOTTOM + 16, f"{10**power:,}", "middle"))
        for power in range(self._seconds[0], self._seconds[1] + 1):
            y = self._y(10**power)
            parts.append(_line(LEFT, y, WIDTH - self._right, y))
            parts.append(_text(LEFT - 6, y + 4, f"{10**power:,g}{self._unit}", "end"))
        parts.append(_text((LEFT + WIDTH - self._right) / 2, HEIGHT - 8, self._below, "middle"))
        lowest = 0.0
        for name, colour, points in sorted(shown, key=lambda line: self._y(line.points[-1][1])):
            path = " ".join(f"{self._x(number):.1f},{self._y(seconds):.1f}" for number, seconds in points)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
            number, seconds = points[-1]
            lowest = max(lowest + APART, self._y(seconds) + 4)
            parts.append(_text(self._x(number) + 6, lowest, name, "start", colour))
        return "\n".join([*parts, "</svg>"]) + "\n"

    def _x(self, number: float) -> float:
        first, last = self._numbers
        return LEFT + (math.log10(number) - first) / (last - first) * (WIDTH - LEFT - self._right)

    def _y(self, seconds: float) -> float:
        first, last = self._seconds
        share = (math.log10(max(seconds, 10**first)) - first) / (last - first)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#ddd"/>'


def _text(x: float, y: float, text: str, anchor: str, colour: str = "black") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{text}</text>'
