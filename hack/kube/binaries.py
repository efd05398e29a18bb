"""Builds the programs of the cluster from their Go modules, once per version, into the cache.

A program's folder is named by a hash of its module's files and link flags, so nothing is built twice, a change of
version never meets an old binary, and a machine with a filled cache needs no Go.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kube.settings import PARTS, Folders, versions
from kube.steps import run, say, step

KUBERNETES_PROGRAMS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "volume-provisioner",
)
VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


@dataclass(frozen=True, slots=True)
class Program:
    """One thing to build: our module under src/, and the packages in or behind it."""

    name: str
    packages: str = "."


PROGRAMS = (
    Program("pause"),
    Program("etcd"),
    Program("coredns"),
    Program("helm", "helm.sh/helm/v4/cmd/helm"),
    Program("spark-operator"),
    Program("kubernetes"),
)
"""What every cluster is made of."""
STORAGE = (Program("csi", ". tool"),)
"""What a storage whose volumes grow is made of."""
CSI_PROGRAMS = ("loop-driver", "csi-provisioner", "csi-resizer", "csi-snapshotter", "snapshot-controller")


@dataclass(frozen=True, slots=True)
class Binaries:
    """Where the built programs are."""

    places: dict[str, Path]

    def __getitem__(self, name: str) -> Path:
        if name in KUBERNETES_PROGRAMS:
            return self.places["kubernetes"] / name
        if name in CSI_PROGRAMS:
            return self.places["csi"] / name
        return self.places[name] / name

    @property
    def snapshot_crds(self) -> Path:
        return self.places["csi"] / "crds"

    @property
    def spark_chart(self) -> Path:
        return self.places["spark-operator"] / "chart"


def _link_flags(name: str) -> str:
    flags = ["-s", "-w"]
    if name == "kubernetes":
        version = versions()["KUBERNETES"]
        major, minor, _ = version.split(".")
        values = {"gitMajor": major, "gitMinor": minor, "gitVersion": f"v{version}", "gitTreeState": "clean"}
        flags += [f"-X {package}.{key}={value}" for package in VERSION_PACKAGES for key, value in values.items()]
    return " ".join(flags)


def _place(folders: Folders, name: str) -> Path:
    digest = hashlib.sha256(_link_flags(name).encode())
    for file in sorted((PARTS / "src" / name).iterdir()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return folders.cache / "bin" / f"{name}-{digest.hexdigest()[:12]}"


def located(folders: Folders) -> Binaries:
    """Where the programs of these versions are, built or not."""
    return Binaries({program.name: _place(folders, program.name) for program in (*PROGRAMS, *STORAGE)})


def missing(folders: Folders, programs: Sequence[Program] = PROGRAMS) -> tuple[Program, ...]:
    """Those of the programs that are not built yet."""
    return tuple(program for program in programs if not _place(folders, program.name).is_dir())


def build(folders: Folders, programs: Sequence[Program] = PROGRAMS) -> Binaries:
    """Builds what is missing; about ten minutes on two cores from nothing.

    Go's own caches (7 GB) go away afterwards unless PENSTOCK_KEEP_GO_CACHE is set: they would serve nothing more.
    """
    wanted = missing(folders, programs)
    if wanted:
        say(f"building {len(wanted)} programs, about ten minutes from nothing; log: {folders.logs / 'go.log'}")
    for program in wanted:
        with step(f"build {program.name}"):
            _build(folders, program)
    if wanted and not os.environ.get("PENSTOCK_KEEP_GO_CACHE"):
        with step("remove Go's caches"):
            _drop_go_caches(folders)
    return located(folders)


def _environment(folders: Folders) -> dict[str, str]:
    return {
        **os.environ,
        "GOMODCACHE": str(folders.cache / "go" / "mod"),
        "GOCACHE": str(folders.cache / "go" / "build"),
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-buildvcs=false -trimpath",
        "CGO_ENABLED": "0",
    }


def _build(folders: Folders, program: Program) -> None:
    place = _place(folders, program.name)
    unfinished = place.with_suffix(".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    target = unfinished / program.name
    flags = f"-ldflags={_link_flags(program.name)}"
    # Several packages are several programs, and each has the name of its folder.
    place_of_output = f"{unfinished}/" if " " in program.packages else target
    command: list[str | Path] = ["nice", "go", "build", flags, "-o", place_of_output, *program.packages.split()]
    run(command, folders.logs / "go.log", env=_environment(folders), cwd=PARTS / "src" / program.name)
    if program.name == "kubernetes":
        for name in KUBERNETES_PROGRAMS:
            (unfinished / name).symlink_to(program.name)
    if program.name == "csi":
        (unfinished / "loop-driver").symlink_to(program.name)
        shutil.copytree(_snapshot_crds(folders), unfinished / "crds", copy_function=shutil.copyfile)
        _make_writable(unfinished)
    if program.name == "spark-operator":
        chart = _spark_module(folders) / "charts" / "spark-operator-chart"
        shutil.copytree(chart, unfinished / "chart", copy_function=shutil.copyfile)
        _make_writable(unfinished)
    unfinished.rename(place)


def _spark_module(folders: Folders) -> Path:
    version = versions()["SPARK_OPERATOR"]
    return folders.cache / "go" / "mod" / "github.com" / "kubeflow" / "spark-operator" / f"v2@v{version}"


def _snapshot_crds(folders: Folders) -> Path:
    client = f"client/v8@v{versions()['CSI_SNAPSHOTTER']}"
    return (
        folders.cache / "go" / "mod" / "github.com" / "kubernetes-csi" / "external-snapshotter" / client / "config/crd"
    )


def _make_writable(tree: Path) -> None:
    for folder, _, _ in os.walk(tree):  # Go's module cache is read-only, and copies keep the mode of folders
        os.chmod(folder, 0o755)


def _drop_go_caches(folders: Folders) -> None:
    _make_writable(folders.cache / "go")
    shutil.rmtree(folders.cache / "go")
