"""docs/reference/management.md has every key of what CREATE and UPDATE declare."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock_api.management import ExchangeDeclaration, ManagementDocument, QueueDeclaration, SubscriptionDeclaration

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/management.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \| ([\w, ]+) \|", re.MULTILINE)
"""A row of the table of keys: the keys, and what has them."""


def keys_of(kind: str) -> set[str]:
    """The keys that the page gives to the declaration of a kind."""
    (_, after) = PAGE.split("### The body of a declaration")
    table = after.split("\n###")[0]
    return {
        key
        for keys, kinds in ROW.findall(table)
        if kind in kinds.split(", ") or kinds == "all three"
        for key in re.findall(r"\w+", keys)
    }


@pytest.mark.parametrize(
    ("kind", "model"),
    [("exchange", ExchangeDeclaration), ("subscription", SubscriptionDeclaration), ("queue", QueueDeclaration)],
)
def test_the_page_has_the_keys_of_a_declaration(kind: str, model: type[ManagementDocument]) -> None:
    assert keys_of(kind) == {field.alias or name for name, field in model.model_fields.items()}
