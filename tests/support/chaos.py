"""Faults of a real node while messages flow, and what must hold: everything converges within a minute after the fault
has ended, no accepted message is lost, no finalizer stays, and no Event is repeated again and again.

Each scenario is a function of an installation and of a namespace in which the resources of
examples/kubernetes/whole.yaml are Ready. `hack/soak/chaos` runs all scenarios, the cluster stage the short ones.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import yaml
from e2e.kube import command, pick, wait_for
from support.chaos_checks import (
    Meanwhile,
    converges,
    kill,
    kill_operator,
    no_spam,
    restarts_of,
    subscriptions,
    told,
    url,
)
from support.chaos_load import Load, flowing
from support.installed_operator import MINUTE, Installation, Team

__all__ = ["SCENARIOS", "Scenario"]

Scenario = Callable[[Installation, Team], None]

BURST: Final = 100
KILLS: Final = 4


def count_of(team: Team, mark: str) -> int:
    """The number of Subscriptions whose names begin with `mark`."""
    return team.kube.kubectl("get", "subscriptions", "-o", "name").count(f"/{mark}")


def operator_killed(installation: Installation, team: Team) -> None:
    """The operator is killed in the middle of a hundred applies, and in the middle of as many deletions."""
    names = [f"many-{number:03}" for number in range(BURST)]
    with flowing(url(team)) as load:
        applying = Meanwhile(lambda: team.apply(*subscriptions(names)))
        wait_for("some Subscriptions", lambda: count_of(team, "many-") >= BURST // 4, MINUTE)
        kill_operator(installation)
        load.flows()
        applying.done()
        converges(team, names)
        deleting = Meanwhile(lambda: _delete(team, names[: BURST // 2]))
        wait_for("some deletions", lambda: count_of(team, "many-") < BURST - BURST // 10, MINUTE)
        kill_operator(installation)
        deleting.done()
        converges(team, names[BURST // 2 :])
        _delete(team, names[BURST // 2 :])
        converges(team)


def _delete(team: Team, names: Sequence[str]) -> None:
    team.kube.kubectl("delete", "subscription", *names, "--wait=false")


def broker_killed(installation: Installation, team: Team) -> None:
    """The broker is killed again and again while Subscriptions are made, changed and deleted."""
    with flowing(url(team)) as load:
        for number in range(KILLS):
            names = [f"kill-{number}-{each}" for each in range(10)]
            team.apply(*subscriptions(names))
            kill(team, "main-0", "broker")
            team.apply(*subscriptions(names[5:], bindingKeys=["changed.#"]))
            _delete(team, names[:5])
            load.flows()
            converges(team, [f"kill-{each}-{other}" for each in range(number + 1) for other in range(5, 10)])
        team.kube.kubectl("delete", "subscription", *(f"kill-{n}-{m}" for n in range(KILLS) for m in range(5, 10)))
        converges(team)


def observer_killed(installation: Installation, team: Team) -> None:
    """The observer is killed: only those who read from it notice."""
    restarts = restarts_of(team, "broker")
    with flowing(url(team)) as load:
        for _ in range(2):
            kill(team, "main-0", "observer")
            load.flows()
        converges(team)
        assert load.reconnects == 0, load.last_problem
    assert restarts_of(team, "broker") == restarts


def api_server_away(installation: Installation, team: Team, seconds: float = MINUTE) -> None:
    """There is no API server for a minute: messages flow on, and afterwards all is as before, without a restart."""
    before = told(team)
    restarts = restarts_of(team, "broker")
    with flowing(url(team)) as load:
        away = Meanwhile(lambda: _restart("kube-apiserver", seconds))
        load.flows(200)
        away.done()
        wait_for("the API server", lambda: command("hack/cluster", "status", check=False), MINUTE)
        wait_for("it to list", lambda: team.kube.kubectl("get", "brokers", check=False), MINUTE)
        team.apply(*subscriptions(["after"]))
        converges(team, ["after"])
        assert load.reconnects == 0, load.last_problem
        team.kube.kubectl("delete", "subscription", "after")
    assert restarts_of(team, "broker") == restarts
    no_spam(before, told(team))


def _restart(daemon: str, away: float = 0) -> None:
    command("hack/cluster", "restart", daemon, f"--away={away}")


def kubelet_restarted(installation: Installation, team: Team) -> None:
    """Kubelet and the container runtime are killed and start again: the pods run on."""
    uid = team.field("pod", "main-0", "metadata", "uid")
    with flowing(url(team)) as load:
        for daemon in ("kubelet", "containerd", "kubelet"):
            _restart(daemon)
            load.flows()
        converges(team, seconds=2 * MINUTE)
        assert load.reconnects == 0, load.last_problem
    assert team.field("pod", "main-0", "metadata", "uid") == uid


def secrets_lost(installation: Installation, team: Team) -> None:
    """The Secrets of server certificate and management password are deleted, and created again, under load."""
    with flowing(url(team)) as load:
        for name in ("main-amqp", "main-management"):
            before = team.field("secret", name, "metadata", "uid")
            team.kube.kubectl("delete", "secret", name)
            wait_for(f"another {name}", lambda name=name, before=before: _is_another(team, name, before), 3 * MINUTE)  # type: ignore[misc]
        load.flows()
        converges(team, seconds=3 * MINUTE)  # kubelet brings a new Secret to the pod within a minute or two
        assert load.reconnects == 0, load.last_problem


def _is_another(team: Team, name: str, before: object) -> bool:
    return team.field("secret", name, "metadata", "uid") not in (None, before)


def type_changed(installation: Installation, team: Team) -> None:
    """A change of the type of an Exchange is refused; a forced replacement waits for its Subscriptions, then holds."""
    changed = {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "Exchange",
        "metadata": {"name": "other"},
        "spec": {"brokerRef": {"name": "main"}, "type": "Direct"},
    }
    team.apply(changed, *subscriptions(["bound"], exchangeRef={"name": "other"}, bindingKeys=["a"]))
    converges(team, ["bound"])
    patch = json.dumps({"spec": {"type": "Fanout"}})
    said = command(
        "sh", "-c", f"kubectl -n {team.kube.namespace} patch exchange other --type=merge -p '{patch}' 2>&1 || true",
        env=team.kube.environment,
    )  # fmt: skip
    assert "immutable" in said, said
    team.kube.kubectl("delete", "exchange", "other", "--wait=false")
    wait_for(
        "the Exchange to wait for its Subscription",
        lambda: team.reason("exchange", "other", "DeletionBlocked") == ("True", "BindingsExist"),
        MINUTE,
    )
    team.kube.kubectl("delete", "subscription", "bound")
    team.kube.kubectl("wait", "--for=delete", "exchange/other", "--timeout=60s")
    spec = cast("dict[str, Any]", changed["spec"])
    team.apply(
        {**changed, "spec": {**spec, "type": "Fanout"}}, *subscriptions(["bound"], exchangeRef={"name": "other"})
    )
    converges(team, ["bound"])
    team.kube.kubectl("delete", "subscription/bound", "exchange/other")
    converges(team)


def two_operators(installation: Installation, team: Team) -> None:
    """A second operator watches the same namespaces: they agree, and write nothing once all is as declared."""
    before = told(team)
    uid = team.field("pod", "main-0", "metadata", "uid")
    deployment = f"deployment/{installation.release}-penstock-operator"
    text = installation.home.kubectl("get", deployment, "-o", "yaml")
    second = yaml.safe_load(text)
    second["metadata"] = {"name": "second", "namespace": installation.home.namespace}
    second["spec"]["selector"]["matchLabels"]["second"] = "true"
    second["spec"]["template"]["metadata"]["labels"]["second"] = "true"
    second.pop("status")
    with flowing(url(team)) as load:
        try:
            installation.home.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(second))
            installation.home.kubectl("rollout", "status", "deployment/second", "--timeout=120s")
            names = [f"both-{number}" for number in range(20)]
            team.apply(*subscriptions(names))
            converges(team, names)
            team.kube.kubectl("delete", "subscription", *names)
            converges(team)
            versions = _versions(team)
            load.flows(500)
            assert _versions(team) == versions, "they write against each other"
        finally:
            installation.home.kubectl("delete", "deployment", "second", "--ignore-not-found", "--wait")
    assert team.field("pod", "main-0", "metadata", "uid") == uid
    no_spam(before, told(team))


def _versions(team: Team) -> dict[str, str]:
    kinds = "subscriptions,exchanges,statefulsets,services,secrets"
    listed = cast("list[Any]", pick(team.kube.get(kinds), "items") or [])
    return {f"{it['kind']} {it['metadata']['name']}": it["metadata"]["resourceVersion"] for it in listed}


def namespace_deleted(installation: Installation, team: Team) -> None:
    """A namespace is deleted with everything in it, under load, and its broker is killed meanwhile."""
    load = Load(url(team))
    threads = [threading.Thread(target=work, daemon=True) for work in (load.publish, load.consume)]
    for thread in threads:
        thread.start()
    load.flows()
    team.apply(*subscriptions([f"gone-{number}" for number in range(30)]))
    started = time.monotonic()
    team.kube.kubectl("delete", "namespace", team.kube.namespace, "--wait=false")
    load.stop()
    team.kube.kubectl("wait", "--for=delete", f"namespace/{team.kube.namespace}", "--timeout=120s")
    assert time.monotonic() - started < 2 * MINUTE


def operator_exchanged(installation: Installation, team: Team) -> None:
    """The operator's chart is upgraded, rolled back, removed and installed again: objects of Brokers do not change."""
    uid = team.field("pod", "main-0", "metadata", "uid")
    with flowing(url(team)) as load:
        installation.install(resyncSeconds="30", logLevel="debug")
        installation.home.helm(
            "rollback", installation.release, "--namespace", installation.home.namespace, "--wait", "--timeout=120s"
        )
        converges(team)
        installation.home.helm("uninstall", installation.release, "--namespace", installation.home.namespace, "--wait")
        team.apply(*subscriptions(["meanwhile"]))
        _delete(team, ["fraud"])
        load.flows()
        assert team.reason("subscription", "meanwhile", "Ready") == ("Unknown", "Pending")
        assert team.field("subscription", "fraud", "metadata", "deletionTimestamp") is not None
        installation.install()
        wait_for("fraud to go", lambda: team.kube.get("subscription", "fraud") is None, MINUTE)
        team.apply_whole()
        converges(team, ["meanwhile"])
        team.kube.kubectl("delete", "subscription", "meanwhile")
        assert load.reconnects == 0, load.last_problem
    assert team.field("pod", "main-0", "metadata", "uid") == uid


