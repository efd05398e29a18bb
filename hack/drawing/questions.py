"""What a dashboard asks: its expressions with variables put in, and the names that its legends give to series."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Choice", "choice", "filled", "legend", "values_question"]

VARIABLE: Final = re.compile(r"\$(\w+)|\$\{(\w+)(?::\w+)?\}")
LABEL: Final = re.compile(r"\{\{\s*(\w+)\s*\}\}")
VALUES: Final = re.compile(r"label_values\((.+),\s*(\w+)\)", re.DOTALL)
SPECIAL: Final = re.compile(r"([\\^$.*+?()\[\]{}|])")


@dataclass(frozen=True)
class Choice:
    """What is chosen of a variable: always all of its values."""

    text: str
    """What a title shows."""
    pattern: str
    """What an expression gets."""


def choice(variable: Mapping[str, Any], values: Sequence[str]) -> Choice:
    """All of these values, as Grafana puts them into a matcher `=~`."""
    if variable.get("allValue"):
        return Choice("All", variable["allValue"])
    return Choice("All", "(" + "|".join(SPECIAL.sub(r"\\\\\1", value) for value in values) + ")")


def values_question(definition: str) -> tuple[str, str]:
    """The selector and the label of `label_values(selector, label)`."""
    found = VALUES.fullmatch(definition.strip())
    if found is None:
        raise ValueError(f"only label_values(selector, label) can be asked, not {definition!r}")
    return found[1].strip(), found[2]


def filled(text: str, chosen: Mapping[str, str]) -> str:
    """The text with each variable replaced. A name that is not known stays as it is, as in Grafana."""
    return VARIABLE.sub(lambda found: chosen.get(found[1] or found[2], found[0]), text)


def legend(pattern: str, labels: Mapping[str, str], asked: str) -> str:
    """The name of a series. Without a pattern Grafana shows the labels, or what was asked if there are none."""
    if pattern:
        return LABEL.sub(lambda found: labels.get(found[1], ""), pattern).strip()
    shown = ", ".join(f'{name}="{value}"' for name, value in labels.items() if name != "__name__")
    return labels.get("__name__", "") + "{" + shown + "}" if shown else labels.get("__name__", asked)
