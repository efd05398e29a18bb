"""hack/cluster and hack/images as commands: exit codes, messages, what an image tag depends on. Needs no cluster."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from kube import binaries
from kube.settings import Folders

REPOSITORY = Path(__file__).resolve().parents[2]
INPUTS = ("broker", "operator", "requirements", "hack", "docs")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="the commands that touch the cluster need root")


def call(*command: str, at: Path = REPOSITORY, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=at, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of what images are made of, to be changed."""
    for name in INPUTS:
        shutil.copytree(REPOSITORY / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    return tmp_path


def tag(at: Path, *name: str) -> str:
    done = call("hack/images", "tag", *name, at=at)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch("[0-9a-f]{12}\n", done.stdout)
    return done.stdout


@pytest.mark.parametrize("command", ["hack/cluster", "hack/images"])
def test_unknown_command_is_wrong_usage(command: str) -> None:
    done = call(command, "frobnicate")
    assert (done.returncode, done.stdout) == (2, "")
    assert "invalid choice: 'frobnicate'" in done.stderr


def test_a_cluster_is_built_without_the_storage_that_one_soak_needs(tmp_path: Path) -> None:
    places = Folders(tmp_path)
    assert "csi" not in {it.name for it in binaries.missing(places)}
    assert [it.name for it in binaries.missing(places, binaries.STORAGE)] == ["csi"]
    assert binaries.located(places)["loop-driver"].parent == binaries.located(places)["csi-resizer"].parent


def test_help_names_every_command() -> None:
    words = set(call("hack/cluster", "--help").stdout.split())
    assert {"up", "down", "status", "kubectl", "kubeconfig", "load", "env", "build"} <= words


@as_root
@pytest.mark.parametrize("wrong", ["banana", "10.0.0.0/8", "10.1.2.3/16"])
def test_a_range_that_is_no_whole_network_of_16_bits_is_wrong_usage(wrong: str, tmp_path: Path) -> None:
    done = call("hack/cluster", "status", PENSTOCK_CLUSTER_RANGE=wrong, PENSTOCK_CACHE=str(tmp_path))
    assert done.returncode == 2
    assert f"PENSTOCK_CLUSTER_RANGE is {wrong}" in done.stderr


@as_root
def test_status_of_a_cluster_that_is_down_fails_and_says_so(tmp_path: Path) -> None:
    done = call("hack/cluster", "status", PENSTOCK_CACHE=str(tmp_path))
    assert done.returncode == 1
    assert re.search(r"^kubelet +ended$", done.stdout, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


@as_root
def test_kubectl_on_a_cluster_that_is_down_names_the_cure(tmp_path: Path) -> None:
    done = call("hack/cluster", "kubectl", "get", "pods", PENSTOCK_CACHE=str(tmp_path))
    assert done.returncode == 1
    assert "start it with: hack/cluster up" in done.stderr


def test_tag_changes_with_a_source_a_lock_and_a_recipe(copy: Path) -> None:
    seen = {tag(copy)}
    for name in ("broker/penstock_core/__init__.py", "requirements/lag.lock", "hack/dockerfiles/Dockerfile.operator"):
        with (copy / name).open("a") as file:
            file.write("# changed\n")
        seen.add(tag(copy))
    assert len(seen) == 4


def test_tag_stays_with_docs_times_and_compiled_files(copy: Path) -> None:
    before = tag(copy)
    (copy / "docs" / "new.md").write_text("new\n")
    os.utime(copy / "pyproject.toml", (0, 0))
    compiled = copy / "broker" / "penstock_core" / "__pycache__"
    compiled.mkdir()
    (compiled / "x.pyc").write_bytes(b"x")
    assert tag(copy) == before


def test_the_spark_operator_does_not_depend_on_our_sources(copy: Path) -> None:
    before = tag(copy, "spark-operator")
    (copy / "broker" / "penstock_core" / "__init__.py").write_text("changed = True\n")
    assert tag(copy, "spark-operator") == before
    (copy / "requirements" / "lag.lock").write_text("")
    assert tag(copy, "spark-operator") != before
