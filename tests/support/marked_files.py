"""Which files a run by `-m` need not import: without the marker that it asks for, no test of a file can be chosen."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["can_hold", "markers_asked_for", "names_marker"]

ANY_OF = re.compile(r"\w+(?: or \w+)*")
ONE_WITHOUT = re.compile(r"(\w+)(?: and not \w+)+")


def markers_asked_for(expression: str) -> frozenset[str]:
    """Those of which a test needs at least one, for the forms `a or b` and `a and not b`; of other forms, none."""
    if ANY_OF.fullmatch(expression):
        return frozenset(expression.split(" or "))
    if one := ONE_WITHOUT.fullmatch(expression):
        return frozenset({one[1]})
    return frozenset()


def can_hold(file: Path, expression: str) -> bool:
    """Whether a test in this file may be chosen by `-m expression`."""
    asked = markers_asked_for(expression)
    return not asked or any(names_marker(file, marker) for marker in asked)


def names_marker(file: Path, marker: str) -> bool:
    """Whether the text of the file has the marker. Each test must be marked in its own file."""
    return re.search(rf"\bmark\.{marker}\b", file.read_text()) is not None
