"""Names, versions, folders and addresses: everything that decides where the cluster lives.

Knows nothing of how the parts are built or started.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Network
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PARTS = Path(__file__).resolve().parent
NODE_NAME = "penstock"
HOST_LINK = "penstock0"  # the host's end of the cable into the node
CGROUP = "penstock"
PROVISIONER = "penstock.dev/folder"


@cache
def versions() -> dict[str, str]:
    """The pinned versions, by the names in versions.env."""
    lines = (PARTS / "versions.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@dataclass(frozen=True, slots=True)
class Folders:
    """Where things are kept. Only `cache` outlives `hack/cluster down`."""

    cache: Path
    run: Path = Path("/run/penstock-cluster")  # sockets, whose paths may only have 107 bytes

    @property
    def logs(self) -> Path:
        return self.cache / "logs"

    @property
    def state(self) -> Path:
        """Certificates, etcd, kubelet, containers and volumes of the running cluster."""
        return self.cache / "cluster"

    @property
    def containerd(self) -> Path:
        return self.run / "containerd.sock"

    @property
    def kubeconfig(self) -> Path:
        return self.state / "pki" / "admin.kubeconfig"


def folders() -> Folders:
    """The folders by the environment: PENSTOCK_CACHE, or ~/.cache/penstock."""
    named = os.environ.get("PENSTOCK_CACHE")
    return Folders(cache=Path(named).resolve() if named else Path.home() / ".cache" / "penstock")


@dataclass(frozen=True, slots=True)
class Addresses:
    """The cluster's address ranges, all inside one /16."""

    whole: IPv4Network

    def _part(self, prefix_length: int, number: int) -> IPv4Network:
        return list(self.whole.subnets(new_prefix=prefix_length))[number]

    @property
    def cable(self) -> IPv4Network:
        """Host and node, one address each."""
        return self._part(24, 0)

    @property
    def pods(self) -> IPv4Network:
        return self._part(18, 1)

    @property
    def services(self) -> IPv4Network:
        return self._part(17, 1)

    @property
    def node(self) -> str:
        return str(self.cable[1])

    @property
    def host(self) -> str:
        return str(self.cable[2])

    @property
    def api_service(self) -> str:
        return str(self.services[1])

    @property
    def dns(self) -> str:
        return str(self.services[10])


def addresses() -> Addresses:
    """The ranges by the environment: PENSTOCK_CLUSTER_RANGE, or 10.214.0.0/16.

    Raises ValueError for a range that is no IPv4 /16.
    """
    text = os.environ.get("PENSTOCK_CLUSTER_RANGE", "10.214.0.0/16")
    try:
        whole = IPv4Network(text)
    except ValueError as wrong:
        raise ValueError(f"PENSTOCK_CLUSTER_RANGE is {text}, which is no network: {wrong}") from wrong
    if whole.prefixlen != 16:
        raise ValueError(f"PENSTOCK_CLUSTER_RANGE is {text}, but a /16 is needed")
    return Addresses(whole)
