"""docs/how-to/clients.md: each piece of code stands in the example that it names, which test_client_examples runs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "clients.md"
PIECE = re.compile(r"^<!-- from (\S+) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_code_on_the_page_is_code_that_is_tested() -> None:
    text = PAGE.read_text()
    pieces = PIECE.findall(text)
    assert [name for name, _ in pieces] == [
        "python/subscription.py",
        "node/broker.mjs",
        "go/subscription.go",
        "node/broker.mjs",
        "go/connect.go",
        "node/unsubscribe.mjs",
    ]
    for name, code in pieces:
        assert code in (ROOT / "examples" / "clients" / name).read_text(), name
    assert text.count("```") == 2 * len(pieces)


def test_links_of_the_page_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!https:)([^)#]+)\)", PAGE.read_text()):
        assert (PAGE.parent / target).exists(), target
