"""hack/env installs what is asked for, once: the demo's packages alone, or all of them, in either order."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What hack/env reads, with a Python in .venv that only notes what it is asked to install."""
    (tmp_path / "hack").mkdir()
    shutil.copy(ROOT / "hack" / "env", tmp_path / "hack")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "hatch_build.py", tmp_path)
    shutil.copytree(ROOT / "broker" / "penstock_native", tmp_path / "broker" / "penstock_native")
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nfor each; do last=$each; done\necho "$last" >>"$(dirname "$0")/installed"\n')
    python.chmod(0o755)
    return tmp_path


def installed(clone: Path, *options: str) -> list[str]:
    """Run hack/env; what it installed."""
    notes = clone / ".venv" / "bin" / "installed"
    notes.unlink(missing_ok=True)
    subprocess.run([clone / "hack" / "env", *options], check=True, capture_output=True)
    return notes.read_text().split() if notes.exists() else []


ALL, DEMO = ["requirements/all.lock", "."], ["requirements/demo.lock", "."]


def test_the_demo_installs_its_own_and_the_tests_complete_it(clone: Path) -> None:
    assert installed(clone, "--demo") == DEMO
    assert installed(clone, "--demo") == []
    assert installed(clone) == ALL
    assert installed(clone) == []
    assert installed(clone, "--demo") == [], "everything of the demo is there"


@pytest.mark.parametrize(
    "changed",
    [
        "requirements/all.lock",
        "requirements/demo.lock",
        "pyproject.toml",
        "hatch_build.py",
        "broker/penstock_native/batches.c",
        "broker/penstock_native/pointers.h",
        "hack/env",
    ],
)
def test_a_change_installs_anew(clone: Path, changed: str) -> None:
    installed(clone)
    with (clone / changed).open("a") as file:
        file.write("# changed\n")
    only_demo = changed == "requirements/demo.lock"
    assert installed(clone) == ([] if only_demo else ALL)
    assert installed(clone, "--demo") == []


def test_what_the_demo_changed_is_not_taken_for_whole(clone: Path) -> None:
    """An older all.lock comes back: its stamp must not be there any more."""
    lock = clone / "requirements" / "all.lock"
    before = lock.read_text()
    installed(clone)
    lock.write_text(before + "# changed\n")
    assert installed(clone, "--demo") == DEMO
    lock.write_text(before)
    assert installed(clone) == ALL


def test_check_installs_nothing(clone: Path) -> None:
    assert installed(clone, "--check") == []


def test_an_installation_that_fails_is_done_again(clone: Path) -> None:
    python = clone / ".venv" / "bin" / "python"
    good = python.read_text()
    python.write_text("#!/bin/sh\nexit 1\n")
    failed = subprocess.run([clone / "hack" / "env"], capture_output=True, text=True)
    assert (failed.returncode, "hack/env: failed" in failed.stderr) == (1, True)
    python.write_text(good)
    assert installed(clone) == ALL


@pytest.mark.parametrize("lock", ["demo", "broker", "operator", "lag"])
def test_each_lock_file_takes_its_versions_from_all(lock: str) -> None:
    def pins(name: str) -> set[str]:
        return set(re.findall(r"^\S+==\S+", (ROOT / "requirements" / f"{name}.lock").read_text(), re.MULTILINE))

    assert pins(lock) and pins(lock) <= pins("all")


def test_the_demo_installs_no_tools_of_developers() -> None:
    text = (ROOT / "requirements" / "demo.lock").read_text()
    for name in ("mypy", "pyright", "atheris", "pytest", "kubernetes", "kopf", "hypothesis", "ruff"):
        assert f"\n{name}==" not in text
    assert os.access(ROOT / "hack" / "env", os.X_OK)