def lag_run_killed(installation: Installation, team: Team) -> None:
    """A run of the lag job is killed: messages flow, and the next run reports."""
    _patch_lag(team, suspend=False)
    try:
        with flowing(url(team)) as load:
            driver = str(wait_for("a driver", lambda: _driver(team, ""), 4 * MINUTE))
            team.kube.kubectl("delete", "pod", driver, "--force", "--grace-period=0")
            load.flows()
            wait_for("another run", lambda: _driver(team, driver), 4 * MINUTE)
            wait_for("its report", lambda: team.field("subscription", "billing", "status", "lag"), 5 * MINUTE)
            converges(team)
            assert load.reconnects == 0, load.last_problem
    finally:
        _patch_lag(team, suspend=True)


def _patch_lag(team: Team, *, suspend: bool) -> None:
    patch = json.dumps(
        {"spec": {"lagAnalysis": {"backend": "ScheduledSparkApplication", "suspend": suspend, "intervalMinutes": 1}}}
    )
    team.kube.kubectl("patch", "broker", "main", "--type=merge", "--patch", patch)


def _driver(team: Team, but: str) -> str | None:
    """The running driver pod of a lag job, other than `but`."""
    listed = cast("list[Any]", pick(team.kube.get("pods", "-l", "spark-role=driver"), "items") or [])
    running = (each["metadata"]["name"] for each in listed if each["status"].get("phase") == "Running")
    return next((name for name in running if name != but), None)


