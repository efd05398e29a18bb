"""What expressions in PromQL refer to, by a parser, and the metrics that the documentation lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import promql_parser

__all__ = ["RECORDED", "ROOT", "Selector", "documented_metrics", "operator_metrics", "selectors"]

ROOT: Final = Path(__file__).resolve().parents[2]
RECORDED: Final = "penstock:subscription_lost_messages:rate5m"
"""The one series that the rules record."""

_GRAFANA: Final = {"$__rate_interval": "5m", "$__range": "1h", "$__interval": "1m"}


@dataclass(frozen=True)
class Selector:
    """One selector of series: the metric, and its matchers as label, operator and value."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]


def selectors(expression: str) -> list[Selector]:
    """Every selector of an expression, which may use Grafana's variables. Raises ValueError if it does not parse."""
    for variable, value in _GRAFANA.items():
        expression = expression.replace(variable, value)
    found: list[promql_parser.VectorSelector] = []

    def visit(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        elif isinstance(node, promql_parser.MatrixSelector):
            found.append(node.vector_selector)

    promql_parser.walk(promql_parser.parse(expression), visit)
    return [
        Selector(node.name or "", tuple((it.name, str(it.op), it.value) for it in node.matchers.matchers))
        for node in found
    ]


def documented_metrics() -> set[str]:
    """The names in the tables of docs/reference/observer.md, "Metrics", as Prometheus stores them."""
    page = (ROOT / "docs/reference/observer.md").read_text(encoding="utf-8")
    section = page.partition("\n## Metrics\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return {name for row in rows for name in _written_out(row.split("|")[1])}


def operator_metrics() -> set[str]:
    """The names in the table of docs/reference/operator.md."""
    page = (ROOT / "docs/reference/operator.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| `(penstock_[a-z_]+)`", page, re.MULTILINE))


def _written_out(cell: str) -> Iterator[str]:
    """The names in a cell, which may be short: a name that begins with `_` continues the first two words of the first
    name of its row, and one without `penstock` is of a subscription.
    """
    listed: list[str] = re.findall(r"`([a-z_]+)`", re.sub(r"\(.*?\)", "", cell))
    for name in listed:
        if name.startswith("penstock"):
            yield name
        elif name.startswith("_"):
            yield "_".join(listed[0].split("_")[:2]) + name
        else:
            yield f"penstock_subscription_{name}"
