"""Further nodes beside the one that has the control plane: workers, that can fail.

A worker has network, mount, process and host-name namespaces of its own, a kubelet, a containerd and a kube-proxy with
folders and a cgroup of their own, and its own part of the pods' range. A cable connects it to the first node, which
routes for it. Ending the first node ends its workers.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Final

from kube import daemons, pki, sandbox
from kube.node import Cluster, import_own_images, start, wait_for_node, write_configs
from kube.steps import Failure, run, step, succeeds, wait_until

__all__ = ["MOST", "add", "connect", "cut", "kill", "running"]

MOST: Final = 3
"""So many workers have a range for pods."""
_CUT: Final = "cut"


def running(cluster: Cluster) -> list[Cluster]:
    """The workers that run beside this first node."""
    every = map(cluster.worker, sandbox.worker_numbers(cluster.folders))
    return [worker for worker in every if sandbox.running(worker.folders)]


def add(cluster: Cluster, number: int) -> Cluster:
    """Start a worker, for the first time or again after `kill`, with the state that it had. Raises Failure."""
    first = _running(cluster)
    worker = cluster.worker(number)
    folders, at = worker.folders, worker.at
    log = folders.node_logs / "up.log"
    with step(f"{folders.node} ready"):
        shutil.rmtree(folders.run, ignore_errors=True)  # as every start of a machine empties it
        node = sandbox.start(folders, at, cluster.programs["pause"], within=first)
        if not folders.state.exists():
            folders.state.mkdir(parents=True, mode=0o711)
            pki.make_worker(folders.state / "pki", cluster.folders.state / "pki", folders.node, at, log)
        write_configs(worker)
        start(worker, node, daemons.containerd(folders))
        import_own_images(worker)
        start(worker, node, daemons.kubelet(folders, worker.programs, at))
        start(worker, node, daemons.kube_proxy(folders, worker.programs))
        wait_for_node(worker)
    return worker


def cut(cluster: Cluster, worker: Cluster) -> None:
    """From now on nothing that is sent to the worker or by it arrives, and nobody is told."""
    rules = "".join(
        f'chain {hook} {{ type filter hook {hook} device "{worker.folders.link}" priority 0; ether type ip drop; }}\n'
        for hook in ("ingress", "egress")
    )
    script = f"table netdev {_CUT}{worker.folders.worker} {{\n{rules}}}\n"
    rules_of = _running(cluster).enter_network(["nft", "-f", "-"])
    run(rules_of, worker.folders.node_logs / "up.log", stdin=script.encode())


def connect(cluster: Cluster, worker: Cluster) -> None:
    """The end of `cut`, if there was one."""
    table = f"{_CUT}{worker.folders.worker}"
    script = f"table netdev {table}\ndelete table netdev {table}\n"  # the first line makes it unless it is there
    rules_of = _running(cluster).enter_network(["nft", "-f", "-"])
    run(rules_of, worker.folders.node_logs / "up.log", stdin=script.encode())


def kill(cluster: Cluster, worker: Cluster) -> None:
    """Switch the machine off: its network is cut, and all of its processes end by kill -9 of its first one."""
    cut(cluster, worker)
    node = _running(worker)
    os.kill(node.pid, signal.SIGKILL)
    ended = f"the processes of {worker.folders.node} end"
    wait_until(
        lambda: sandbox.running(worker.folders) is None and not Path(f"/proc/{node.pid}/ns/net").exists(),
        ended,
        seconds=30,
        cure=f"look at process {node.pid}",
    )
    connect(cluster, worker)  # there is nothing any more that it is connected to
    succeeds(_running(cluster).enter_network(["ip", "link", "delete", worker.folders.link]))  # unless it went by itself


def _running(cluster: Cluster) -> sandbox.Node:
    node = sandbox.running(cluster.folders)
    if node is None:
        raise Failure(f"node {cluster.folders.node} is not up")
    return node