def executor_killed(installation: Installation, team: Team) -> None:
    """An executor of the operator's lag job is killed: the run goes on with another one, and its result arrives."""
    installation.install(**{"lag.executors.instances": "1", "lag.executors.memory": "512m", "lag.intervalMinutes": "3"})
    try:
        team.kube.kubectl("patch", "broker", "main", "--type=merge", "--patch", _lag({"suspend": False}))
        with flowing(url(team)) as load:
            first = wait_for("a first result", lambda: _newest_run(team), 10 * MINUTE)
            executor = wait_for("an executor of another run", lambda: _executor(installation, first), 10 * MINUTE)
            installation.home.kubectl("delete", "pod", executor, "--force", "--grace-period=0")
            run = executor[: executor.rindex("-exec-")].rpartition("-")[0]
            wait_for(f"the result of {run}", lambda: _newest_run(team) == run, 10 * MINUTE)
            assert load.reconnects == 0, load.last_problem
    finally:
        team.kube.kubectl("patch", "broker", "main", "--type=merge", "--patch", _lag({"suspend": True}))
        installation.install()


def spark_away(installation: Installation, team: Team) -> None:
    """The Spark operator's kinds vanish and come back: the lag job is a CronJob meanwhile, and never both."""
    kinds = ["scheduledsparkapplications.sparkoperator.k8s.io", "sparkapplications.sparkoperator.k8s.io"]
    job = f"{installation.release}-lag"
    crds = cast("dict[str, Any]", installation.home.get("crd", *kinds))
    team.kube.kubectl("patch", "broker", "main", "--type=merge", "--patch", _lag({"suspend": False}))
    try:
        wait_for("the Spark operator's", lambda: _scheduled_by(team) == "ScheduledSparkApplication", 2 * MINUTE)
        try:
            installation.home.kubectl("delete", "crd", *kinds, "--timeout=60s")
            wait_for("the CronJob", lambda: _scheduled_by(team) == "CronJob", 3 * MINUTE)
            assert installation.home.get("cronjob", job) is not None
        finally:
            installation.home.kubectl("create", "-f", "-", stdin=json.dumps(_anew(crds)))
            # As an installation does: its webhook does not start without its kinds.
            for verb in ("restart", "status"):
                installation.home.kubectl("rollout", verb, "deployment", "--namespace=spark-operator")
        wait_for("the Spark operator's again", lambda: _scheduled_by(team) == "ScheduledSparkApplication", 3 * MINUTE)
        wait_for("the CronJob to go", lambda: installation.home.get("cronjob", job) is None, 2 * MINUTE)
        converges(team)
    finally:
        team.kube.kubectl("patch", "broker", "main", "--type=merge", "--patch", _lag({"suspend": True}))


