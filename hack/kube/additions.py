"""Programs that a test adds to the running node: they enforce network policies, issue certificates, give addresses.

They run in the node's namespaces, as its daemons do, and end with it. Their settings are those that
docs/how-to/reach.md uses.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Final

from kube import sandbox
from kube.configs import PAUSE_IMAGE
from kube.daemons import Command
from kube.node import Cluster, start
from kube.preflight import Need
from kube.settings import NODE_NAME, Addresses
from kube.steps import Failure, run

__all__ = ["ADDED_BY", "LOAD_BALANCER_CLASS", "NEEDS", "add", "pool"]

ADDED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "policies": ("kube-router",),
    "issuers": ("cert-manager",),
    "balancer": ("kube-router", "metallb-controller", "metallb-speaker"),
}
"""By part of hack/soak/reach."""

NEEDS: Final = (Need("ipset", "ipset"),)
LOAD_BALANCER_CLASS: Final = "example.com/nlb"
"""The class of docs/how-to/reach.md; other Services get no address."""
_SETTLE_SECONDS: Final = 2
_PLACE_OF_THE_SPEAKER: Final = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: metallb-system}}
---
apiVersion: v1
kind: Pod
metadata: {{name: speaker, namespace: metallb-system}}
spec: {{containers: [{{name: pause, image: "{PAUSE_IMAGE}", imagePullPolicy: Never}}]}}
"""
"""The speaker looks for its pod, as whose it reports what it announces, and does not start without one."""
_PORTS: Final = {"metallb-controller": 7472, "metallb-speaker": 7473}


def pool(at: Addresses) -> tuple[IPv4Address, IPv4Address]:
    """First and last address for Services, beside those of host and node: the host asks for them by ARP."""
    return at.cable[64], at.cable[127]


def add(cluster: Cluster, name: str) -> None:
    """Starts a program in the running node, with the kinds that it needs. Raises Failure if it ends at once."""
    node = sandbox.running(cluster.folders)
    if node is None:
        raise Failure("the cluster is not up; start it with: hack/cluster up")
    if name in sandbox.programs(node):
        return
    if name in ("cert-manager", "metallb-controller"):
        kinds = cluster.kubectl("apply", "--server-side", "--filename", str(cluster.programs.kept(name)))
        run(kinds, cluster.folders.node_logs / f"{name}.log", env=cluster.environment)
    if name == "metallb-speaker":
        place = cluster.kubectl("apply", "--server-side", "--filename", "-")
        log = cluster.folders.node_logs / f"{name}.log"
        run(place, log, env=cluster.environment, stdin=_PLACE_OF_THE_SPEAKER.encode())
    start(cluster, node, _commands(cluster)[name])
    time.sleep(_SETTLE_SECONDS)
    if name not in sandbox.programs(node):
        raise Failure(f"{name} has ended; see {cluster.folders.node_logs / f'{name}.log'}")


def _commands(cluster: Cluster) -> Mapping[str, Command]:
    programs, at = cluster.programs, cluster.at
    kubeconfig = f"--kubeconfig={cluster.folders.kubeconfig}"
    balancer = [kubeconfig, "--namespace=metallb-system", f"--lb-class={LOAD_BALANCER_CLASS}"]
    ports = {name: f"--port={port}" for name, port in _PORTS.items()}
    policies = ["--run-firewall=true", "--run-router=false", "--run-service-proxy=false", "--run-loadbalancer=false"]
    return {
        "kube-router": [
            programs["kube-router"],
            kubeconfig,
            *policies,
            f"--hostname-override={NODE_NAME}",
            f"--service-cluster-ip-range={at.services}",
            f"--loadbalancer-ip-range={at.cable}",
        ],
        "cert-manager": [programs["cert-manager"], kubeconfig],
        "metallb-controller": [
            programs["metallb-controller"],
            *balancer,
            ports["metallb-controller"],
            "--webhook-mode=disabled",
            "--disable-cert-rotation",
        ],
        "metallb-speaker": [
            programs["metallb-speaker"],
            *balancer,
            ports["metallb-speaker"],
            f"--node-name={NODE_NAME}",
            "--pod-name=speaker",
        ],
    }
