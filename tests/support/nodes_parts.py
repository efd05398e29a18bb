"""The parts of hack/soak/nodes: what becomes of a Broker and of the operators when a node goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from e2e.kube import wait_for
from e2e.story import StoryError
from support.installed_operator import MINUTE
from support.nodes_stage import Stage

__all__ = ["COMMANDS", "PARTS"]

TOLERATED_SECONDS: Final = 300
"""What the API server writes into every pod."""
GRACE_SECONDS: Final = 50
"""After so long without a word from its kubelet a node is not ready."""
DETACH_SECONDS: Final = 6 * MINUTE
"""After so long a volume is detached from a node that has not said that it is unmounted."""
HOLD_SECONDS: Final = 30
TOLERANT_SECONDS: Final = 20
TAINT: Final = "kubectl taint nodes NODE node.kubernetes.io/out-of-service="
UNTAINT: Final = "kubectl taint nodes NODE node.kubernetes.io/out-of-service-"
DELETE: Final = "kubectl delete node NODE"
COMMANDS: Final = (TAINT, UNTAINT, DELETE)
"""Of the runbook, by how they begin."""
SLACK_SECONDS: Final = 2 * MINUTE
PATIENCE: Final = 5 * MINUTE


def drain(stage: Stage) -> None:
    """`kubectl drain` of the node of the broker's pod, refused and then allowed."""
    claim = stage.team.field("pvc", "data-main-0", "metadata", "uid")
    node = stage.pod()[1]
    stage.patch({"eviction": "Refuse"})
    wait_for("the PodDisruptionBudget", lambda: stage.team.kube.get("pdb", "main"), MINUTE)
    stage.start_clock()
    try:
        _drain(stage, node, "15s")
    except StoryError as refused:
        told = next((line for line in str(refused).splitlines() if "Cannot evict" in line), str(refused))
        stage.tell(f"refused: {told}")
    else:
        raise AssertionError("the drain went on although the Broker refuses evictions")
    assert stage.pod()[1] == node, "the pod was evicted"
    stage.patch({"eviction": "Allow"})
    wait_for("no PodDisruptionBudget", lambda: stage.team.kube.get("pdb", "main") is None, MINUTE)
    stage.start_clock()
    _drain(stage, node, "120s")
    stage.tell(f"{node} is drained")
    stage.until("the broker's pod is Ready on the other node", lambda: stage.serves_on_another(node))
    stage.go_on()
    assert stage.team.field("pvc", "data-main-0", "metadata", "uid") == claim, "it has another volume"
    stage.team.kube.kubectl("uncordon", node)
    stage.spread_operators()
    _settle(stage)


def _drain(stage: Stage, node: str, timeout: str) -> None:
    stage.team.kube.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={timeout}")


def lost(stage: Stage) -> None:
    """The node of the broker's pod is switched off; five minutes later the runbook is followed."""
    uid, node = stage.pod()
    _until_lost(stage, node)
    stage.tell(stage.team.message("broker", "main", "NodeLost"))
    ends = lambda: stage.team.field("pod", "main-0", "metadata", "deletionTimestamp")  # noqa: E731
    stage.until("the cluster orders the end of the pod", ends, TOLERATED_SECONDS + SLACK_SECONDS)
    wait_for("its words", lambda: "is to end there" in stage.team.message("broker", "main", "NodeLost"), SLACK_SECONDS)
    stage.tell(stage.team.message("broker", "main", "NodeLost"))
    _holds(stage, "the pod is the old one", lambda: stage.pod() == (uid, node), HOLD_SECONDS)
    stage.page(node).does(TAINT)
    stage.until("the broker's pod is Ready on the other node", lambda: stage.serves_on_another(node))
    stage.go_on()
    stage.switch_on(node)
    stage.page(node).does(UNTAINT)
    _settle(stage)


def gone(stage: Stage) -> None:
    """The node of the broker's pod is switched off, and its Node object deleted."""
    _, node = stage.pod()
    _until_lost(stage, node)
    stage.page(node).does(DELETE)
    stage.tell(f"the Node object {node} is deleted")
    stage.until("another pod", lambda: stage.pod()[1] not in ("", node), SLACK_SECONDS + MINUTE)
    stage.until("it is Ready", lambda: stage.serves_on_another(node), DETACH_SECONDS + SLACK_SECONDS)
    stage.go_on()
    stage.switch_on(node)
    _settle(stage)


