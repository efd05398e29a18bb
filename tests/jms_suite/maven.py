"""Runs the JUnit tests of a Maven project, and says what came of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jms_suite import surefire
from support.progress import note_end

__all__ = ["Ran", "test"]

ENDED: Final = re.compile(r"Tests run: .* -- in (\S+)")
"""What Maven prints when the tests of a class have ended."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What Maven left: Surefire's reports, its exit code and its output."""

    report: surefire.Report
    ended: tuple[str, ...]
    """The classes that Maven reported as they ended, in this order."""
    code: int
    output: str


def test(project: Path, definitions: Mapping[str, str]) -> Ran:
    """`mvn test` with system properties. Fails if there is no Maven. Each class that ends is progress to hack/test."""
    maven = shutil.which("mvn")
    assert maven is not None, "Maven is needed: apt-get install -y maven openjdk-17-jdk-headless"
    reports = project / "target" / "surefire-reports"
    shutil.rmtree(reports, ignore_errors=True)
    command = [maven, "-B", "-ntp", "test", *(f"-D{name}={value}" for name, value in definitions.items())]
    lines: list[str] = []
    classes: list[str] = []
    with subprocess.Popen(
        command,
        cwd=project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line)
                if (ended := ENDED.search(line)) is not None:
                    note_end(ended[1])
                    classes.append(ended[1])
        except BaseException:
            process.kill()  # the test was ended: it took longer than it may
            raise
    return Ran(surefire.read(reports), tuple(classes), process.returncode, "".join(lines))
