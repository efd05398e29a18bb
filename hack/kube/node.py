"""Boots the node: sandbox, certificates, daemons in order, DNS and storage class; and reports its state."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

from kube import archives, cgroups, configs, daemons, pki, sandbox
from kube.binaries import Binaries
from kube.settings import PARTS, PROVISIONER, Addresses, Folders
from kube.steps import Failure, output, run, step, succeeds, wait_until

DAEMONS = (
    "containerd",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubelet",
    "volume-provisioner",
)

STARTED_AGAIN = ("kube-controller-manager", "kube-scheduler")
"""They end themselves when what they remember can't be right any more ("Scheduler cache is corrupted"), and rely on the
kubelet or an init system to start them again."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A place for one cluster, up or not."""

    folders: Folders
    at: Addresses
    programs: Binaries

    @property
    def environment(self) -> dict[str, str]:
        """Environment in which kubectl and helm talk to this cluster and no other."""
        return {**os.environ, "KUBECONFIG": str(self.folders.kubeconfig)}

    def worker(self, number: int) -> Cluster:
        """The place of a further node of this cluster, as kube.workers starts it."""
        return replace(self, folders=replace(self.folders, worker=number), at=replace(self.at, worker=number))

    def kubectl(self, *arguments: str) -> list[str | Path]:
        return [self.programs["kubectl"], *arguments]

    def ctr(self, *arguments: str) -> list[str | Path]:
        return ["ctr", "--address", self.folders.containerd, "--namespace", "k8s.io", *arguments]

    def serves(self) -> bool:
        """The API server says that it is ready."""
        return succeeds(self.kubectl("get", "--raw=/readyz"), env=self.environment)

    def ready(self) -> bool:
        """Every daemon runs and the API server serves."""
        return not self.ended_daemons() and self.serves()

    def ended_daemons(self) -> list[str]:
        """The daemons that do not run; all of them if the node is down."""
        node = sandbox.running(self.folders)
        there = sandbox.programs(node) if node else {}
        return [name for name in DAEMONS if name not in there]


def boot(cluster: Cluster) -> None:
    """From nothing to a ready node with DNS. Raises Failure; what was begun is then removed by sandbox.remove."""
    folders, at = cluster.folders, cluster.at
    folders.node_logs.mkdir(parents=True, exist_ok=True)
    for name in DAEMONS:
        (folders.node_logs / f"{name}.log").unlink(missing_ok=True)
    with step("namespaces, certificates"):
        node = sandbox.start(folders, at, cluster.programs["pause"])
        folders.state.mkdir(parents=True, mode=0o711)
        pki.make(folders.state / "pki", at, folders.node_logs / "pki.log")
        write_configs(cluster)
    with step("containerd, etcd, API server"):
        start(cluster, node, daemons.containerd(folders))
        start(cluster, node, daemons.etcd(folders, cluster.programs))
        start(cluster, node, daemons.api_server(folders, cluster.programs, at))
        import_own_images(cluster)
        _wait_for_api(cluster)
    with step("node ready"):
        start(cluster, node, daemons.controller_manager(folders, cluster.programs, at))
        start(cluster, node, daemons.scheduler(folders, cluster.programs))
        start(cluster, node, daemons.kubelet(folders, cluster.programs, at))
        start(cluster, node, daemons.kube_proxy(folders, cluster.programs))
        start(cluster, node, daemons.provisioner(folders, cluster.programs))
        _add_addons(cluster)
        wait_for_node(cluster)
    with step("DNS ready"):
        rollout = cluster.kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=120s")
        run(rollout, folders.node_logs / "up.log", env=cluster.environment)


def write_configs(cluster: Cluster) -> None:
    """The files that the node's daemons read, and its cgroup. Certificates are made elsewhere."""
    folders, at = cluster.folders, cluster.at
    files = {
        "containerd.toml": configs.containerd(folders),
        "cni/10-penstock.conflist": configs.cni(folders, at),
        "kubelet.yaml": configs.kubelet(folders, at),
        "kube-proxy.yaml": configs.kube_proxy(folders, at),
        "resolv.conf": "nameserver 127.0.0.1\n",  # nothing outside the cluster is ever asked
    }
    for name, text in files.items():
        file = folders.state / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    cgroups.make(folders.cgroup)


