"""What the machine must have. Names everything that is lacking at once, with the line that installs it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kube.settings import Folders
from kube.steps import NOT_POSSIBLE, Failure, run, say, step

GIB = 1 << 30
GO_MINIMUM = (1, 26)


@dataclass(frozen=True, slots=True)
class Need:
    """A file or a program on PATH, and the Debian package that brings it."""

    name: str
    package: str


CLUSTER = (
    Need("containerd", "containerd"),
    Need("ctr", "containerd"),
    Need("runc", "runc"),
    Need("/usr/lib/cni/bridge", "containernetworking-plugins"),
    Need("iptables", "iptables"),
    Need("nft", "nftables"),
    Need("ip", "iproute2"),
    Need("modprobe", "kmod"),
    Need("openssl", "openssl"),
    Need("sysctl", "procps"),
    Need("nsenter", "util-linux"),
)
IMAGES = (
    Need("buildah", "buildah"),
    Need("mmdebstrap", "mmdebstrap"),
)
STORAGE = (
    Need("losetup", "mount"),
    Need("fsfreeze", "util-linux"),
    Need("mkfs.xfs", "xfsprogs"),
    Need("jq", "jq"),
)
"""Of hack/soak/volumes: what its driver runs, and what the pages that it follows run."""


def _there(name: str) -> bool:
    if name.startswith("/"):
        return Path(name).exists()
    sbin = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return shutil.which(name, path=sbin) is not None


def _missing_packages(needs: Iterable[Need]) -> list[str]:
    return sorted({need.package for need in needs if not _there(need.name)})


def _go_lack() -> str | None:
    go = shutil.which("go")
    wanted = ".".join(map(str, GO_MINIMUM))
    if go is None:
        return f"Go {wanted} or newer on PATH, to build the programs with: unpack its release and add its bin folder"
    said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"go(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < GO_MINIMUM:
        return f"Go {wanted} or newer on PATH; {go} is {said.strip() or 'of unknown version'}"
    return None


def _free(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _kernel_lacks() -> list[str]:
    lacks: list[str] = []
    for module, proof in (("overlay", None), ("br_netfilter", Path("/proc/sys/net/bridge"))):
        built_in = module in Path("/proc/filesystems").read_text().split() if proof is None else proof.exists()
        if not built_in and subprocess.run(["modprobe", module], capture_output=True, check=False).returncode != 0:
            lacks.append(f"the kernel module {module}, which `modprobe {module}` does not find")
    if not Path("/sys/fs/cgroup/cgroup.controllers").exists() and not Path("/sys/fs/cgroup/memory").is_dir():
        lacks.append("cgroups with a memory controller under /sys/fs/cgroup")
    return lacks


def need_root() -> None:
    """Raises Failure (exit code 3) unless the user is root."""
    if os.geteuid() != 0:
        raise Failure("not possible here: namespaces, mounts and cgroups need root; run it with sudo", NOT_POSSIBLE)


def check(folders: Folders, needs: tuple[Need, ...], *, builds_go: bool, disk_gib: int, install: bool) -> None:
    """Passes if the machine has what is needed, installing Debian packages first if `install`.

    Raises Failure (exit code 3) that lists all that is lacking.
    """
    need_root()
    packages = _missing_packages(needs)
    if packages and install:
        _install(folders, packages)
        packages = _missing_packages(needs)
    lacks = [f"Debian packages: apt-get install --no-install-recommends {' '.join(packages)}"] if packages else []
    if builds_go and (go := _go_lack()):
        lacks.append(go)
    if not packages:
        lacks += _kernel_lacks()
    if (free := _free(folders.cache)) < disk_gib * GIB:
        there = f"{free / GIB:.1f} are"
        lacks.append(f"{disk_gib} GiB free under {folders.cache} ({there}): free some, or set PENSTOCK_CACHE elsewhere")
    if (memory := _memory()) < 3 * GIB:
        lacks.append(f"3 GiB of memory ({memory / GIB:.1f} are there)")
    if lacks:
        raise Failure("not possible here; this is lacking:" + "".join(f"\n  - {lack}" for lack in lacks), NOT_POSSIBLE)


def _install(folders: Folders, packages: list[str]) -> None:
    log = folders.logs / "apt.log"
    say(f"installing Debian packages: {' '.join(packages)}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with step("Debian packages"):
        run(["apt-get", "update"], log, env=env)
        run(["apt-get", "install", "--yes", "--no-install-recommends", *packages], log, env=env)
