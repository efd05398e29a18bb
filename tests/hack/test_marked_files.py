"""A run by marker imports the files that name it, and no other ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.marked_files import can_hold


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("", {"spark", "cluster", "both", "similar", "none"}),
        ("spark", {"spark", "both"}),
        ("spark or cluster", {"spark", "cluster", "both"}),
        ("spark and not cluster", {"spark", "both"}),
        # Of these, a test without any marker can be chosen.
        ("not spark", {"spark", "cluster", "both", "similar", "none"}),
        ("not spark and not cluster", {"spark", "cluster", "both", "similar", "none"}),
        ("spark or not cluster", {"spark", "cluster", "both", "similar", "none"}),
        ("not (spark or cluster)", {"spark", "cluster", "both", "similar", "none"}),
    ],
)
def test_what_has_the_marker_is_imported(tmp_path: Path, expression: str, found: set[str]) -> None:
    texts = {
        "spark": "@pytest.mark.spark\n",
        "cluster": "pytestmark = pytest.mark.cluster\n",
        "both": "pytestmark = [pytest.mark.cluster, pytest.mark.spark]\n",
        "similar": "@pytest.mark.sparkling\n",
        "none": "spark = 1\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert {name for name in texts if can_hold(tmp_path / name, expression)} == found
