"""The command hack/release."""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kube import binaries, images, preflight, sources
from kube.settings import Folders, folders
from kube.steps import FAILED, NOT_POSSIBLE, Failure, say, step

from releasing.bills import Locked, bill, locked_packages
from releasing.images import build_images, debian_packages, write_archive
from releasing.packages import build_charts, build_python
from releasing.source import Commit, checked_commit, export, notes_of

__all__ = ["main"]

DESCRIPTION = """\
Makes a release of the commit that is checked out, in build/release/VERSION: the wheel and the sdist, the charts, the
images as OCI archives, bills of materials (CycloneDX), the notes of CHANGELOG.md, and SHA256SUMS of them all. It
publishes nothing. Two runs on one commit give the same bytes; docs/how-to/release.md says what that rests on."""
MACHINE: Final = {"python_version": "3.11", "python_full_version": "3.11.2", "sys_platform": "linux",
                  "platform_system": "Linux", "platform_machine": "x86_64", "implementation_name": "cpython",
                  "platform_python_implementation": "CPython", "os_name": "posix", "extra": ""}  # fmt: skip
"""The Python of the images, for the markers of the lock files."""
SUMS: Final = "SHA256SUMS"
NOTES: Final = "NOTES.md"


def main(arguments: list[str], root: Path) -> int:
    """Run the command line on the repository at `root`. Returns the exit code."""
    options = _parser(root).parse_args(arguments)
    try:
        _release(options, root)
    except Failure as failure:
        print(f"hack/release: {failure}", file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        print("hack/release: interrupted; nothing was released", file=sys.stderr)
        return FAILED
    return 0


def _release(options: argparse.Namespace, root: Path) -> None:
    version, target = str(options.version), Path(options.output) / str(options.version)
    commit = checked_commit(root, version)
    if target.exists():
        raise Failure(f"{target} is there already; remove it to make this release again")
    places = folders()
    helm = _helm(places)
    if options.images:
        preflight.check(places, preflight.IMAGES, builds_go=False, disk_gib=12, install=False)
    target.parent.mkdir(parents=True, exist_ok=True)
    log = target.parent / f"{version}.log"
    log.unlink(missing_ok=True)
    # What is not complete must not look like a release: it gets its name at the end.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{version}-") as scratch:
        tree, made = Path(scratch) / "tree", Path(scratch) / "made"
        tree.mkdir()
        made.mkdir()
        with step(f"files of commit {commit.digest[:12]}"):
            export(commit, tree)
        with step("wheel and sdist"):
            build_python(commit, tree, made, log)
        with step("charts"):
            build_charts(commit, tree, made, helm, log)
        with step("bill of materials of the wheel"):
            locked = {it for name in sources.APPLICATIONS for it in _locked(tree, name)}
            _write_bill(made, "penstock", version, commit, sorted(locked, key=lambda it: (it.name, it.version)))
        if options.images:
            _images(places, tree, made, version, commit)
        (made / NOTES).write_text(notes_of((tree / "CHANGELOG.md").read_text(encoding="utf-8"), version) or "")
        (made / SUMS).write_text(_sums(made))
        shutil.move(made, target)
    say(f"{target} holds release {version}; docs/how-to/release.md says what to do with it")
    print(target)


def _images(places: Folders, tree: Path, made: Path, version: str, commit: Commit) -> None:
    layout = images.layout(places)
    for short, image in build_images(places).items():
        name = f"penstock-{short}"
        with step(f"image {name}, as an archive"):
            write_archive(layout, image, name, version, commit, made / f"{name}-{version}.oci.tar")
        with step(f"bill of materials of image {name}"):
            _write_bill(made, name, version, commit, _locked(tree, short), debian_packages(layout, image))


def _write_bill(
    made: Path,
    name: str,
    version: str,
    commit: Commit,
    packages: list[Locked],
    debian: Mapping[str, str] | None = None,
) -> None:
    text = bill(name, version, commit.digest, commit.seconds, packages, debian)
    (made / f"{name}-{version}.cdx.json").write_text(text, encoding="utf-8")


def _locked(tree: Path, image: str) -> list[Locked]:
    text = (tree / "requirements" / f"{sources.LOCKS[image]}.lock").read_text(encoding="utf-8")
    return locked_packages(text, MACHINE)


def _sums(made: Path) -> str:
    """As sha256sum writes and checks them."""
    lines: list[str] = []
    for file in sorted(made.iterdir()):
        with file.open("rb") as content:
            lines.append(f"{hashlib.file_digest(content, 'sha256').hexdigest()}  {file.name}\n")
    return "".join(lines)


def _helm(places: Folders) -> Path:
    built = binaries.located(places)["helm"]
    found = str(built) if built.exists() else shutil.which("helm")
    if found is None:
        raise Failure("there is no Helm: install it, or build it with `hack/cluster build`", NOT_POSSIBLE)
    return Path(found)


def _parser(root: Path) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hack/release", description=DESCRIPTION)
    parser.add_argument("version", metavar="VERSION", help="such as 1.2.0; pyproject.toml and both charts must have it")
    text = "leaves the images out; they need root and buildah, and several minutes if they are not built"
    parser.add_argument("--no-images", dest="images", action="store_false", help=text)
    text = "folder in which a folder VERSION is made; build/release if it is left out"
    parser.add_argument("--output", default=root / "build" / "release", type=Path, metavar="DIR", help=text)
    return parser