def start(cluster: Cluster, node: sandbox.Node, command: daemons.Command) -> None:
    """Starts a daemon, or another program, in the node; the shell between ends at once, so that the node's process 1
    adopts it. One that is to be started again has a shell of its own that does so.
    """
    name = Path(command[0]).name
    log = cluster.folders.node_logs / f"{name}.log"
    again = 'log=$1; shift; while :; do "$@"; echo "ended with $?, begins again"; sleep 1; done'
    starting: list[str | Path] = ["sh", "-c", again, "sh", log] if name in STARTED_AGAIN else []
    script = 'log=$1; shift; setsid "$@" </dev/null >>"$log" 2>&1 &'
    subprocess.run(node.enter(["sh", "-c", script, "sh", log, *starting, *command]), check=True)


def restart_daemon(cluster: Cluster, name: str, away_seconds: float) -> None:
    """Kill a daemon, if it runs, and start it, later; those of `STARTED_AGAIN` start after a second. Raises Failure if
    there is no node.
    """
    node = sandbox.running(cluster.folders)
    if node is None:
        raise Failure("the cluster is not up; start it with: hack/cluster up")
    pid = sandbox.programs(node).get(name)
    if name in STARTED_AGAIN:
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        again = f"{name} running again"
        runs = lambda: sandbox.programs(node).get(name) not in (None, pid)  # noqa: E731
        wait_until(runs, again, seconds=30, cure="see hack/cluster status")
        return
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
        ended = f"{name} ended"
        wait_until(lambda: name in cluster.ended_daemons(), ended, seconds=30, cure="see hack/cluster status")
    time.sleep(away_seconds)
    start(cluster, node, _command(cluster, name))


def _command(cluster: Cluster, name: str) -> daemons.Command:
    folders, programs, at = cluster.folders, cluster.programs, cluster.at
    commands = (
        daemons.containerd(folders),
        daemons.etcd(folders, programs),
        daemons.api_server(folders, programs, at),
        daemons.controller_manager(folders, programs, at),
        daemons.scheduler(folders, programs),
        daemons.kubelet(folders, programs, at),
        daemons.kube_proxy(folders, programs),
        daemons.provisioner(folders, programs),
    )
    return next(command for command in commands if Path(command[0]).name == name)


def import_own_images(cluster: Cluster) -> None:
    """What every node runs, once its containerd answers."""
    folders = cluster.folders
    version = cluster.ctr("version")
    log = folders.node_logs / "containerd.log"
    wait_until(lambda: succeeds(version), "containerd answers", seconds=30, cure=f"see {log}")
    images = ((configs.PAUSE_IMAGE, "pause", "65535:65535"), (configs.COREDNS_IMAGE, "coredns", ""))
    for image, program, user in images:
        place = cluster.programs[program]
        archive = place.with_name("image.tar")
        if not archive.exists():
            archives.single_program(image, place, archive, user=user)
        run(cluster.ctr("images", "import", str(archive)), folders.node_logs / "up.log")


def _wait_for_api(cluster: Cluster) -> None:
    log = cluster.folders.node_logs / "kube-apiserver.log"
    wait_until(cluster.serves, "API server ready", seconds=120, cure=f"see {log}")


def _add_addons(cluster: Cluster) -> None:
    text = (PARTS / "addons.yaml").read_text()
    values = {"@PROVISIONER@": PROVISIONER, "@DNS@": cluster.at.dns, "@COREDNS_IMAGE@": configs.COREDNS_IMAGE}
    for name, value in values.items():
        text = text.replace(name, value)
    apply = cluster.kubectl("apply", "--server-side", "-f", "-")
    run(apply, cluster.folders.node_logs / "up.log", env=cluster.environment, stdin=text.encode())


def wait_for_node(cluster: Cluster) -> None:
    """Until the node says that it is ready. Raises Failure."""
    jsonpath = '-o=jsonpath={.status.conditions[?(@.type=="Ready")].status}'
    ask = cluster.kubectl("get", "node", cluster.folders.node, "--ignore-not-found", jsonpath)
    log = cluster.folders.node_logs / "kubelet.log"
    wait_until(lambda: output(ask, env=cluster.environment) == "True", "node ready", seconds=120, cure=f"see {log}")
