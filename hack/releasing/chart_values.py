"""The table of a chart's values, from values.yaml with its comments and values.schema.json. Pure.

A comment directly above a key describes it; a line of a comment that is indented by two more spaces is an example.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import yaml

__all__ = ["BEGIN", "END", "Value", "described", "differences", "with_table"]

BEGIN: Final = "<!-- The values: written by hack/charts from values.yaml; change that instead. -->"
END: Final = "<!-- End of the values. -->"


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a chart, or a group of values."""

    path: str
    default: str | None
    """As JSON; None for a group."""
    about: str


def described(values: str, schema: Mapping[str, Any]) -> list[Value]:
    """All values in the order of values.yaml."""
    lines = values.splitlines()
    root = cast(yaml.MappingNode, yaml.compose(values, yaml.SafeLoader))
    return list(_walk(root, schema, schema, "", lines))


def differences(values: str, schema: Mapping[str, Any]) -> list[str]:
    """Values that the schema allows and values.yaml does not name, and values that nothing describes."""
    rows = described(values, schema)
    named = {row.path for row in rows}
    wrong = [f"{path}: values.yaml does not have it" for path in _allowed(schema, schema, "") if path not in named]
    groups = {row.path: row.about for row in rows if row.default is None}
    for row in rows:
        above = groups.get(row.path.rpartition(".")[0], "")
        if row.default is not None and not row.about and not above:
            wrong.append(f"{row.path}: no comment in values.yaml describes it")
    return wrong


def with_table(page: str, rows: list[Value]) -> str:
    """The page with the table between its two marks. ValueError if it does not have them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs the lines {BEGIN!r} and {END!r}")
    table = ["| value | default | what it is |", "| --- | --- | --- |", *map(_row, rows)]
    return before + "\n".join([BEGIN, "", *table, "", END]) + after


def _row(value: Value) -> str:
    default = "" if value.default is None else f"`{value.default}`"
    return f"| `{value.path}` | {default} | {value.about} |".replace("|  |", "| |").replace("|  |", "| |")


def _walk(
    node: yaml.MappingNode, schema: Mapping[str, Any], root: Mapping[str, Any], prefix: str, lines: list[str]
) -> Iterator[Value]:
    for key, value in cast("list[tuple[yaml.ScalarNode, yaml.Node]]", node.value):
        path = f"{prefix}{key.value}"
        about = _comment(lines, key.start_mark.line, key.start_mark.column)
        below = _property(schema, root, str(key.value))
        if isinstance(value, yaml.MappingNode) and value.value and "properties" in below:
            if about:
                yield Value(path, None, about)
            yield from _walk(value, below, root, f"{path}.", lines)
        else:
            loader = yaml.SafeLoader("")
            yield Value(path, json.dumps(loader.construct_object(value, deep=True)), about)


def _property(schema: Mapping[str, Any], root: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = schema.get("properties", {}).get(name, {})
    return _resolved(found, root)


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    return schema if reference is None else root["definitions"][str(reference).rpartition("/")[2]]


def _allowed(schema: Mapping[str, Any], root: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """The paths of all values that the schema names and that are not free in their form."""
    for name, field in schema.get("properties", {}).items():
        below = _resolved(field, root)
        if below.get("additionalProperties") is False and "properties" in below:
            yield from _allowed(below, root, f"{prefix}{name}.")
        elif prefix != "global." and name != "global":
            yield f"{prefix}{name}"


def _comment(lines: list[str], line: int, column: int) -> str:
    """The lines of comment directly above a key, in its column, as Markdown."""
    taken: list[str] = []
    mark = " " * column + "#"
    while line > 0 and lines[line - 1].startswith(mark):
        line -= 1
        taken.insert(0, lines[line].removeprefix(mark))
    words: list[str] = []
    for text in taken:
        is_example = text.startswith("   ")
        words.append(f"`{text.strip()}`" if is_example else text.strip())
    return " ".join(word for word in words if word).replace("|", "\\|")
