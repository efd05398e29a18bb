"""The commands of hack/: each tells what it is for and how it is called, and what is typed wrong is told."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in (ROOT / "hack", ROOT / "hack/soak")
    for path in folder.iterdir()
    if path.is_file() and not path.suffix
)


def hack(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)


def test_they_are_found() -> None:
    assert {"hack/demo", "hack/test", "hack/env", "hack/soak/fuzz"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_has_help(command: str) -> None:
    said = hack(command, "--help")
    assert (said.returncode, said.stderr) == (0, "")
    assert command in said.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_what_does_not_exist_is_refused(command: str) -> None:
    said = hack(command, "--nonsense")
    assert (said.returncode, "Traceback" in said.stderr) == (2, False)
    assert said.stderr


@pytest.mark.parametrize(
    ("command", "words", "told"),
    [
        (
            "crash",
            "--files nosuch",
            "there is no file layer 'nosuch'; there are: aio, counted, lossy, points, lossy-points",
        ),
        ("crash", "--files aio,", "there is no file layer ''; there are: aio"),
        ("crash", "--kills 0", "--kills must be at least 1"),
        ("mixed", "--files points", "there is no file layer 'points'; there are: aio, lossy"),
        ("sparse", "--one-in 60000,many", "--one-in must be whole numbers above 0"),
        ("sparse", "--one-in 0", "--one-in must be whole numbers above 0"),
    ],
)
def test_a_soak_that_is_asked_for_what_there_is_not_says_what_there_is(command: str, words: str, told: str) -> None:
    said = hack(f"hack/soak/{command}", *words.split())
    assert (said.returncode, "Traceback" in said.stderr) == (2, False)
    assert told in said.stderr


def test_several_stages_may_stand_behind_one_only() -> None:
    assert hack("hack/test", "--only", "jms", "clients", "--only", "fast", "--list").returncode == 0
    said = hack("hack/test", "--only", "jms", "cliens")
    assert said.returncode == 2
    assert "there is no stage cliens; there are: env, images, cluster, style, rules, " in said.stderr


def test_no_test_of_the_long_form_is_ended_for_the_time_that_it_takes() -> None:
    """pytest tells in its header after how many seconds it ends a test, if it does."""
    endless = runpy.run_path(str(ROOT / "hack/soak/machine"))["ENDLESS"]
    collect = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "tests/test_layout.py")
    assert "\ntimeout: 800.0s\n" in hack(*collect).stdout
    assert "\ntimeout: " not in hack(*collect, *endless).stdout