def _until_lost(stage: Stage, node: str) -> None:
    stage.start_clock()
    stage.switch_off(node)
    stage.until(f"{node} is not ready", lambda: not stage.is_ready(node), GRACE_SECONDS + MINUTE)
    stage.until("the Broker says NodeLost", stage.is_node_lost, SLACK_SECONDS + MINUTE)


def partition(stage: Stage) -> None:
    """The network of the node is cut for less, and then for more, than the pod tolerates; the old broker runs on."""
    uid, node = stage.pod()
    stage.start_clock()
    stage.cut(node)
    stage.until("the Broker says NodeLost", stage.is_node_lost, GRACE_SECONDS + SLACK_SECONDS)
    stage.connect(node)
    stage.until("the Broker does not say so any more", lambda: not stage.is_node_lost(), SLACK_SECONDS)
    stage.go_on()
    assert stage.pod() == (uid, node), "it is another pod"
    _settle(stage)
    stage.patch({"tolerations": [_tolerated("unreachable"), _tolerated("not-ready")]})
    wait_for("the pod with these tolerations", lambda: stage.pod()[0] not in ("", uid), PATIENCE)
    _settle(stage)
    uid, node = stage.pod()
    stage.start_clock()
    stage.cut(node)
    ends = lambda: stage.team.field("pod", "main-0", "metadata", "deletionTimestamp")  # noqa: E731
    stage.until("the cluster orders the end of the pod", ends, GRACE_SECONDS + SLACK_SECONDS)
    _holds(stage, "the pod is the old one", lambda: stage.pod() == (uid, node), HOLD_SECONDS)
    stage.tell("now somebody says that the machine is off, and is wrong")
    stage.page(node).does(TAINT)
    stage.until("another pod", lambda: stage.pod()[1] not in ("", node), SLACK_SECONDS + MINUTE)
    _holds(stage, "it does not start", lambda: not stage.serves_on_another(node), HOLD_SECONDS)
    stage.connect(node)
    stage.until("the other pod is Ready", lambda: stage.serves_on_another(node), PATIENCE + DETACH_SECONDS)
    stage.go_on()
    stage.page(node).does(UNTAINT)
    stage.patch({"tolerations": None})
    _settle(stage)


def _tolerated(what: str) -> dict[str, Any]:
    key = f"node.kubernetes.io/{what}"
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERANT_SECONDS}


def leader(stage: Stage) -> None:
    """The node of the operator that leads is switched off; then it is on again."""
    stage.spread_operators()
    if stage.operators()[stage.leader()] == stage.pod()[1]:
        old = stage.leader()
        stage.installation.home.kubectl("delete", "pod", old)
        wait_for("operators on two nodes", lambda: len(set(stage.operators().values())) > 1, PATIENCE)
        wait_for("another leader", lambda: stage.leader() not in ("", old), MINUTE)
    old = stage.leader()
    node = stage.operators()[old]
    before = _written(stage)
    stage.tell(f"{old} leads, on {node}; the broker is on {stage.pod()[1]}")
    stage.start_clock()
    stage.switch_off(node)
    stage.team.apply(_subscription("late"))
    stage.until("another operator has the Lease", lambda: stage.leader() not in ("", old), MINUTE)
    stage.until("a Subscription made meanwhile is Ready", lambda: stage.team.is_ready("subscription", "late"), MINUTE)
    again = {key: _written(stage)[key] for key in before}
    assert again == before, f"the new leader wrote again what was there: {before} {again}"
    stage.tell(f"nothing else was written: {', '.join(before)}")
    stage.go_on()
    stage.switch_on(node)
    stage.team.kube.kubectl("delete", "subscription", "late", "--timeout=60s")
    _settle(stage)


def _written(stage: Stage) -> dict[str, str]:
    """Generations and conditions' times of what the operator has written the status of."""
    form = (
        "{range .items[*]}{.kind}/{.metadata.name} {.metadata.generation}{range .status.conditions[*]}"
        '{.type}{.lastTransitionTime}{end}{"\\n"}{end}'
    )
    text = stage.team.kube.kubectl("get", "exchange,subscription,statefulset,service", f"--output=jsonpath={form}")
    return dict(line.split(" ", 1) for line in text.splitlines())


def _subscription(name: str) -> dict[str, Any]:
    spec = {"brokerRef": {"name": "main"}, "exchangeRef": {"name": "orders"}, "bindingKeys": ["nothing"]}
    return {"apiVersion": "penstock.dev/v1alpha1", "kind": "Subscription", "metadata": {"name": name}, "spec": spec}


