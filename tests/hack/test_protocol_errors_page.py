"""docs/reference/rules.md has every error condition that a client of ours can be told."""

from __future__ import annotations

import re
from pathlib import Path

from penstock_core.reason import ErrorCondition

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "rules.md").read_text(encoding="utf-8")
TOLD = re.compile(r"(?:ProtocolError|AmqpError)\(\s*\"(amqp:[a-z:-]+)\"")
SECTION = PAGE.partition("## Errors of the protocol\n")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| `(amqp:[a-z:-]+)` \| the (connection|session|link) \| .+ \|$", SECTION, re.MULTILINE)


def told_in_code() -> set[str]:
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "broker").glob("penstock_*/**/*.py"))
    return {condition for source in sources for condition in TOLD.findall(source)}


def test_every_condition_that_is_told_stands_on_the_page() -> None:
    listed = {condition for condition, _ in ROWS} | {each.value for each in ErrorCondition}
    found = told_in_code()
    assert {"amqp:decode-error", "amqp:illegal-state", "amqp:link:transfer-limit-exceeded"} <= found
    assert found - listed == set()


def test_each_row_says_once_what_ends() -> None:
    assert len(set(ROWS)) == len(ROWS) == 17
