"""Causes of the alerts of the chart on a real node: what is done to brokers, so that each alert about them fires.

Every cause is what would bring the alert about in production: a process that stands still, a volume that is full, a
consumer that fails. Needs the node of hack/cluster, and root.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from e2e import node_processes
from e2e.kube import pick, wait_for
from e2e.story import StoryError
from support.alert_clients import consume, fill_memory, fill_volume, produce
from support.chaos_checks import subscriptions, url
from support.cluster_certificates import apply_certificate
from support.installed_operator import MINUTE, Installation, Team, whole

from penstock_operator.children import certificates

__all__ = ["BROKER_ALERTS", "TEAMS", "Scene", "cause_on_brokers", "scene_of"]

BROKER_ALERTS: Final = {
    "PenstockBrokerUnreachable": "stopped",
    "PenstockObserverDown": "unseen",
    "PenstockStorageRefusesWork": "full",
    "PenstockStorageCritical": "full",
    "PenstockStorageFilling": "filling",
    "PenstockMemoryShort": "memory",
    "PenstockMemoryRefuses": "memory",
    "PenstockLedgerNotWritten": "memory",
    "PenstockLedgerDamaged": "full",
    "PenstockLagResultStale": "certified",
    "PenstockServerCertificate": "certified",
    "PenstockResourcesNotReady": "shop",
    "PenstockOperatorFailing": "operator",
    "PenstockSubscriptionUnknown": "unsure",
    "PenstockSubscriptionLosing": "shop",
    "PenstockSubscriptionLossShare": "shop",
    "PenstockSubscriptionUnconsumed": "shop",
    "PenstockSubscriptionTooOld": "shop",
    "PenstockSubscriptionStalled": "shop",
    "PenstockSubscriptionPoison": "shop",
    "PenstockSubscriptionLagging": "shop",
    "PenstockSubscriptionStranded": "shop",
}
"""By alert: the namespace that it has to name."""
TEAMS: Final = ("shop", "stopped", "unseen", "full", "filling", "memory", "certified", "unsure")

SUBSCRIPTIONS: Final[dict[str, dict[str, Any]]] = {
    "calm": {},
    "unconsumed": {},
    "losing": {"delivery": {"deadLetter": "rejected"}},
    "poison": {},
    "stalled": {},
    "lagging": {},
    "stranded": {"delivery": {"deadLetter": "brim"}},
}
CONSUMERS: Final[dict[str, tuple[str | None, float]]] = {
    "calm": ("accept", 0.0),
    "losing": ("reject", 0.0),
    "poison": ("fail", 0.1),
    "stalled": (None, 0.5),
    "lagging": ("accept", 2.0),
    "stranded": ("reject", 0.0),
}
"""By subscription: what its consumer says of each message, and the pause after it in seconds."""
VOLUME_MIB: Final = 256
SHARE_OF_FILES: Final = 0.86
"""Of a volume that is to be filled between 70 and 85 %: two spare files of the log still take messages.
"""
DAMAGED_SEGMENT: Final = "0000000001-000000000001-000000000009.parquet"
"""By its name a segment of a ledger; it holds something else."""
STANDS_SECONDS: Final = 25.0
RUNS_SECONDS: Final = 5.0
"""An observer that stands for most of the time makes fewer than half of its polls."""


@dataclass
class Scene:
    """An operator, a namespace for each broker, and what is undone at the end."""

    installation: Installation
    teams: dict[str, Team]
    work: Path
    undo: ExitStack
    stop: threading.Event = field(default_factory=threading.Event)
    failures: list[str] = field(default_factory=list[str])

    def namespace(self, name: str) -> str:
        """The namespace of a broker, or of the operator."""
        return self.installation.home.namespace if name == "operator" else self.teams[name].kube.namespace

    @staticmethod
    def on_node(*words: str) -> None:
        """Run a command where the pods' volumes are mounted: the node has mounts and processes of its own."""
        kubelet = wait_for("the kubelet", lambda: node_processes.of_daemon("kubelet"), MINUTE)
        subprocess.run(["nsenter", "--mount", "--pid", f"--target={kubelet}", *words], check=True)

    def meanwhile(self, work: Callable[[], None]) -> None:
        """Do this on a thread until the scene ends; the thread must end when `stop` is set."""

        def do() -> None:
            try:
                work()
            except Exception as error:  # whatever it is: the run tells it
                self.failures.append(f"a cause has ended: {error!r}")

        thread = threading.Thread(target=do, daemon=True)
        thread.start()
        self.undo.callback(thread.join, MINUTE)


