"""The demo on Kubernetes: helm install, kubectl apply, the story of e2e.story with two deaths of the broker, an
observer that crash-loops, a volume that is gone, lag from a scheduled Spark run in `kubectl get psub`, and at the end
one healthy subscription beside two in trouble.

It touches two namespaces and one Helm release of its own, and removes them.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from e2e import jms_tool
from e2e.cluster_site import BROKER, POD, SUBSCRIPTIONS, ClusterSite
from e2e.jms_tool import Board
from e2e.kube import ROOT, Kube, command, own_cluster_environment, pick, wait_for
from e2e.page_visit import invite, stay
from e2e.story import BILLING, TOPIC, Backlog, Disruption, StoryError, grow_backlog, share_through_disruptions
from support import cluster_images

from penstock_api.lag_result import LagResult, LagState

__all__ = ["Cluster", "own_cluster", "play"]

MANIFEST: Final = "examples/kubernetes/whole.yaml"
NAMESPACE: Final = "penstock-demo"
SYSTEM: Final = "penstock-demo-system"
RELEASE: Final = "penstock-demo"
IMAGES: Final = ("broker", "operator", "lag")
GROUP: Final = "penstock.dev"
READY_SECONDS: Final = 300.0
SCHEDULE_SECONDS: Final = 900.0
"""Two schedule periods and a slow Spark run on a busy machine."""
REDECLARED_SECONDS: Final = 60.0
TAIL: Final = 60
"""Lines of each log that are shown when the story fails."""
CRASHES: Final = 2
"""From the second on the kubelet waits before it starts the container again."""
END: Final = {BILLING: LagState.OK, "fraud": LagState.UNCONSUMED, "shipping-eu": LagState.UNCONSUMED}
"""State of each Subscription at the end."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which cluster, and where its nodes get our images."""

    environment: Mapping[str, str]
    context: str | None
    registry: str | None

    @property
    def is_own(self) -> bool:
        """True for the node of hack/cluster."""
        return self.context is None


@contextmanager
def own_cluster(say: Say) -> Generator[Cluster, None, None]:
    """The node of hack/cluster: made, and removed afterwards, unless it is up already."""
    was_up = subprocess.run(["hack/cluster", "status"], cwd=ROOT, capture_output=True).returncode == 0
    if not was_up:
        say("making a Kubernetes node (about fifteen minutes the first time, then one or two)")
        if subprocess.run(["hack/cluster", "up", "--yes"], cwd=ROOT).returncode != 0:
            raise StoryError("hack/cluster up failed; it has said why")
    try:
        yield Cluster(own_cluster_environment(), None, None)
    finally:
        if not was_up:
            subprocess.run(["hack/cluster", "down"], cwd=ROOT, check=False)


