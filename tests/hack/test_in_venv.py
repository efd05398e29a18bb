"""A command of hack/ runs in a complete .venv, or says what is missing; none ends with a traceback instead."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = "import in_venv\nin_venv.enter()\n"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with a command that needs .venv."""
    (tmp_path / "hack").mkdir()
    shutil.copy(ROOT / "hack" / "in_venv.py", tmp_path / "hack")
    (tmp_path / "hack" / "command").write_text(COMMAND)
    return tmp_path


def called(clone: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "hack/command"], cwd=clone, capture_output=True, text=True)


def made(clone: Path) -> None:
    """A Python in .venv that only tells that it was called."""
    python = clone / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "in .venv: $*"\n')
    python.chmod(0o755)


def test_without_an_environment(clone: Path) -> None:
    done = called(clone)
    assert (done.returncode, done.stderr) == (3, "hack/command: there is no .venv here; run hack/env first\n")


def test_with_the_packages_of_the_demo_alone(clone: Path) -> None:
    made(clone)
    (clone / ".venv" / "penstock-stamp-demo").touch()
    done = called(clone)
    assert (done.returncode, done.stderr) == (
        3, "hack/command: packages are missing in .venv; run hack/env first\n"
    )  # fmt: skip


def test_with_all_packages(clone: Path) -> None:
    made(clone)
    (clone / ".venv" / "penstock-stamp-all").touch()
    done = called(clone)
    assert (done.returncode, done.stdout) == (0, "in .venv: hack/command\n")


@pytest.mark.parametrize("version", [(3, 8, 18), (3, 10, 13)])
def test_a_python_that_is_too_old(version: tuple[int, ...]) -> None:
    written = ".".join(map(str, version))
    script = f"import sys; sys.version_info = {version}; import in_venv; in_venv.require_python()"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT / "hack", capture_output=True, text=True)
    assert (done.returncode, f"needs Python 3.11 or newer; python3 is {written}" in done.stderr) == (3, True)


@pytest.mark.parametrize("command", ["cluster", "images", "rules", "test"])
def test_commands_that_run_without_an_environment_look_at_their_python_first(command: str) -> None:
    lines = (ROOT / "hack" / command).read_text().splitlines()
    ours = next(
        number for number, line in enumerate(lines) if line.startswith(("from kube", "from stages", "from pen"))
    )
    assert "in_venv.require_python()" in lines[:ours]