def cause_on_brokers(scene: Scene) -> None:
    """Make the Brokers, and begin every cause; they go on until `stop` is set."""
    for name, team in scene.teams.items():
        volumes = _small_volumes(scene, team, name) if name in ("full", "filling") else {}
        memory = {"memory": {"maxSize": "16Mi"}} if name == "memory" else {}
        (broker, exchange, *_) = whole(**memory, **({"storage": volumes} if volumes else {}))
        team.apply(broker, exchange, _queue("heap"))
    for team in scene.teams.values():
        team.wait_ready("broker/main", "exchange/orders", "queue.penstock.dev/heap", seconds=5 * MINUTE)
    _states_of_subscriptions(scene)
    for name, share in (("full", math.inf), ("filling", SHARE_OF_FILES)):
        node = Path(f"/proc/{node_processes.of_daemon('kubelet')}/root")
        folder = os.open(f"{node}{scene.work}/{name}-data", os.O_RDONLY)
        scene.undo.callback(os.close, folder)
        where = url(scene.teams[name])()
        scene.meanwhile(partial(fill_volume, where, "heap", folder, share, scene.stop))
    scene.meanwhile(partial(fill_memory, url(scene.teams["memory"])(), "heap", scene.stop))
    _store_a_result(scene.teams["certified"])
    _ledger_that_fails(scene)
    _certificate_that_ends(scene.teams["certified"])
    _webhook_that_is_gone(scene)
    scene.meanwhile(partial(_stands, scene, "stopped", "broker"))
    scene.meanwhile(partial(_stands, scene, "unseen", "observer"))
    scene.meanwhile(partial(_stands, scene, "unsure", "observer", STANDS_SECONDS, RUNS_SECONDS))


def _states_of_subscriptions(scene: Scene) -> None:
    shop = scene.teams["shop"]
    shop.apply(_queue("brim", limits={"maxMessages": 1, "overflow": "Reject"}))
    for name, spec in SUBSCRIPTIONS.items():
        shop.apply(*subscriptions([name], **{"bindingKeys": [name], **spec}))
    shop.wait_ready(*(f"subscription/{name}" for name in SUBSCRIPTIONS))
    shop.apply(*subscriptions(["astray"], exchangeRef={"name": "missing"}))
    to = url(shop)()
    for name, (says, pause) in CONSUMERS.items():
        scene.meanwhile(partial(consume, to, name, scene.stop, says=says, pause=pause))
    scene.meanwhile(partial(produce, to, list(SUBSCRIPTIONS), scene.stop))


