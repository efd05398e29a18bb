"""Runs the JUnit tests of a Maven project, and says what came of them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jms_suite import surefire

__all__ = ["Ran", "test"]

MINUTES: Final = 15


@dataclass(frozen=True, slots=True)
class Ran:
    """What Maven left: Surefire's reports, its exit code and its output."""

    report: surefire.Report
    code: int
    output: str


def test(project: Path, definitions: Mapping[str, str]) -> Ran:
    """`mvn test` with system properties. Fails if Maven is lacking, or takes longer than it may."""
    maven = shutil.which("mvn")
    assert maven is not None, "Maven is needed: apt-get install -y maven openjdk-17-jdk-headless"
    reports = project / "target" / "surefire-reports"
    shutil.rmtree(reports, ignore_errors=True)
    ran = subprocess.run(
        [maven, "-B", "-ntp", "test", *(f"-D{name}={value}" for name, value in definitions.items())],
        cwd=project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=MINUTES * 60,
    )
    return Ran(surefire.read(reports), ran.returncode, ran.stdout)
