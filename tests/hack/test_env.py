"""hack/env installs what is asked for, once: the demo's packages alone, or all of them, in either order."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What hack/env reads, with a Python in .venv that only notes what it is asked to install."""
    (tmp_path / "hack" / "stages").mkdir(parents=True)
    shutil.copy(ROOT / "hack" / "env", tmp_path / "hack")
    shutil.copy(ROOT / "hack" / "stages" / "installing.py", tmp_path / "hack" / "stages")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "hatch_build.py", tmp_path)
    shutil.copytree(ROOT / "broker" / "penstock_native", tmp_path / "broker" / "penstock_native")
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nfor each; do last=$each; done\necho "$last" >>"$(dirname "$0")/installed"\n')
    python.chmod(0o755)
    (python.parent / "pip").touch()
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


def test_what_it_does_is_said(clone: Path) -> None:
    said = subprocess.run([clone / "hack" / "env", "--demo"], capture_output=True, text=True).stderr
    packages = (ROOT / "requirements" / "demo.lock").read_text().count("==")
    steps = [re.sub(r"\d+:\d\d|\d+ s$", "N", line) for line in said.splitlines() if "]   " not in line]
    assert steps == [
        f"hack/env: [N] installing {packages} packages (some minutes when nothing is cached: Spark alone is 456 MB)",
        "hack/env: [N] compiling and installing penstock in place",
        "hack/env: ready after N",
    ]


@pytest.mark.parametrize(("free", "option", "code"), [(999, "--demo", 3), (1000, "--demo", 0), (1999, "", 3)])
def test_a_disk_without_room_is_named_before_anything_is_installed(
    clone: Path, free: int, option: str, code: int
) -> None:
    df = clone / "programs" / "df"
    df.parent.mkdir()
    df.write_text(f"#!/bin/sh\necho Filesystem 1024-blocks Used Available\necho /dev/vda 9 9 {free * 1024}\n")
    df.chmod(0o755)
    environment = {**os.environ, "PATH": f"{df.parent}:{os.environ['PATH']}"}
    said = subprocess.run(
        [clone / "hack" / "env", *option.split()], env=environment, capture_output=True, text=True
    )  # fmt: skip
    assert (said.returncode, f"has {free} MB left" in said.stderr) == (code, code == 3), said.stderr
    assert (clone / ".venv" / "bin" / "installed").exists() == (code == 0)


@pytest.mark.parametrize(
    ("there", "free", "option", "needed"),
    [
        (1500, 499, "", 500),  # all is there, but versions have changed
        (1500, 500, "", 0),
        (700, 1299, "", 1300),  # what the demo has installed
        (700, 1300, "", 0),
        (700, 299, "--demo", 300),
        (5000, 249, "--demo", 250),
    ],
)
def test_what_is_in_the_environment_already_needs_no_room(
    clone: Path, there: int, free: int, option: str, needed: int
) -> None:
    programs = clone / "programs"
    programs.mkdir()
    for name, script in (
        ("df", f"echo Filesystem 1024-blocks Used Available\necho /dev/vda 9 9 {free * 1024}"),
        ("du", f"echo {there * 1024} .venv"),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    said = subprocess.run([clone / "hack" / "env", *option.split()], env=environment, capture_output=True, text=True)
    assert said.returncode == (3 if needed else 0), said.stderr
    assert (f"has {free} MB left, and .venv needs {needed} more" in said.stderr) == bool(needed)


def test_without_a_network_the_cause_is_named(clone: Path) -> None:
    python = clone / ".venv" / "bin" / "python"
    python.write_text("#!/bin/sh\necho 'after connection broken by NewConnectionError'\nexit 1\n")
    failed = subprocess.run([clone / "hack" / "env"], capture_output=True, text=True)
    assert (failed.returncode, "the package index cannot be reached" in failed.stderr) == (3, True)


def test_an_environment_that_was_not_made_to_its_end_is_made_again(clone: Path) -> None:
    """Python with a module venv that only writes what is written last."""
    python = clone / "python3"
    python.write_text(f'#!/bin/sh\n[ "$1 $2" = "-m venv" ] && exec touch "$3/bin/pip"\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (clone / ".venv" / "bin" / "pip").unlink()
    for made in (True, False):
        said = subprocess.run(
            [clone / "hack" / "env", "--demo"], env={**os.environ, "PENSTOCK_PYTHON": str(python)},
            capture_output=True, text=True,
        )  # fmt: skip
        assert (said.returncode, "making .venv" in said.stderr) == (0, made), said.stderr


def test_a_python_that_is_too_old_is_named(clone: Path, tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.9.2\nexit 1\n')
    old.chmod(0o755)
    for python, found in ((old, f"{old} is Python 3.9.2;"), (tmp_path / "none", f"there is no {tmp_path}/none;")):
        said = subprocess.run(
            [clone / "hack" / "env"], env={**os.environ, "PENSTOCK_PYTHON": str(python)}, capture_output=True, text=True
        )
        assert (said.returncode, found in said.stderr) == (3, True), said.stderr


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
