"""What goes into the images, and its hash: the tag.

The inputs are copied first and hashed as copied, so that an image is exactly what its tag says while sources are being
edited. Only what goes in counts: a tag stays the same over changes of tests, docs and commits.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from kube.settings import REPOSITORY, versions

APPLICATIONS = ("broker", "operator", "lag")
NAMES = (*APPLICATIONS, "spark-operator")
SOURCES = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "broker", "operator")
RECIPES = "hack/dockerfiles"
LOCKS = {"broker": "broker", "operator": "operator", "lag": "lag", "spark-operator": "lag"}


def _inputs(name: str) -> list[str]:
    """The files and folders that an image is made of, as paths in the repository."""
    common = [f"{RECIPES}/Dockerfile.{name}", "requirements/build.lock", f"requirements/{LOCKS[name]}.lock"]
    if name == "spark-operator":
        return common
    extra = [f"{RECIPES}/lag.py", f"{RECIPES}/spark-entrypoint"] if name == "lag" else []
    return [*common, *extra, *SOURCES]


def _files(top: Path, inputs: list[str]) -> Iterator[Path]:
    for entry in sorted(set(inputs)):
        place = top / entry
        if place.is_dir():
            yield from sorted(file for file in place.rglob("*") if file.is_file() and not _is_made(file))
        else:
            yield place


def _is_made(file: Path) -> bool:
    """An image makes its own of it."""
    return "__pycache__" in file.parts or file.suffix == ".so"


def _tag(top: Path, inputs: list[str], also: str) -> str:
    digest = hashlib.sha256(also.encode())
    for file in _files(top, inputs):
        digest.update(f"\0{file.relative_to(top)}\0{file.stat().st_mode & 0o111:o}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def tag(name: str, top: Path = REPOSITORY) -> str:
    """The tag of an image from the sources in `top`; the three of our own have one tag in common."""
    if name == "spark-operator":
        return _tag(top, _inputs(name), f"{versions()['DEBIAN']} {versions()['SPARK_OPERATOR']}")
    every = [entry for application in APPLICATIONS for entry in _inputs(application)]
    return _tag(top, every, versions()["DEBIAN"])


def reference(name: str, top: Path = REPOSITORY) -> str:
    """The full image name, as manifests give it."""
    return f"localhost/penstock-{name}:{tag(name, top)}"


def snapshot(target: Path) -> None:
    """Copies all inputs into the empty folder `target`, with times and modes that no checkout of its own decides.

    So the builder finds its layers again after a fresh clone.
    """
    every = [entry for name in NAMES for entry in _inputs(name)]
    for file in _files(REPOSITORY, every):
        copy = target / file.relative_to(REPOSITORY)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
        copy.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)
        os.utime(copy, (0, 0))
    for folder, _, _ in os.walk(target):
        os.utime(folder, (0, 0))
