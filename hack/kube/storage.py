"""A storage for the node whose volumes have a real size, grow while they are mounted, and can be snapshotted.

The volumes are made by our own CSI driver (src/csi), for the node can't have one from a registry. What asks it are the
sidecars of kubernetes-csi, as they are beside any other driver. All of them run beside the kubelet, as administrators,
and not in pods. Volumes and snapshots are kept outside of the cluster's own state: as those of a real storage they are
still there for the next cluster.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from kube import binaries, daemons, preflight, sandbox
from kube.node import Cluster, start
from kube.settings import PARTS, Folders
from kube.steps import NOT_POSSIBLE, Failure, output, run, step, wait_until

__all__ = ["DRIVER", "begin", "begin_on_worker", "build", "empty", "folder", "need"]

DRIVER = "loop.penstock.dev"
DISK_GIB = 8
"""Free for the programs, their sources, and volumes that are filled."""


def need(folders: Folders) -> None:
    """Raises Failure (exit code 3) if the machine lacks what builds and runs it."""
    unbuilt = bool(binaries.missing(folders, binaries.STORAGE))
    needs = preflight.CLUSTER + preflight.STORAGE
    preflight.check(folders, needs, builds_go=unbuilt, disk_gib=DISK_GIB, install=bool(os.environ.get("CI")))
    if not Path("/dev/loop-control").exists():
        raise Failure("not possible here: the kernel has no loop devices, in which the volumes are", NOT_POSSIBLE)


def build(folders: Folders) -> None:
    """Build its programs unless that was done before."""
    binaries.build(folders, binaries.STORAGE)


def folder(folders: Folders) -> Path:
    """Where volumes and snapshots are kept."""
    return folders.cache / "storage" / folders.name


def empty(folders: Folders) -> None:
    """Remove all volumes and snapshots. No cluster may be up."""
    shutil.rmtree(folder(folders), ignore_errors=True)


def begin(cluster: Cluster) -> None:
    """Start driver and sidecars on a node that is up, and add the classes `expandable` and `snapshots`."""
    folders = cluster.folders
    node = sandbox.running(folders)
    if node is None:
        raise Failure("the cluster is not up; start it with: hack/cluster up")
    folder(folders).parent.mkdir(parents=True, exist_ok=True)
    log = folders.node_logs / "up.log"
    with step("storage ready"):
        for crd in sorted(cluster.programs.kept("csi").glob("snapshot.*.yaml")):
            run(cluster.kubectl("apply", "--server-side", "-f", str(crd)), log, env=cluster.environment)
        for command in _commands(cluster):
            start(cluster, node, command)
        text = (PARTS / "storage.yaml").read_text().replace("@DRIVER@", DRIVER)
        known = cluster.kubectl("wait", "crd", "--for=condition=Established", "--all", "--timeout=60s")
        run(known, log, env=cluster.environment)
        run(cluster.kubectl("apply", "--server-side", "-f", "-"), log, env=cluster.environment, stdin=text.encode())
        _wait_until_known(cluster)


def begin_on_worker(worker: Cluster) -> None:
    """Start the driver on a worker: the volumes are then attached to the one node or to the other."""
    node = sandbox.running(worker.folders)
    if node is None:
        raise Failure(f"{worker.folders.node} is not up")
    with step(f"storage on {worker.folders.node} ready"):
        start(worker, node, _driver(worker))
        _wait_until_known(worker)


def _wait_until_known(cluster: Cluster) -> None:
    drivers = cluster.kubectl("get", "csinode", cluster.folders.node, "-o=jsonpath={.spec.drivers[*].name}")
    cure = f"see {cluster.folders.node_logs}/loop-driver.log"
    wait_until(lambda: DRIVER in output(drivers, env=cluster.environment), "the driver known", seconds=60, cure=cure)


def _driver(cluster: Cluster) -> daemons.Command:
    folders = cluster.folders
    flags = {
        "folder": folder(folders),
        "node": folders.node,
        "endpoint": _socket(folders),
        "registration": folders.state / "kubelet" / "plugins_registry" / f"{DRIVER}-reg.sock",
        "largest": 64 << 30,
    }
    return [cluster.programs["loop-driver"], *daemons.options(flags)]


def _socket(folders: Folders) -> Path:
    return folders.run / "csi.sock"


def _commands(cluster: Cluster) -> list[daemons.Command]:
    folders, programs = cluster.folders, cluster.programs
    sidecar = {"kubeconfig": folders.kubeconfig, "csi-address": _socket(folders)}
    beside = ("csi-attacher", "csi-provisioner", "csi-resizer", "csi-snapshotter")
    return [
        _driver(cluster),
        *([programs[name], *daemons.options(sidecar)] for name in beside),
        [programs["snapshot-controller"], *daemons.options({"kubeconfig": folders.kubeconfig})],
    ]
