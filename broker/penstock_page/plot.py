"""Plots as geometry: paths, ticks and labels in the units of an SVG's view box. The templates draw them.

Pure. Everything in a path is a number, so no text of a client gets into one. A line is broken where figures are not
known, and where the observer did not see the subscription; it is never drawn through a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock_page.text import clock, count, duration
from penstock_page.time_series import Point, TimeSeries

__all__ = ["HEIGHT", "SPARK_HEIGHT", "SPARK_WIDTH", "WIDTH", "Line", "Panel", "Tick", "panels", "spark_path"]

SPARK_WIDTH: Final = 120
SPARK_HEIGHT: Final = 24
WIDTH: Final = 720
"""Of the drawing area of a panel, without the labels beside it."""
HEIGHT: Final = 120

TIME_STEPS: Final = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
"""Seconds between two labels on the axis of time."""
TIME_LABELS: Final = 6

Figure = Callable[[Point], int | None]


@dataclass(frozen=True, slots=True)
class Tick:
    """A label at a place on an axis."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Line:
    """One figure over the time."""

    name: str
    kind: str
    """Class of the style sheet; each has its own dashes."""
    path: str
    largest: str
    last: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One drawing: lines with a common scale."""

    title: str
    lines: tuple[Line, ...]
    times: tuple[Tick, ...]
    values: tuple[Tick, ...]
    is_empty: bool
    """Nothing is known."""

    @property
    def summary(self) -> str:
        """What the drawing shows, for those who do not see it."""
        return "; ".join(f"{line.name}: at most {line.largest}, {line.last} at the end" for line in self.lines)


def spark_path(depths: Sequence[int]) -> str:
    """A line through depths at equal distances; its scale begins at 0. Empty below two of them."""
    if len(depths) < 2:
        return ""
    largest = max(*depths, 1)
    across = SPARK_WIDTH / (len(depths) - 1)
    places = ((at * across, SPARK_HEIGHT - 1 - depth / largest * (SPARK_HEIGHT - 2)) for at, depth in enumerate(depths))
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def panels(time_series: TimeSeries) -> tuple[Panel, ...]:
    """Depth, age, arrivals with what was accepted, and losses, with the same axis of time."""
    return (
        _panel(time_series, "Messages waiting", count, ("depth", "first", lambda point: point.depth)),
        _panel(time_series, "Age of the oldest message", duration, ("age", "first", lambda point: point.age_seconds)),
        _panel(
            time_series,
            "Messages a minute",
            count,
            ("arrived", "first", lambda point: point.arrived),
            ("accepted", "second", lambda point: point.accepted),
        ),
        _panel(time_series, "Messages lost", count, ("lost", "loss", lambda point: point.lost)),
    )


def _panel(time_series: TimeSeries, title: str, shown: Callable[[int], str], *lines: tuple[str, str, Figure]) -> Panel:
    values = [value for _, _, figure in lines for value in _known(time_series, figure)]
    top = _round_up(max(values, default=0))
    return Panel(
        title=title,
        lines=tuple(_line(time_series, name, kind, figure, top, shown) for name, kind, figure in lines),
        times=_times(time_series),
        values=tuple(Tick(HEIGHT * (1 - part / 2), shown(round(top * part / 2))) for part in range(3)),
        is_empty=not values,
    )


def _line(time_series: TimeSeries, name: str, kind: str, figure: Figure, top: int, shown: Callable[[int], str]) -> Line:
    span_ms = max(time_series.end_ms - time_series.begin_ms, 1)
    path = ""
    is_down = False
    for point in time_series.points:
        value = figure(point)
        if value is None:
            is_down = False
            continue
        x = (point.time_ms - time_series.begin_ms) / span_ms * WIDTH
        y = HEIGHT * (1 - value / top)
        # A point that no line reaches is drawn as a short dash, so that it is seen.
        path += f"L{x:.1f} {y:.1f}" if is_down and not point.is_after_gap else f"M{x:.1f} {y:.1f}h1"
        is_down = True
    known = _known(time_series, figure)
    return Line(
        name, kind, path, shown(max(known)) if known else "not known", shown(known[-1]) if known else "not known"
    )


def _known(time_series: TimeSeries, figure: Figure) -> list[int]:
    return [value for value in map(figure, time_series.points) if value is not None]


def _round_up(largest: int) -> int:
    """The end of the scale: even, at least 2, and 2, 4, 6, 8 or 10 times a power of ten."""
    power = 1
    while largest > 10 * power:
        power *= 10
    return next(step * power for step in (2, 4, 6, 8, 10) if step * power >= largest)


def _times(time_series: TimeSeries) -> tuple[Tick, ...]:
    span_ms = max(time_series.end_ms - time_series.begin_ms, 1)
    fitting = (step for step in TIME_STEPS if span_ms // (step * 1000) < TIME_LABELS)
    step_ms = next(fitting, TIME_STEPS[-1]) * 1000
    first = -(-time_series.begin_ms // step_ms) * step_ms
    return tuple(
        Tick((at - time_series.begin_ms) / span_ms * WIDTH, clock(at)[:5])
        for at in range(first, time_series.end_ms + 1, step_ms)
    )
