"""Surefire's reports: how many tests ran, and which did not pass."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

__all__ = ["Report", "read"]


@dataclass(frozen=True, slots=True)
class Report:
    """One run of the Maven tests."""

    lines: tuple[str, ...]
    """A closing line per class."""
    tests: int
    bad: tuple[str, ...]
    """Tests that failed, erred or were skipped, each with the first line of its reason, and the line of the test."""


def read(folder: Path) -> Report:
    """Add up the XML reports of a folder."""
    lines: list[str] = []
    bad: list[str] = []
    tests = 0
    for file in sorted(folder.glob("TEST-*.xml")):
        suite = ElementTree.parse(file).getroot()
        counts = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
        tests += counts["tests"]
        words = ", ".join(f"{name} {count}" for name, count in counts.items())
        lines.append(f"{(suite.get('name') or file.stem).rpartition('.')[2]}: {words}, {suite.get('time')} s")
        bad += [line for case in suite.iter("testcase") if (line := _badness(case)) is not None]
    return Report(tuple(lines), tests, tuple(bad))


def _badness(case: ElementTree.Element) -> str | None:
    for kind in ("failure", "error", "skipped"):
        found = case.find(kind)
        if found is not None:
            trace = (found.text or "").strip()
            reason = (found.get("message") or trace).partition("\n")[0]
            named = (case.get("classname") or "").rpartition(".")[2]
            places = re.findall(rf"\({named}\.java:\d+\)", trace)
            return " ".join([f"{named}.{case.get('name')}: {kind}: {reason}", *places[:1]])
    return None