def _lag(analysis: dict[str, object]) -> str:
    return json.dumps({"spec": {"lagAnalysis": analysis}})


def _newest_run(team: Team) -> str | None:
    """The run of which the operator has read a result last."""
    found = team.field("broker", "main", "status", "lagAnalysis", "lastRunName")
    return None if found is None else str(found)


def _executor(installation: Installation, but_of: str) -> str | None:
    """A running executor pod of the operator's lag job, of another run."""
    listed = cast("list[Any]", pick(installation.home.get("pods", "-l", "spark-role=executor"), "items") or [])
    running = (each["metadata"]["name"] for each in listed if each["status"].get("phase") == "Running")
    return next((name for name in running if not name.startswith(f"{but_of}-")), None)


def _scheduled_by(team: Team) -> str:
    """The kind of the schedule of the lag job as the Broker's condition says it; empty while none runs."""
    if team.reason("broker", "main", "LagAnalysisScheduled")[0] != "True":
        return ""
    return team.message("broker", "main", "LagAnalysisScheduled").partition(" ")[0]


def _anew(listed: dict[str, Any]) -> dict[str, Any]:
    """Objects of a list as they are to be made again."""
    for each in listed["items"]:
        each.pop("status", None)
        about = each["metadata"]
        each["metadata"] = {key: about[key] for key in ("name", "labels", "annotations") if key in about}
    return listed


SCENARIOS: Final[dict[str, Scenario]] = {
    "operator-killed": operator_killed,
    "broker-killed": broker_killed,
    "observer-killed": observer_killed,
    "api-server-away": api_server_away,
    "kubelet-restarted": kubelet_restarted,
    "secrets-lost": secrets_lost,
    "type-changed": type_changed,
    "two-operators": two_operators,
    "operator-exchanged": operator_exchanged,
    "lag-run-killed": lag_run_killed,
    "executor-killed": executor_killed,
    "spark-away": spark_away,
    "namespace-deleted": namespace_deleted,
}
"""By name, in the order in which they run."""
