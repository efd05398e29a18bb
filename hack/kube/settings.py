"""Names, versions, folders and addresses: everything that decides where the cluster lives.

Knows nothing of how the parts are built or started.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Network
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PARTS = Path(__file__).resolve().parent
NODE_NAME = "penstock"
DEFAULT_NAME = "penstock"
PROVISIONER = "penstock.dev/folder"


@cache
def versions() -> dict[str, str]:
    """The pinned versions, by the names in versions.env."""
    lines = (PARTS / "versions.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@dataclass(frozen=True, slots=True)
class Folders:
    """Where things are kept, and the names that one cluster has on the host. All but `cache` ends with the cluster."""

    cache: Path
    name: str = DEFAULT_NAME
    worker: int = 0
    """The number of a further node (kube.workers); 0 is the node that has the control plane."""

    @property
    def node(self) -> str:
        """The node's name in the cluster."""
        return f"worker-{self.worker}" if self.worker else NODE_NAME

    def _of_node(self, place: Path) -> Path:
        return place / self.node if self.worker else place

    @property
    def logs(self) -> Path:
        """Logs of building, shared by all clusters."""
        return self.cache / "logs"

    @property
    def node_logs(self) -> Path:
        """Logs of this node's daemons; they stay after it."""
        return self._of_node(self.logs / self.name)

    @property
    def state(self) -> Path:
        """Certificates, etcd, kubelet, containers and volumes of the running cluster."""
        return self._of_node(self._clusters)

    @property
    def _clusters(self) -> Path:
        return self.cache / "clusters" / self.name

    @property
    def run(self) -> Path:
        """Sockets, whose paths may only have 107 bytes."""
        return self._of_node(Path("/run") / f"{self.name}-cluster")

    @property
    def link(self) -> str:
        """The other end of the node's network link: on the host, and of a worker on the first node."""
        return f"worker{self.worker}" if self.worker else f"{self.name}0"

    @property
    def cgroup(self) -> str:
        return f"{self.name}-{self.node}" if self.worker else self.name

    @property
    def containerd(self) -> Path:
        return self.run / "containerd.sock"

    @property
    def kubeconfig(self) -> Path:
        return self._clusters / "pki" / "admin.kubeconfig"


def folders() -> Folders:
    """The folders by the environment: PENSTOCK_CACHE, or ~/.cache/penstock; PENSTOCK_CLUSTER_NAME, or penstock.

    Raises ValueError for a name that could not be a network link's.
    """
    cache = os.environ.get("PENSTOCK_CACHE")
    name = os.environ.get("PENSTOCK_CLUSTER_NAME", DEFAULT_NAME)
    if not re.fullmatch("[a-z][a-z0-9]{0,12}", name):
        raise ValueError(f"PENSTOCK_CLUSTER_NAME is {name!r}, but must be 1 to 13 small letters and digits")
    return Folders(Path(cache).resolve() if cache else Path.home() / ".cache" / "penstock", name)


@dataclass(frozen=True, slots=True)
class Addresses:
    """The cluster's address ranges, all inside one /16."""

    whole: IPv4Network
    worker: int = 0
    """As in Folders."""

    def _part(self, prefix_length: int, number: int) -> IPv4Network:
        return list(self.whole.subnets(new_prefix=prefix_length))[number]

    @property
    def cable(self) -> IPv4Network:
        """The node, and what it is connected to: the host, or of a worker the first node."""
        return self._part(24, self.worker)

    @property
    def pods(self) -> IPv4Network:
        return self._part(18, 1)

    @property
    def node_pods(self) -> IPv4Network:
        """The part of the pods' range that this node has."""
        return list(self.pods.subnets(new_prefix=20))[self.worker]

    @property
    def behind(self) -> tuple[IPv4Network, ...]:
        """What the other end of the cable reaches through this node."""
        return (self.node_pods,) if self.worker else (self.services, self.pods)

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
    def api_server(self) -> str:
        """The first node's address."""
        return Addresses(self.whole).node

    @property
    def api_service(self) -> str:
        return str(self.services[1])

    @property
    def dns(self) -> str:
        return str(self.services[10])


def addresses() -> Addresses:
    """The ranges by the environment: PENSTOCK_CLUSTER_RANGE, or 10.214.0.0/16.

    Raises ValueError for a range that is not an IPv4 /16.
    """
    text = os.environ.get("PENSTOCK_CLUSTER_RANGE", "10.214.0.0/16")
    try:
        whole = IPv4Network(text)
    except ValueError as wrong:
        raise ValueError(f"PENSTOCK_CLUSTER_RANGE is {text}, which is not a network: {wrong}") from wrong
    if whole.prefixlen != 16:
        raise ValueError(f"PENSTOCK_CLUSTER_RANGE is {text}, but a /16 is needed")
    return Addresses(whole)
