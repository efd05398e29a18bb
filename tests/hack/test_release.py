"""hack/release on a small repository with this one's sources: what it makes, that it makes it twice, and its refusals.

Images are archived from a layout in which there are two layers; building them needs root and buildah.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from kube.binaries import located
from kube.settings import folders
from kube.steps import Failure
from releasing.bills import Locked, bill, locked_packages
from releasing.commands import MACHINE, main
from releasing.images import debian_packages, write_archive
from releasing.source import Commit, checked_commit, notes_of

ROOT = Path(__file__).resolve().parents[2]
TAKEN = (
    "pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore", "broker", "operator",
    "requirements", "helm",
)  # fmt: skip
AT = "2026-03-01T12:00:00+00:00"
SECONDS = 1772366400


def git(root: Path, *arguments: str) -> None:
    identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b.c", "GIT_COMMITTER_NAME": "a"}
    identity |= {"GIT_COMMITTER_EMAIL": "a@b.c", "GIT_AUTHOR_DATE": AT, "GIT_COMMITTER_DATE": AT}
    subprocess.run(["git", "-C", root, *arguments], check=True, capture_output=True, env={**os.environ, **identity})


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One commit, whose CHANGELOG has a section 0.1.0."""
    root = tmp_path / "repository"
    root.mkdir()
    for name in TAKEN:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        else:
            shutil.copy(ROOT / name, root / name)
    changelog = root / "CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## 0.1.0 (2026-03-01)\n\n- It is there.\n\n## 0.0.9\n\n- Before.\n")
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "All")
    return root


def refusal(root: Path, version: str = "0.1.0") -> str:
    with pytest.raises(Failure) as failed:
        checked_commit(root, version)
    assert failed.value.code == 2
    return str(failed.value)


def test_the_commit_and_its_time_are_those_of_the_release(repository: Path) -> None:
    commit = checked_commit(repository, "0.1.0")
    assert (len(commit.digest), commit.seconds) == (40, SECONDS)


def test_all_that_stands_in_the_way_of_a_release_is_told_at_once(repository: Path) -> None:
    (repository / "README.md").write_text("changed")
    (repository / "helm/penstock-broker/Chart.yaml").write_text("version: 0.1.0\nappVersion: 0.2.0\n")
    said = refusal(repository, "0.3.0")
    assert "2 files are changed or new (README.md, helm/penstock-broker/Chart.yaml): commit them" in said
    assert "pyproject.toml has the version 0.1.0: write 0.3.0 there" in said
    assert "helm/penstock-broker/Chart.yaml has version 0.1.0 and appVersion 0.2.0: write 0.3.0 there" in said
    assert "CHANGELOG.md has no text below a heading `## 0.3.0`: rename `## Unreleased`" in said


def test_what_is_no_version_is_refused(repository: Path) -> None:
    assert refusal(repository, "v1").startswith("'v1' is not a version")


def test_a_version_that_exists_is_refused_at_another_commit(repository: Path) -> None:
    git(repository, "tag", "v0.1.0")
    assert checked_commit(repository, "0.1.0").seconds == SECONDS  # made again from the same commit
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "Next")
    assert "the tag v0.1.0 is at another commit" in refusal(repository)


def test_notes_are_the_section_of_the_version() -> None:
    text = (
        "# Changelog\n\n## Unreleased\n\n- a\n\n## 1.10.0 (today)\n\n### Part\n\n- b\n\n## 1.1.0\n\n## 1.0.0\n\n- d\n"
    )
    assert notes_of(text, "1.10.0") == "### Part\n\n- b\n"
    assert notes_of(text, "1.0.0") == "- d\n"
    assert notes_of(text, "1.1.0") is None
    assert notes_of(text, "1.1") is None


