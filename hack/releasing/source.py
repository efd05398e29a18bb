"""The commit that a release is made of: whether it may become one, its files, and its notes.

A release is a function of its commit: the files are those of the commit, and their time is the commit's.
"""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import tomllib
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final

import yaml
from kube.steps import USAGE, Failure, output

__all__ = ["CHARTS", "Commit", "checked_commit", "export", "notes_of"]

CHARTS: Final = ("helm/penstock-broker", "helm/penstock-operator")
_VERSION: Final = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit of a release."""

    root: Path
    """The repository."""
    digest: str
    seconds: int
    """Its time, in seconds since 1970: the time of every file of the release (SOURCE_DATE_EPOCH)."""


def checked_commit(root: Path, version: str) -> Commit:
    """The commit that is checked out, if it may become the release `version`.

    Raises:
        Failure: it may not; the message names every reason and what to do.
    """
    if _VERSION.fullmatch(version) is None:
        raise Failure(f"{version!r} is not a version; write one such as 1.2.0 or 1.2.0-rc.1", USAGE)
    reasons = [*_of_tree(root), *_of_tag(root, version), *_of_files(root, version)]
    if reasons:
        raise Failure("\n".join(f"- {reason}" for reason in ("this commit can't be released:", *reasons))[2:], USAGE)
    digest, seconds = output(_git(root, "log", "-1", "--format=%H %ct")).split()
    return Commit(root, digest, int(seconds))


def export(commit: Commit, target: Path) -> None:
    """Write the files of the commit into the empty folder `target`, all with the commit's time."""
    packed = subprocess.run(_git(commit.root, "archive", commit.digest), capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as tar:
        tar.extractall(target, filter="data")
    for folder, _, files in os.walk(target):
        for name in files:
            os.utime(Path(folder) / name, (commit.seconds, commit.seconds), follow_symlinks=False)


def notes_of(changelog: str, version: str) -> str | None:
    """The section of a version in CHANGELOG.md, without its heading; None if there is none, or if it is empty."""
    found = re.search(rf"^## {re.escape(version)}(?: [^\n]*)?$\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    text = "" if found is None else found[1].strip()
    return f"{text}\n" if text else None


def _git(root: Path, *arguments: str) -> list[str | Path]:
    return ["git", "-C", root, *arguments]


def _of_tree(root: Path) -> list[str]:
    changed = output(_git(root, "status", "--porcelain")).splitlines()
    if not changed:
        return []
    named = ", ".join(line[3:] for line in changed[:3]) + (", ..." if len(changed) > 3 else "")
    return [f"{len(changed)} files are changed or new ({named}): commit them, or put them away with `git stash -u`"]


def _of_tag(root: Path, version: str) -> list[str]:
    if output(_git(root, "tag", "--list", f"v{version}")).strip():
        pointed = output(_git(root, "rev-list", "-n1", f"v{version}")).strip()
        if pointed != output(_git(root, "rev-parse", "HEAD")).strip():
            return [f"the tag v{version} is at another commit: check that out, or choose the next version"]
    return []


def _of_files(root: Path, version: str) -> list[str]:
    reasons: list[str] = []
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if project != version:
        reasons.append(f"pyproject.toml has the version {project}: write {version} there")
    for chart in CHARTS:
        about = yaml.safe_load((root / chart / "Chart.yaml").read_text(encoding="utf-8"))
        wrong = [f"{key} {about[key]}" for key in ("version", "appVersion") if about[key] != version]
        if wrong:
            reasons.append(f"{chart}/Chart.yaml has {' and '.join(wrong)}: write {version} there")
    if notes_of((root / "CHANGELOG.md").read_text(encoding="utf-8"), version) is None:
        reasons.append(f"CHANGELOG.md has no text below a heading `## {version}`: rename `## Unreleased`")
    return reasons
