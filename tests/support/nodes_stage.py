"""What hack/soak/nodes plays on: one node with the control plane and two workers that can fail, a storage whose volumes
move between them, two operators, a Broker and JMS clients.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from e2e.kube import ROOT, Kube, own_cluster_environment, pick, wait_for
from kube import storage, workers
from kube.node import Cluster
from support import chaos_run
from support.cluster_images import images
from support.followed_page import Page
from support.installed_operator import MINUTE, Installation, Team
from support.nodes_watch import CONDITIONS, PLACE, Changes, Flow, Writers

__all__ = ["HOME", "PAGE", "WORKERS", "Stage", "bring_up", "open_stage"]

HOME: Final = "penstock-system"
SHOP: Final = "shop"
PAGE: Final = ROOT / "docs/how-to/runbooks/node-lost.md"
WORKERS: Final = (1, 2)
CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
PATIENCE: Final = 5 * MINUTE


@dataclass(slots=True)
class Stage:
    """The nodes with everything on them, and what watches them."""

    cluster: Cluster
    environment: Mapping[str, str]
    work: Path
    say: Callable[[str], None]
    installation: Installation
    team: Team
    flow: Flow
    writers: Writers
    traffic: chaos_run.Clients
    began: float = field(default_factory=time.monotonic)

    def tell(self, text: str) -> None:
        """Print a line with the seconds since the fault."""
        self.say(f"[{time.monotonic() - self.began:6.1f} s] {text}")

    def start_clock(self) -> None:
        """What is told from now on counts from now."""
        self.began = time.monotonic()
        self.flow.take_longest()

    def until(self, what: str, holds: Callable[[], object], seconds: float = PATIENCE) -> None:
        """Wait, and tell when it came true. Raises TimeoutError, and AssertionError if a client has ended."""
        wait_for(what, lambda: self._clients_run() and bool(holds()), seconds)
        self.tell(what)

    def page(self, node: str) -> Page:
        """The runbook, followed for this node."""
        return Page(PAGE, self.environment, self.work, self.tell, {"NODE": node})

    # nodes

    def worker(self, node: str) -> Cluster:
        """The worker of this name."""
        return next(it for it in map(self.cluster.worker, WORKERS) if it.folders.node == node)

    def switch_off(self, node: str) -> None:
        """The machine is gone, without a word."""
        workers.kill(self.cluster, self.worker(node))
        self.tell(f"{node} is off")

    def switch_on(self, node: str) -> None:
        """The machine starts again with the disks that it had."""
        storage.begin_on_worker(workers.add(self.cluster, self.worker(node).folders.worker))
        self.tell(f"{node} is on again")

    def cut(self, node: str) -> None:
        """Nothing goes to the node or comes from it; what runs there goes on."""
        workers.cut(self.cluster, self.worker(node))
        self.tell(f"the network of {node} is cut")

    def connect(self, node: str) -> None:
        """The end of `cut`."""
        workers.connect(self.cluster, self.worker(node))
        self.tell(f"{node} has its network again")

    def is_ready(self, node: str) -> bool:
        """Whether the API server says that the node is ready."""
        return self.team.reason("node", node, "Ready")[0] == "True"

    # the broker

    def pod(self, name: str = "main-0") -> tuple[str, str]:
        """The uid of a pod and its node; empty if there is none."""
        found = self.team.kube.get("pod", name)
        return str(pick(found, "metadata", "uid") or ""), str(pick(found, "spec", "nodeName") or "")

    def serves_on_another(self, node: str) -> bool:
        """Whether the broker's pod is Ready on another node than this one."""
        there = self.pod()[1]
        return there not in ("", node) and self.team.kube.is_true("pod", "main-0", "Ready")

    def is_node_lost(self) -> bool:
        """Whether the Broker says so."""
        return self.team.reason("broker", "main", "NodeLost")[0] == "True"

    def patch(self, pod: Mapping[str, Any]) -> None:
        """Change these fields of the Broker's spec.pod; None removes one."""
        change = json.dumps({"spec": {"pod": pod}})
        self.team.kube.kubectl("patch", "broker", "main", "--type=merge", "--patch", change)

    def go_on(self, seconds: float = PATIENCE) -> None:
        """Until JMS clients send and receive; tells how long there was no message. Raises TimeoutError."""
        self._clients_run()
        self.traffic.go_on(seconds)
        self.flow.look()
        with self.traffic.board.lock:
            accepted = len(self.traffic.board.tally.accepted)
        self.tell(f"messages flow; there were none for {self.flow.take_longest():.1f} s; {accepted} accepted so far")

    def _clients_run(self) -> bool:
        """True; raises AssertionError if a JMS client has ended by itself, with what it said."""
        every = (self.traffic.producer, *self.traffic.consumers)
        ended = [f"client {it.name} has ended: {it.failures}" for it in every if it.process.poll() is not None]
        assert not ended, ended
        return True

    # the operators

    def operators(self) -> dict[str, str]:
        """Node by name of each operator's pod that is not leaving."""
        found = cast("list[Any]", pick(self.installation.home.get("pods"), "items") or [])
        stays = [pod for pod in found if pick(pod, "metadata", "deletionTimestamp") is None]
        of_operator = [pod for pod in stays if "operator" in str(pick(pod, "metadata", "name"))]
        return {str(pick(pod, "metadata", "name")): str(pick(pod, "spec", "nodeName")) for pod in of_operator}

    def spread_operators(self) -> None:
        """One on each worker. After a drain both may be on one, where they stay."""
        leads = self.leader()
        if len(set(self.operators().values())) == 1:
            self.installation.home.kubectl("delete", "pod", *(name for name in self.operators() if name != leads))
        wait_for("operators on two nodes", lambda: len(set(self.operators().values())) > 1, PATIENCE)

    def leader(self) -> str:
        """The pod that the Lease names."""
        lease = f"{self.installation.release}-penstock-operator"
        return str(pick(self.installation.home.get("lease", lease), "spec", "holderIdentity") or "")


