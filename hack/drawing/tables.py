"""The rows of a table panel, by the transformations of Grafana that the dashboards use."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from drawing.units import written

__all__ = ["Row", "merged", "organized", "table"]

Row = dict[str, str | float]
"""Labels are words, values are numbers."""


def table(panel: Mapping[str, Any], answers: Iterable[tuple[str, list[dict[str, Any]]]]) -> dict[str, Any]:
    """Columns and cells, of what each query of the panel (by its refId) found."""
    frames = list(answers)
    rows: list[list[Row]] = []
    for name, series in frames:
        value = "Value" if len(frames) == 1 else f"Value #{name}"
        rows.append([{**one["metric"], value: float(one["value"][1])} for one in series])
    for step in panel.get("transformations", ()):
        if step["id"] == "filterFieldsByName":
            wanted = re.compile(step["options"]["include"]["pattern"])
            rows = [[{key: row[key] for key in row if wanted.search(key)} for row in frame] for frame in rows]
    flat = merged(rows)
    columns: dict[str, str] = {key: key for row in flat for key in row}
    for step in panel.get("transformations", ()):
        if step["id"] == "organize":
            columns = organized(list(columns), step["options"])
    shown = [{columns[key]: row[key] for key in row} for row in flat]
    for order in reversed(panel["options"].get("sortBy", [])):
        shown.sort(key=partial(_rank, order["displayName"]), reverse=order.get("desc", False))
    units = _units(panel, columns.values())
    cells = [[_cell(row.get(name), units[name]) for name in columns.values()] for row in shown]
    return {"columns": list(columns.values()), "rows": cells}


def merged(frames: Iterable[list[Row]]) -> list[Row]:
    """One row for all rows whose common labels are equal."""
    found: list[Row] = []
    for frame in frames:
        for row in frame:
            for other in found:
                common = other.keys() & row.keys()
                if common and all(isinstance(row[key], str) and row[key] == other[key] for key in common):
                    other.update(row)
                    break
            else:
                found.append(dict(row))
    return found


def organized(fields: list[str], options: Mapping[str, Any]) -> dict[str, str]:
    """The fields in their order, each with its new name; those without a place come last."""
    places: dict[str, int] = options.get("indexByName", {})
    names: dict[str, str] = options.get("renameByName", {})
    return {key: names.get(key, key) for key in sorted(fields, key=lambda key: places.get(key, len(places)))}


def _units(panel: Mapping[str, Any], columns: Iterable[str]) -> dict[str, str]:
    settings = panel["fieldConfig"]
    unit: str = settings["defaults"].get("unit", "short")
    units = dict.fromkeys(columns, unit)
    for override in settings.get("overrides", ()):
        for change in override["properties"]:
            if override["matcher"]["id"] == "byName" and change["id"] == "unit":
                units[override["matcher"]["options"]] = change["value"]
    return units


def _rank(name: str, row: Row) -> tuple[bool, float, str]:
    value = row.get(name)
    if isinstance(value, str):
        return True, 0.0, value
    return value is not None, -math.inf if value is None else value, ""


def _cell(value: str | float | None, unit: str) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else written(value, unit)