def play(cluster: Cluster, work: Path, messages: int, say: Say, *, stays: bool = False) -> None:
    """The whole demo; with `stays` it does not end before Ctrl-C.

    Raises:
        StoryError: something is not as it has to be.
        TimeoutError: something that has to happen did not.
    """
    kube = Kube(NAMESPACE, cluster.environment, cluster.context)
    with _installed(cluster, kube, say):
        _apply(kube, say)
        with closing(ClusterSite(kube, work, is_own_node=cluster.is_own)) as site:
            invite(site.page(), say)
            board = Board()
            disruptions = [
                Disruption(0.33, "a graceful deletion", site.delete_pod),
                Disruption(0.66, "a crash", site.crash),
            ]
            share_through_disruptions(site, board, messages, disruptions, work, say)
            _connect_while_observer_crashes(site, work, say)
            _lose_the_volume(kube, site, work, say)
            backlog = Backlog(messages // 8, of_region=messages // 20, large=messages // 40, settled=messages // 16)
            expected = grow_backlog(site, board, backlog, work, say)
            _await_scheduled_lag(kube, site, expected, say)
            _show_trouble(kube, site, work, say, stays=stays)


@contextmanager
def _installed(cluster: Cluster, kube: Kube, say: Say) -> Generator[None, None, None]:
    """The operator, watching the demo's namespace only, and that namespace, with Pod Security `restricted` enforced."""
    had_crds = bool(kube.kubectl("get", "crd", f"subscriptions.{GROUP}", "--ignore-not-found").strip())
    _remove(kube, had_crds)  # what an interrupted run left
    images = _images(cluster, say)
    labels = "pod-security.kubernetes.io/enforce=restricted"
    for namespace in (NAMESPACE, SYSTEM):
        kube.kubectl("create", "namespace", namespace)
        kube.kubectl("label", "namespace", namespace, labels)
    try:
        values = [f"watchNamespaces={{{NAMESPACE}}}", f"crds.enabled={'false' if had_crds else 'true'}"]
        values += ["lag.intervalMinutes=1"]
        for key, name in (("image", "operator"), ("brokerImage", "broker"), ("lagImage", "lag")):
            repository, _, tag = images[name].rpartition(":")
            values += [f"{key}.repository={repository}", f"{key}.tag={tag}"]
        words = [word for value in values for word in ("--set", value)]
        say("helm install of the operator")
        kube.helm("install", RELEASE, "helm/penstock-operator", "--namespace", SYSTEM, "--wait", *words)
        yield
    except BaseException:
        _say_pods(kube, say)
        raise
    finally:
        _remove(kube, had_crds)


def _say_pods(kube: Kube, say: Say) -> None:
    """What the cluster tells of a story that failed: behind it everything is removed."""
    system = Kube(SYSTEM, kube.environment, kube.context)
    say(kube.kubectl("get", "pods,brokers,psub", "-o", "wide", check=False))
    say(kube.kubectl("get", "events", "--sort-by=.lastTimestamp", check=False))
    for words in (("broker",), ("broker", "--previous"), ("observer",)):
        say(f"log of {' '.join(words)}\n" + kube.kubectl("logs", POD, f"--tail={TAIL}", "-c", *words, check=False))
    operator = f"deployment/{RELEASE}-penstock-operator"
    say("log of the operator\n" + system.kubectl("logs", operator, f"--tail={TAIL}", check=False))


def _images(cluster: Cluster, say: Say) -> dict[str, str]:
    """Build what changed and bring it to the nodes; full image names by short name."""
    say("building the images and bringing them to the cluster")
    if cluster.registry is None:
        try:
            ours = cluster_images.images()  # once per pytest run
        except AssertionError as error:
            raise StoryError(str(error)) from error
        return {"broker": ours.broker, "operator": ours.operator, "lag": ours.lag}
    names = command("hack/images", "push", cluster.registry, *IMAGES, env=cluster.environment).split()
    found = {short: name for short in IMAGES for name in names if f"penstock-{short}:" in name}
    if len(found) != len(IMAGES):
        raise StoryError(f"hack/images push named {names}")
    return found


def _remove(kube: Kube, had_crds: bool) -> None:
    """Resources first, while their operator can still finish them; then the operator; then what is left."""
    if kube.kubectl("get", "namespace", NAMESPACE, "--ignore-not-found").strip():
        kube.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s", check=False)
    kube.helm("uninstall", RELEASE, "--namespace", SYSTEM, "--ignore-not-found", "--wait", check=False)
    kube.kubectl("delete", "namespace", NAMESPACE, SYSTEM, "--ignore-not-found", "--timeout=120s")
    if not had_crds:
        kinds = [f"{kind}.{GROUP}" for kind in ("subscriptions", "queues", "exchanges", "brokers")]
        kube.kubectl("delete", "crd", *kinds, "--ignore-not-found", "--timeout=60s")


def _apply(kube: Kube, say: Say) -> None:
    started = time.monotonic()
    kube.kubectl("apply", "-f", str(ROOT / MANIFEST))
    _suspend_lag_analysis(kube, suspended=True)  # nobody looks at runs before there is a lag to be found
    timeout = f"--timeout={READY_SECONDS:.0f}s"
    kube.kubectl("wait", f"brokers.{GROUP}/{BROKER}", f"exchanges.{GROUP}/{TOPIC}", "--for=condition=Ready", timeout)
    kube.kubectl("wait", f"subscriptions.{GROUP}", "--all", "--for=condition=Ready", timeout)
    say(f"kubectl apply -f {MANIFEST}: all Ready after {time.monotonic() - started:.0f} s")


def _suspend_lag_analysis(kube: Kube, *, suspended: bool) -> None:
    patch = json.dumps({"spec": {"lagAnalysis": {"suspend": suspended}}})
    kube.kubectl("patch", f"brokers.{GROUP}", BROKER, "--type=merge", "--patch", patch)


def _await_scheduled_lag(kube: Kube, site: ClusterSite, expected: dict[str, int], say: Say) -> None:
    """Wait until each live `status.lag`, and a run that the schedule started, have the clients' own figures."""

    def is_shown() -> bool | None:
        shown = {name: pick(status, "messages") for name, status in site.lag_status().items()}
        return True if shown == expected else None

    wait_for(f"status.lag.messages to be {expected}", is_shown, SCHEDULE_SECONDS)
    _suspend_lag_analysis(kube, suspended=False)
    say("waiting for the schedule to start a Spark run that sees this backlog")

    def agreed() -> LagResult | None:
        run_name = pick(kube.get(f"brokers.{GROUP}", BROKER), "status", "lagAnalysis", "lastRunName")
        if run_name is None:
            return None
        result = site.result(str(run_name))
        found = {entry.owner_name: entry.messages for entry in result.subscriptions if entry.owner_name in expected}
        return result if found == expected else None

    result = wait_for(f"a run to find {expected}", agreed, SCHEDULE_SECONDS)
    run_name, segments = result.run_name, result.segments
    _check_run(kube, run_name, say)
    if len(segments) < 2:
        raise StoryError(f"the run {run_name} read {len(segments)} ledger segment; two or more were to be read")
    _say_lag(kube, site, say)
    say(
        "status.lag equals the clients' own count, and so does the result of run "
        f"{run_name} (COMPLETED), {len(segments)} ledger segments"
    )


def _say_lag(kube: Kube, site: ClusterSite, say: Say) -> None:
    say("kubectl get psub")
    say(kube.kubectl("get", f"subscriptions.{GROUP}").rstrip())
    for name, status in sorted(site.lag_status().items()):
        say(f"{name} is {status['state']}: {status.get('message', '')}")


def _show_trouble(kube: Kube, site: ClusterSite, work: Path, say: Say, *, stays: bool) -> None:
    """The healthy Subscription beside those in trouble, in their status; with `stays` until Ctrl-C."""
    log = work / "consumer-four.log"
    with jms_tool.consume(Board(), "four", site.access(failover=True), TOPIC, BILLING, log) as consumer:
        consumer.wait_ready()
        say(f"a consumer of {BILLING!r} is back; nobody has ever consumed from the other two")

        def is_shown() -> bool:
            return {name: status.get("state") for name, status in site.lag_status().items()} == END

        wait_for(f"the states {END}", is_shown, READY_SECONDS)
        _say_lag(kube, site, say)
        if stays:
            stay(site.page(), say)


def _check_run(kube: Kube, run_name: str, say: Say) -> None:
    """The run is a SparkApplication that a ScheduledSparkApplication made, and it completes: its result comes first."""

    system = Kube(SYSTEM, kube.environment, kube.context)

    def ended() -> object | None:
        state = pick(
            system.get("sparkapplications.sparkoperator.k8s.io", run_name), "status", "applicationState", "state"
        )
        return state if state in ("COMPLETED", "FAILED", "SUBMISSION_FAILED") else None

    state = wait_for(f"the run {run_name} to end", ended, READY_SECONDS)
    run = system.get("sparkapplications.sparkoperator.k8s.io", run_name)
    owner = pick(run, "metadata", "ownerReferences", 0, "kind")
    if (state, owner) != ("COMPLETED", "ScheduledSparkApplication"):
        raise StoryError(f"the run {run_name} is {state} and was made by {owner}")
    driver = system.get("pod", str(pick(run, "status", "driverInfo", "podName")))
    if driver is None or "kube-api-access" in json.dumps(pick(driver, "spec")):
        raise StoryError(f"the driver of the run {run_name} is gone, or has an API token")
    if executors := system.kubectl("get", "pods", "-l", "spark-role=executor", "-o", "name"):
        raise StoryError(f"the run {run_name} has not completed in its driver alone: {executors}")
    jsonpath = 'jsonpath={.status.conditions[?(@.type=="LagAnalysisScheduled")].message}'
    say(kube.kubectl("get", f"brokers.{GROUP}", BROKER, "-o", jsonpath))


def _connect_while_observer_crashes(site: ClusterSite, work: Path, say: Say) -> None:
    """Kill the observer until it is in CrashLoopBackOff; meanwhile new clients connect and are served."""

    def crash_loops() -> bool | None:
        """Ended several times, and not running now: the kubelet lets it wait ever longer before the next start."""
        site.kill_observer()
        status = site.container("observer")
        is_down = pick(status, "state", "running") is None
        return True if is_down and cast("int", status.get("restartCount", 0)) >= CRASHES else None

    wait_for("the observer to crash-loop", crash_loops, READY_SECONDS)
    _exchange_messages(site, work, "observer-down", 100)
    if not site.container("broker").get("ready"):
        raise StoryError("the broker is not ready while the observer crash-loops")
    crashes = site.container("observer").get("restartCount")
    say(f"the observer crash-loops ({crashes} restarts): new JMS connections succeed, 100 messages went through")


def _exchange_messages(site: ClusterSite, work: Path, name: str, count: int) -> None:
    """New connections publish and consume through a subscription that is declared, until all that was sent has come."""
    board = Board()
    access = site.access(failover=False)
    consumer = jms_tool.consume(board, f"{name}-consumer", access, TOPIC, BILLING, work / f"{name}-consumer.log")
    producer = jms_tool.publish(board, name, access, TOPIC, count, work / f"{name}-producer.log")
    with consumer, producer:
        consumer.wait_ready()
        producer.finish()
        board.wait_for(f"{count} messages", lambda tally: not tally.lost and len(tally.accepted) == count)
        consumer.stop()


def _lose_the_volume(kube: Kube, site: ClusterSite, work: Path, say: Say) -> None:
    """Delete the claim of the data and the pod: the operator declares everything on the empty broker."""
    instance = pick(kube.get(f"brokers.{GROUP}", BROKER), "status", "instanceId")
    uid = pick(site.pod(), "metadata", "uid")
    kube.kubectl("delete", "pvc", f"data-{POD}", "--wait=false")
    kube.kubectl("delete", "pod", POD, "--wait=false")

    def serves_empty() -> bool | None:
        now = pick(site.pod(), "metadata", "uid")
        return True if now not in (None, uid) and site.container("broker").get("ready") else None

    wait_for("a broker pod on a new volume", serves_empty, READY_SECONDS)
    started = time.monotonic()
    wait_for("everything to be declared again", lambda: _declared_anew(kube, instance), REDECLARED_SECONDS)
    seconds = time.monotonic() - started
    _exchange_messages(site, work, "new-volume", 100)
    say(f"the volume was deleted: everything declared again {seconds:.0f} s after the empty broker served, and used")


def _declared_anew(kube: Kube, instance: object) -> bool | None:
    broker = kube.get(f"brokers.{GROUP}", BROKER)
    is_new = pick(broker, "status", "instanceId") not in (None, instance)
    declared = cast("int", pick(broker, "status", "subscriptions") or 0)
    ready = all(kube.is_true(f"subscriptions.{GROUP}", name, "Ready") for name in SUBSCRIPTIONS)
    return True if is_new and declared == len(SUBSCRIPTIONS) and ready else None
