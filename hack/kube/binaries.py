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
    module: str = ""
    """The folder under src/, if it is not called as the program."""

    @property
    def source(self) -> Path:
        return PARTS / "src" / (self.module or self.name)


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
CSI_PROGRAMS = (
    "loop-driver",
    "csi-attacher",
    "csi-provisioner",
    "csi-resizer",
    "csi-snapshotter",
    "snapshot-controller",
)

ADDITIONS = (
    Program("kube-router", "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"),
    Program("cert-manager"),
    Program("metallb-controller", "go.universe.tf/metallb/controller", module="metallb"),
    Program("metallb-speaker", "go.universe.tf/metallb/speaker", module="metallb"),
)
"""What hack/soak/reach adds to the node: they enforce network policies, issue certificates, and give addresses."""

KEPT = {
    "csi": ("github.com/kubernetes-csi/external-snapshotter/client/v8@v{CSI_SNAPSHOTTER}/config/crd", "crds"),
    "spark-operator": ("github.com/kubeflow/spark-operator/v2@v{SPARK_OPERATOR}/charts/spark-operator-chart", "chart"),
    "cert-manager": ("github.com/cert-manager/cert-manager@v{CERT_MANAGER}/deploy/crds", "crds"),
    "metallb-controller": ("go.universe.tf/metallb@v{METALLB}/config/crd/bases", "crds"),
}
"""By program: the folder of its module that is kept beside it, and its name there."""


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
    def spark_chart(self) -> Path:
        return self.kept("spark-operator")

    def kept(self, name: str) -> Path:
        """The folder that is kept beside a program."""
        return self.places[name] / KEPT[name][1]


def _link_flags(name: str) -> str:
    flags = ["-s", "-w"]
    if name == "kubernetes":
        version = versions()["KUBERNETES"]
        major, minor, _ = version.split(".")
        values = {"gitMajor": major, "gitMinor": minor, "gitVersion": f"v{version}", "gitTreeState": "clean"}
        flags += [f"-X {package}.{key}={value}" for package in VERSION_PACKAGES for key, value in values.items()]
    return " ".join(flags)


def _place(folders: Folders, program: Program) -> Path:
    digest = hashlib.sha256(_link_flags(program.name).encode())
    for file in sorted(program.source.iterdir()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return folders.cache / "bin" / f"{program.name}-{digest.hexdigest()[:12]}"


def located(folders: Folders) -> Binaries:
    """Where the programs of these versions are, built or not."""
    return Binaries({program.name: _place(folders, program) for program in (*PROGRAMS, *STORAGE, *ADDITIONS)})


def missing(folders: Folders, programs: Sequence[Program] = PROGRAMS) -> tuple[Program, ...]:
    """Those of these programs that are not built yet."""
    return tuple(program for program in programs if not _place(folders, program).is_dir())


def build(folders: Folders, programs: Sequence[Program] = PROGRAMS) -> Binaries:
    """Builds what is missing of these programs; ten to twenty minutes on two cores from nothing.

    Go's own caches (7 GB) go away afterwards unless PENSTOCK_KEEP_GO_CACHE is set: they would serve nothing more.
    """
    wanted = missing(folders, programs)
    if wanted:
        say(f"building {len(wanted)} programs, ten to twenty minutes from nothing; log: {folders.logs / 'go.log'}")
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
    place = _place(folders, program)
    unfinished = place.with_suffix(".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    flags = f"-ldflags={_link_flags(program.name)}"
    # Several packages are several programs, and each has the name of its folder.
    output = f"{unfinished}/" if " " in program.packages else unfinished / program.name
    # The linker drops what debuggers want (-s -w); that the compiler does not even make it saves a seventh of the time.
    options = [flags, "-gcflags=all=-dwarf=false", "-o", output]
    command: list[str | Path] = ["nice", "go", "build", *options, *program.packages.split()]
    run(command, folders.logs / "go.log", env=_environment(folders), cwd=program.source)
    if program.name == "kubernetes":
        for name in KUBERNETES_PROGRAMS:
            (unfinished / name).symlink_to(program.name)
    if program.name == "csi":
        (unfinished / "loop-driver").symlink_to(program.name)
    if program.name in KEPT:
        module, name = KEPT[program.name]
        kept = folders.cache / "go" / "mod" / module.format(**versions())
        shutil.copytree(kept, unfinished / name, copy_function=shutil.copyfile)
        _make_writable(unfinished)
    unfinished.rename(place)


def _make_writable(tree: Path) -> None:
    for folder, _, _ in os.walk(tree):  # Go's module cache is read-only, and copies keep the mode of folders
        os.chmod(folder, 0o755)


def _drop_go_caches(folders: Folders) -> None:
    _make_writable(folders.cache / "go")
    shutil.rmtree(folders.cache / "go")