def spread(stage: Stage) -> None:
    """Four Brokers spread over the workers, one on the tainted first node, and a lag run on the other worker."""
    names = [f"spread-{number}" for number in range(4)]
    over = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    over = {**over, "labelSelector": {"matchLabels": {"tier": "spread"}}, "nodeTaintsPolicy": "Honor"}
    first = stage.cluster.folders.node
    on_first = {"key": "kubernetes.io/hostname", "operator": "In", "values": [first]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [on_first]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    tolerated = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}
    stage.start_clock()
    stage.team.apply(
        *(_broker(name, {"labels": {"tier": "spread"}, "topologySpreadConstraints": [over]}) for name in names),
        _broker("first", {"affinity": affinity, "tolerations": [tolerated]}),
    )
    stage.team.wait_ready("broker/first", *(f"broker/{name}" for name in names), seconds=PATIENCE)
    places = {name: stage.pod(f"{name}-0")[1] for name in (*names, "first")}
    stage.tell(f"all are Ready: {places}")
    counts = sorted(list(places.values()).count(node) for node in set(places.values()) - {first})
    assert places.pop("first") == first, "affinity and toleration did not take effect"
    assert counts == [2, 2], f"they are not spread: {places}"
    stage.team.kube.kubectl("delete", "broker", "first", *names, "--timeout=120s")
    _lag_elsewhere(stage)


def _broker(name: str, pod: Mapping[str, Any]) -> dict[str, Any]:
    spec = {
        "storage": {"size": "400Mi", "ledgerSize": "400Mi", "storageClassName": "expandable"},
        "authentication": {"anonymous": True},
        "resources": {"requests": {"cpu": "30m"}},
        "lagAnalysis": {"suspend": True},
        "pod": pod,
    }
    return {"apiVersion": "penstock.dev/v1alpha1", "kind": "Broker", "metadata": {"name": name}, "spec": spec}


def _lag_elsewhere(stage: Stage) -> None:
    broker = stage.pod()[1]
    (other,) = {worker.folders.node for worker in map(stage.cluster.worker, (1, 2))} - {broker}
    chosen = {r"lag.nodeSelector.kubernetes\.io/hostname": other, "lag.intervalMinutes": "1"}
    stage.installation.install(replicas="2", **chosen)
    stage.start_clock()
    stage.team.kube.kubectl(
        "patch", "broker", "main", "--type=merge", "-p", '{"spec":{"lagAnalysis":{"suspend":false}}}'
    )
    runs: dict[str, str] = {}

    def has_run() -> bool:
        runs.update(_lag_pods(stage))
        return stage.team.field("subscription", "billing", "status", "lag", "runName") not in (None, "live")

    stage.until("a lag run's figures are in the Subscription", has_run, PATIENCE)
    stage.tell(f"the broker is on {broker}; pods of lag runs: {runs}")
    assert set(runs.values()) == {other}, "the run was not on the node that was chosen for it"
    stage.team.kube.kubectl(
        "patch", "broker", "main", "--type=merge", "-p", '{"spec":{"lagAnalysis":{"suspend":true}}}'
    )


def _holds(stage: Stage, what: str, holds: Callable[[], bool], seconds: float) -> None:
    """It has to hold all the time. Raises AssertionError."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        assert holds(), f"no longer: {what}"
        time.sleep(1)
    stage.tell(f"for {seconds} s: {what}")


def _settle(stage: Stage) -> None:
    """All is as before, and no volume was on two nodes. Raises TimeoutError and AssertionError."""
    stage.team.wait_ready("broker/main", "exchange/orders", "subscription/billing", seconds=PATIENCE)
    assert not stage.is_node_lost(), "the Broker says that its node is lost"
    assert not stage.writers.twice, stage.writers.twice[:3]
    stage.go_on()


def _lag_pods(stage: Stage) -> dict[str, str]:
    """Node by name of each pod of a lag run that has one."""
    form = "{range .items[*]}{.metadata.name}={.spec.nodeName} {end}"
    pods = stage.installation.home.kubectl("get", "pods", f"--output=jsonpath={form}").split()
    places = {name: node for name, _, node in (each.partition("=") for each in pods)}
    return {name: node for name, node in places.items() if "-lag-" in name and node}


PARTS: Final[Mapping[str, Callable[[Stage], None]]] = {
    "drain": drain,
    "leader": leader,
    "partition": partition,
    "lost": lost,
    "gone": gone,
    "spread": spread,
}
