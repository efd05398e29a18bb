"""docs/reference/features.md: every row says what we do first, and what it links to is there."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "features.md"


def rows() -> list[list[str]]:
    """The cells of the tables' rows, headings left out."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] not in ("feature", "suite", "---")]


def test_every_row_has_five_cells_and_what_we_do_has_a_link() -> None:
    assert len(rows()) > 50
    for row in rows():
        assert len(row) == 5, row
        assert "](" in row[1] or row[1].startswith("no"), row


def test_links_lead_to_files() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text()):
        assert (PAGE.parent / target).is_file(), target