@pytest.mark.built  # hack/cluster builds Helm
def test_two_runs_make_the_same_files(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [tmp_path / "first", tmp_path / "a" / "longer" / "second"]
    for output, mask in zip(made, (0o022, 0o077), strict=True):
        before = os.umask(mask)
        try:
            assert main(["0.1.0", "--no-images", "--output", str(output)], repository) == 0, capsys.readouterr().err
        finally:
            os.umask(before)
    one, two = (output / "0.1.0" for output in made)
    assert sorted(file.name for file in one.iterdir()) == [
        "NOTES.md",
        "SHA256SUMS",
        "penstock-0.1.0-cp311-cp311-linux_x86_64.whl",
        "penstock-0.1.0.cdx.json",
        "penstock-0.1.0.tar.gz",
        "penstock-broker-0.1.0.tgz",
        "penstock-operator-0.1.0.tgz",
    ]
    assert (one / "SHA256SUMS").read_text() == (two / "SHA256SUMS").read_text()
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=two, check=True, capture_output=True)
    assert (one / "NOTES.md").read_text() == "- It is there.\n"
    with zipfile.ZipFile(next(one.glob("*.whl"))) as wheel:
        assert {"penstock_cli/main.py", "penstock_operator/main.py"} <= set(wheel.namelist())
        assert [name for name in wheel.namelist() if name.startswith("penstock_native/proton.") and ".so" in name]
    helm = located(folders())["helm"]
    shown = subprocess.run(
        [helm, "show", "chart", one / "penstock-operator-0.1.0.tgz"], check=True, capture_output=True
    )
    assert b"name: penstock-operator" in shown.stdout
    assert main(["0.1.0", "--no-images", "--output", str(made[0])], repository) == 1
    assert f"{one} is there already; remove it to make this release again" in capsys.readouterr().err


def test_a_lock_is_read_for_the_machine_of_the_images() -> None:
    lock = """\
        here==1.0 \\
            --hash=sha256:00
        there==2.0 ; sys_platform == 'win32' \\
            --hash=sha256:00
        old==3.0 ; python_full_version < '3.12'
        # a comment
    """
    text = "\n".join(line.removeprefix("        ") for line in lock.splitlines())
    assert locked_packages(text, MACHINE) == [Locked("here", "1.0"), Locked("old", "3.0")]


def test_a_bill_is_valid_names_every_package_and_is_the_same_each_time() -> None:
    packages = [Locked("click", "8.5.0"), Locked("PyYAML", "6.0.3")]
    text = bill("penstock-broker", "1.2.0", "c0ffee", SECONDS, packages, {"libc6": "2.36-9+deb12u10"})
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    assert sorted(it["purl"] for it in document["components"]) == [
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?distro=debian-12",
        "pkg:pypi/click@8.5.0",
        "pkg:pypi/pyyaml@6.0.3",
    ]
    assert document["metadata"]["timestamp"] == "2026-03-01T12:00:00+00:00"
    assert document["metadata"]["component"]["name"] == "penstock-broker"
    assert bill("penstock-broker", "1.2.0", "c0ffee", SECONDS, packages, {"libc6": "2.36-9+deb12u10"}) == text
    assert bill("penstock-broker", "1.2.0", "decade", SECONDS, packages, {"libc6": "2.36-9+deb12u10"}) != text


DPKG = "Package: {}\nStatus: install ok {}\nVersion: {}\n"


def layer(*paragraphs: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        content = "\n".join(paragraphs).encode()
        entry = tarfile.TarInfo("./var/lib/dpkg/status")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    """An OCI layout with one image of two layers, the upper of them compressed, and a blob of another image."""
    blobs = tmp_path / "layout" / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(content: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    lower = layer(DPKG.format("libc6", "installed", "1"))
    upper = layer(DPKG.format("libc6", "installed", "2"), DPKG.format("gone", "config-files", "3"))
    manifest = {
        "config": blob(b"{}", "config"),
        "layers": [blob(lower, "layer.tar"), blob(gzip.compress(upper, mtime=0), "layer.tar+gzip")],
    }
    blob(b"of another image", "layer")
    entry = {**blob(json.dumps(manifest).encode(), "manifest")}
    entry["annotations"] = {"org.opencontainers.image.ref.name": "localhost/penstock-broker:0f3c"}
    (tmp_path / "layout" / "index.json").write_text(json.dumps({"manifests": [entry]}))
    return tmp_path / "layout"


def test_an_image_is_archived_alone_under_its_version(layout: Path, tmp_path: Path) -> None:
    commit = Commit(tmp_path, "c0ffee", SECONDS)
    for name in ("one.tar", "two.tar"):
        write_archive(layout, "localhost/penstock-broker:0f3c", "penstock-broker", "1.2.0", commit, tmp_path / name)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    with tarfile.open(tmp_path / "one.tar") as tar:
        index = json.loads((tar.extractfile("index.json") or io.BytesIO()).read())
        (manifest,) = index["manifests"]
        assert manifest["annotations"] == {
            "io.containerd.image.name": "penstock-broker:1.2.0",
            "org.opencontainers.image.ref.name": "1.2.0",
        }
        assert len([name for name in tar.getnames() if name.startswith("blobs/")]) == 4
        assert {entry.mtime for entry in tar} == {SECONDS}


def test_the_debian_packages_of_an_image_are_those_of_its_last_layer(layout: Path) -> None:
    assert debian_packages(layout, "localhost/penstock-broker:0f3c") == {"libc6": "2"}
