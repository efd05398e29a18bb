"""Folders named `operator` must never become packages: they would shadow Python's own module of that name."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_no_package_of_ours_is_named_like_one_of_pythons_own() -> None:
    packages = [*ROOT.glob("*/__init__.py"), *ROOT.glob("tests/**/__init__.py")]
    names = {path.parent.name for path in packages}
    assert names & sys.stdlib_module_names == set()


def test_every_package_is_in_the_wheel() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    found = {
        str(path.parent.relative_to(ROOT))
        for folder in ("broker", "operator")
        for path in ROOT.glob(f"{folder}/*/__init__.py")
    }
    assert set(listed["packages"]) == found


def test_the_standard_operator_module_is_pythons() -> None:
    import operator

    assert operator.attrgetter("real")(1) == 1