def _queue(name: str, **spec: Any) -> dict[str, Any]:
    about = {"apiVersion": "penstock.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}}
    return {**about, "spec": {"brokerRef": {"name": "main"}, **spec}}


def _small_volumes(scene: Scene, team: Team, name: str) -> dict[str, object]:
    """A file system in memory for the messages, and a folder for the ledger, as volumes of a class of their own."""
    made: list[dict[str, Any]] = []
    storage = f"{team.kube.namespace}-small"
    for volume, mib in (("data", VOLUME_MIB), ("ledger", VOLUME_MIB // 2)):
        folder = scene.work / f"{name}-{volume}"
        folder.mkdir()
        scene.on_node("mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=0777", "tmpfs", str(folder))
        scene.undo.callback(scene.on_node, "umount", "-l", str(folder))
        if (name, volume) == ("full", "ledger"):
            scene.on_node("cp", "/etc/hostname", str(folder / DAMAGED_SEGMENT))
        about = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"{storage}-{volume}"}}
        spec = {
            "capacity": {"storage": f"{mib}Mi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": storage,
            "hostPath": {"path": str(folder)},
        }
        made.append({**about, "spec": spec})
        scene.undo.callback(team.kube.kubectl, "delete", "pv", f"{storage}-{volume}", "--wait=false", check=False)
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": storage}}
    team.apply(*made, {**kind, "provisioner": "kubernetes.io/no-provisioner"})
    scene.undo.callback(team.kube.kubectl, "delete", "storageclass", storage, check=False)
    return {"size": f"{VOLUME_MIB}Mi", "ledgerSize": f"{VOLUME_MIB // 2}Mi", "storageClassName": storage}


def _stands(scene: Scene, name: str, verb: str, stands: float = 1.0, runs: float = 0.0) -> None:
    """The process stands still, and so does each that follows it; with `runs` it goes on for some seconds between."""
    team = scene.teams[name]
    try:
        while not scene.stop.is_set():
            _signal(team, verb, signal.SIGSTOP)
            scene.stop.wait(stands)
            if runs:
                _signal(team, verb, signal.SIGCONT)
                scene.stop.wait(runs)
    finally:
        _signal(team, verb, signal.SIGCONT)


def _signal(team: Team, verb: str, which: signal.Signals) -> None:
    uid = team.field("pod", "main-0", "metadata", "uid")
    pid = None if uid is None else node_processes.of_container(str(uid), verb)
    if pid is not None:
        try:
            os.kill(pid, which)
        except ProcessLookupError:
            return  # the kubelet has ended it meanwhile


def _store_a_result(team: Team) -> None:
    """One result of the lag job: no other follows, because the job is suspended."""

    token = team.kube.secret("main-observer", "token") or ""

    def stored() -> bool:
        try:
            _, live = team.ask_observer("/v1/lag/live", token)
            result = {**json.loads(live), "runName": "only"}
            team.ask_observer("/v1/lag/results/only", token, json.dumps(result).encode())
        except OSError:
            return False
        return True

    wait_for("the observer to take a result", stored, 3 * MINUTE)


def _ledger_that_fails(scene: Scene) -> None:
    """Nobody but root may write to the volume of the ledger any more, until a pod begins."""
    team = scene.teams["memory"]
    volume = str(team.field("pvc", "ledger-main-0", "spec", "volumeName"))
    source: Any = pick(team.kube.get("pv", volume), "spec")
    folder = Path(str(pick(source, "hostPath", "path") or pick(source, "local", "path")))
    for each in (folder, *(it for it in folder.rglob("*") if it.is_dir())):
        before = each.stat()
        each.chmod(0o500)
        os.chown(each, 0, 0)
        scene.undo.callback(each.chmod, before.st_mode)
        scene.undo.callback(os.chown, each, before.st_uid, before.st_gid)


def _certificate_that_ends(team: Team) -> None:
    """A server certificate of somebody else's that ends in an hour."""
    now = datetime.now(UTC)
    authority = certificates.make_ca("alerts", now)
    host = f"main-amqp.{team.kube.namespace}.svc"
    made = certificates.make_server(authority, (host,), now + timedelta(hours=1) - certificates.SERVER_LIFE)
    apply_certificate(team, "ends-soon", made, authority.certificate.decode())
    patch = {"spec": {"tls": {"secretRef": {"name": "ends-soon"}}}}
    team.kube.kubectl("patch", "broker", "main", "--type=merge", "-p", json.dumps(patch))


def _webhook_that_is_gone(scene: Scene) -> None:
    """The API server has to ask an admission webhook about each status of a Subscription, and nothing answers there."""
    team = scene.teams["unseen"]
    name = f"{team.kube.namespace}-gone"
    team.apply(*subscriptions(["early"]))
    team.wait_ready("subscription/early")
    status = {"apiGroups": ["penstock.dev"], "apiVersions": ["*"], "operations": ["*"]}
    webhook = {
        "name": "gone.penstock.dev",
        "clientConfig": {"url": "https://127.0.0.1:9/"},
        "rules": [{**status, "resources": ["subscriptions/status"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": team.kube.namespace}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    team.apply({**kind, "metadata": {"name": name}, "webhooks": [webhook]})
    scene.undo.callback(team.kube.kubectl, "delete", "validatingwebhookconfiguration", name, check=False)

    def is_asked() -> bool:
        words = ("--subresource=status", "--type=merge", "--dry-run=server", "-p", '{"status": {}}')
        try:
            team.kube.kubectl("patch", "subscription", "early", *words)
        except StoryError as error:
            return "gone.penstock.dev" in str(error)
        return False

    wait_for("the API server to ask the webhook", is_asked, MINUTE)
    team.apply(*subscriptions(["late"]))


@contextmanager
def scene_of(installation: Installation, work: Path) -> Generator[Scene]:
    """A scene with a namespace for each of TEAMS; at its end everything is undone."""
    with ExitStack() as undo:
        teams = {name: undo.enter_context(installation.team()) for name in TEAMS}
        scene = Scene(installation, teams, work, undo)
        try:
            yield scene
        finally:
            scene.stop.set()
