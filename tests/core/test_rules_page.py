"""docs/reference/rules.md holds what hack/rules prints, and a line for each decision."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_rules_print() -> None:
    done = subprocess.run([sys.executable, ROOT / "hack" / "rules", "--check"], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_the_page_has_every_row_and_decision() -> None:
    page = (ROOT / "docs" / "reference" / "rules.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^\| (?:YES|NO) \|", page, re.MULTILINE)) == 12
    assert re.findall(r"^(\d+)\. ", page, re.MULTILINE) == [str(number) for number in range(1, 18)]