def bring_up(cluster: Cluster) -> None:
    """The nodes, the storage and the images. Nothing is scheduled to the node with the control plane."""
    environment = own_cluster_environment()
    there = {worker.folders.worker for worker in workers.running(cluster)}
    for number in there:  # of a run that was ended in the middle
        workers.connect(cluster, cluster.worker(number))
    for number in WORKERS:
        if number not in there:
            workers.add(cluster, number)
    subprocess.run(["hack/images", "load"], cwd=ROOT, check=True)
    kube = Kube("default", environment)
    if not str(kube.kubectl("get", "storageclass", "expandable", "--ignore-not-found")).strip():
        storage.begin(cluster)
        for number in WORKERS:
            storage.begin_on_worker(cluster.worker(number))
    for worker in map(cluster.worker, WORKERS):
        kube.kubectl("uncordon", worker.folders.node)
        kube.kubectl("taint", "nodes", worker.folders.node, f"{OUT_OF_SERVICE}-", check=False)
    kube.kubectl("taint", "nodes", cluster.folders.node, f"{CONTROL_PLANE}=:NoSchedule", "--overwrite")


def _set_up(environment: Mapping[str, str]) -> tuple[Installation, Team]:
    home, team = Kube(HOME, environment), Team(Kube(SHOP, environment))
    installation = Installation(home, "penstock", images().tag)
    if not home.kubectl("get", "namespace", SHOP, "--ignore-not-found").strip():
        home.kubectl("create", "namespace", HOME)
        home.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
        installation.install(replicas="2")
        home.kubectl("create", "namespace", SHOP)
    team.apply_whole(storage={"size": "1Gi", "ledgerSize": "400Mi", "storageClassName": "expandable"})
    team.wait_ready(seconds=PATIENCE)
    return installation, team


@contextmanager
def open_stage(cluster: Cluster, work: Path, say: Callable[[str], None]) -> Generator[Stage]:
    """On nodes that are up. At the end every accepted message must have come. Raises AssertionError."""
    environment = own_cluster_environment()
    installation, team = _set_up(environment)
    with chaos_run.clients(team, work) as traffic:
        flow = Flow(board=traffic.board)
        writers = Writers(nodes=lambda: (cluster, *workers.running(cluster)))
        stage = Stage(cluster, environment, work, say, installation, team, flow, writers, traffic)
        for watch in (flow, writers):
            watch.begin()
        about = ("--namespace", SHOP, "get")
        changes = [
            Changes(environment, stage.tell, *about, "broker/main", form=CONDITIONS),
            Changes(environment, stage.tell, *about, "subscription/billing", form=CONDITIONS),
            Changes(environment, stage.tell, *about, "pods", "--field-selector=metadata.name=main-0", form=PLACE),
        ]
        try:
            stage.spread_operators()
            yield stage
            traffic.finish()
        finally:
            for each in changes:
                each.end()
            for watch in (flow, writers):
                watch.end()
    tally = traffic.board.tally
    say(
        f"{len(tally.accepted)} messages accepted, none lost; {tally.repeated} delivered again, {len(tally.doubtful)} "
        "without an answer; no volume was ever on two nodes"
    )
