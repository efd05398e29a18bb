"""Turns a dashboard and what Prometheus answers into panels that a page can draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from drawing.prometheus import Prometheus
from drawing.questions import choice, filled, legend, values_question
from drawing.tables import table
from drawing.units import ticks, written

__all__ = ["Drawing", "box", "color", "drawing", "scale", "stacked"]

PALETTE: Final = (
    "#56a64b", "#f2cc0c", "#3274d9", "#ff780a", "#e02f44", "#8f3bb8",
    "#37872d", "#e0b400", "#1f60c4", "#fa6400", "#c4162a", "#a352cc",
)  # fmt: skip
NAMED: Final = {"green": "#56a64b", "orange": "#ff780a", "red": "#e02f44", "yellow": "#f2cc0c", "blue": "#3274d9"}
COLUMNS: Final = 24
CELL: Final = 28
"""Pixels of a row of the grid, with the gap between two. Grafana has more, for screens."""
GAP: Final = 6

Points = list[float | None]
Say = Callable[[str], None]


@dataclass
class Drawing:
    """A dashboard with its figures."""

    title: str
    chosen: list[tuple[str, str]]
    height: int
    panels: list[dict[str, Any]]
    without_values: list[str]
    """Variables that have none: this Prometheus does not scrape what the dashboard is about."""
    empty: list[str] = field(default_factory=list[str])
    """Titles of panels that show nothing."""


def drawing(dashboard: Mapping[str, Any], prometheus: Prometheus, rate: int, width: int, say: Say) -> Drawing:
    """Ask what each variable and each panel asks. `rate` is Grafana's `$__rate_interval` in seconds."""
    patterns, texts = {"__rate_interval": f"{rate}s"}, dict[str, str]()
    without_values: list[str] = []
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            selector, label = values_question(variable["definition"])
            values = prometheus.values(filled(selector, patterns), label)
            chosen = choice(variable, values)
            patterns[variable["name"]], texts[variable["name"]] = chosen.pattern, chosen.text
            if not values:
                without_values.append(variable["name"])
    panels: list[dict[str, Any]] = []
    empty: list[str] = []
    for panel in dashboard["panels"]:
        drawn: dict[str, Any] = {"title": filled(panel["title"], texts), "kind": panel["type"], "empty": False}
        drawn |= box(panel["gridPos"], width)
        if panel["type"] != "row":
            drawn |= _figures(panel, prometheus, patterns)
            drawn["empty"] = not any(drawn.get(part) for part in ("series", "rows", "text"))
            say(f"  {drawn['title']}: {'nothing' if drawn['empty'] else 'drawn'}")
            if drawn["empty"]:
                empty.append(drawn["title"])
        panels.append(drawn)
    height = max(panel["top"] + panel["height"] for panel in panels)
    return Drawing(dashboard["title"], list(texts.items()), height, panels, without_values, empty)


def box(place: Mapping[str, int], width: int) -> dict[str, int]:
    """Where a panel is in pixels, by its place in Grafana's grid of 24 columns."""
    left, right = (round(width * column / COLUMNS) for column in (place["x"], place["x"] + place["w"]))
    return {
        "left": left + GAP // 2,
        "top": place["y"] * CELL + GAP // 2,
        "width": right - left - GAP,
        "height": place["h"] * CELL - GAP,
    }


def color(value: float, thresholds: Mapping[str, Any]) -> str:
    """The colour of the last step that the value reaches."""
    reached = [step for step in thresholds["steps"] if step["value"] is None or value >= step["value"]]
    return NAMED[reached[-1]["color"]]


def stacked(lines: list[Points]) -> list[Points]:
    """Each line on top of those before; a gap counts as nothing."""
    sums, total = list[Points](), [0.0] * (len(lines[0]) if lines else 0)
    for line in lines:
        total = [below + (value or 0.0) for below, value in zip(total, line, strict=True)]
        sums.append(list(total))
    return sums


def scale(lines: list[Points], defaults: Mapping[str, Any]) -> list[tuple[float, str]]:
    """The ticks of the axis: from zero unless something is below it, or within the limits of the panel."""
    values = [value for line in lines for value in line if value is not None]
    low = defaults.get("min", min(0.0, *values) if values else 0.0)
    high = defaults.get("max", max(0.0, *values) if values else 1.0)
    return ticks(low, high, defaults["unit"])


def _figures(panel: Mapping[str, Any], prometheus: Prometheus, patterns: Mapping[str, str]) -> dict[str, Any]:
    if panel["type"] == "table":
        return table(panel, [(one["refId"], prometheus.now(filled(one["expr"], patterns))) for one in panel["targets"]])
    found = list(_lines(panel, prometheus, patterns))
    names, lines = [name for name, _ in found], [line for _, line in found]
    defaults = panel["fieldConfig"]["defaults"]
    if panel["type"] == "stat":
        return _stat(defaults, lines)
    custom = defaults["custom"]
    is_stacked = custom.get("stacking", {}).get("mode") == "normal"
    drawn = stacked(lines) if is_stacked else lines
    colors = [PALETTE[number % len(PALETTE)] for number in range(len(names))]
    return {
        "series": [
            {"name": name, "color": shade, "points": line}
            for name, shade, line in zip(names, colors, drawn, strict=True)
        ],
        "stacked": is_stacked,
        "ticks": scale(drawn, defaults),
        "line": custom.get("lineWidth", 1),
        "fill": custom.get("fillOpacity", 0) / 100,
    }


def _stat(defaults: Mapping[str, Any], lines: list[Points]) -> dict[str, Any]:
    values = [value for value in (lines[0] if lines else []) if value is not None]
    if not values:
        return {}
    shade = color(values[-1], defaults["thresholds"])
    return {"text": written(values[-1], defaults["unit"]), "color": shade, "points": lines[0]}


def _lines(
    panel: Mapping[str, Any], prometheus: Prometheus, patterns: Mapping[str, str]
) -> Iterator[tuple[str, Points]]:
    for target in panel["targets"]:
        asked = filled(target["expr"], patterns)
        for series in prometheus.range(asked):
            at = {round(float(time)): float(value) for time, value in series["values"]}
            # A rate of nothing is NaN, which JSON cannot carry and Grafana does not draw.
            points = [at.get(time) for time in prometheus.times]
            name = legend(target["legendFormat"], series["metric"], asked)
            yield name, [value if value is not None and math.isfinite(value) else None for value in points]
