"""Faults of a real node under a flow of messages, and what has to hold: everything converges within a minute after a
fault has ended, nothing accepted is lost, no finalizer is stuck, no Event is told over and over.

Each scenario is a function of a site and a namespace in which examples/kubernetes/whole.yaml is Ready.
`hack/soak/chaos` runs them all; the cluster stage those that are short.
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
from support.installed_operator import MINUTE, Site, Team

__all__ = ["SCENARIOS", "Scenario"]

Scenario = Callable[[Site, Team], None]

BURST: Final = 100
KILLS: Final = 4


def count_of(team: Team, mark: str) -> int:
    """Subscriptions whose name begins so."""
    return team.kube.kubectl("get", "subscriptions", "-o", "name").count(f"/{mark}")


def operator_killed(site: Site, team: Team) -> None:
    """The operator is killed in the middle of a hundred applies, and in the middle of as many deletions."""
    names = [f"many-{number:03}" for number in range(BURST)]
    with flowing(url(team)) as load:
        applying = Meanwhile(lambda: team.apply(*subscriptions(names)))
        wait_for("some Subscriptions", lambda: count_of(team, "many-") >= BURST // 4, MINUTE)
        kill_operator(site)
        load.flows()
        applying.done()
        converges(team, names)
        deleting = Meanwhile(lambda: _delete(team, names[: BURST // 2]))
        wait_for("some deletions", lambda: count_of(team, "many-") < BURST - BURST // 10, MINUTE)
        kill_operator(site)
        deleting.done()
        converges(team, names[BURST // 2 :])
        _delete(team, names[BURST // 2 :])
        converges(team)


def _delete(team: Team, names: Sequence[str]) -> None:
    team.kube.kubectl("delete", "subscription", *names, "--wait=false")


def broker_killed(site: Site, team: Team) -> None:
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


def observer_killed(site: Site, team: Team) -> None:
    """The observer is killed: nobody but who asks it notices."""
    restarts = restarts_of(team, "broker")
    with flowing(url(team)) as load:
        for _ in range(2):
            kill(team, "main-0", "observer")
            load.flows()
        converges(team)
        assert load.reconnects == 0, load.last_problem
    assert restarts_of(team, "broker") == restarts


def api_server_away(site: Site, team: Team, seconds: float = MINUTE) -> None:
    """There is no API server for a minute: messages flow, and afterwards all is as before without a restart."""
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


def kubelet_restarted(site: Site, team: Team) -> None:
    """Kubelet and the container runtime die and come back: pods run on."""
    uid = team.field("pod", "main-0", "metadata", "uid")
    with flowing(url(team)) as load:
        for daemon in ("kubelet", "containerd", "kubelet"):
            _restart(daemon)
            load.flows()
        converges(team, seconds=2 * MINUTE)
        assert load.reconnects == 0, load.last_problem
    assert team.field("pod", "main-0", "metadata", "uid") == uid


def secrets_lost(site: Site, team: Team) -> None:
    """The server's certificate and the management's password are deleted, and made anew, under load."""
    with flowing(url(team)) as load:
        for name in ("main-amqp", "main-management"):
            before = team.field("secret", name, "metadata", "uid")
            team.kube.kubectl("delete", "secret", name)
            wait_for(f"another {name}", lambda name=name, before=before: _is_another(team, name, before), MINUTE)  # type: ignore[misc]
        load.flows()
        converges(team, seconds=3 * MINUTE)  # kubelet brings a new Secret to the pod within a minute or two
        assert load.reconnects == 0, load.last_problem


def _is_another(team: Team, name: str, before: object) -> bool:
    return team.field("secret", name, "metadata", "uid") not in (None, before)


def type_changed(site: Site, team: Team) -> None:
    """Another type of an Exchange is refused; replaced by force, it waits for its Subscriptions, and then holds."""
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


def two_operators(site: Site, team: Team) -> None:
    """A second operator over the same namespaces: they agree, and write nothing once all is as it has to be."""
    before = told(team)
    uid = team.field("pod", "main-0", "metadata", "uid")
    deployment = f"deployment/{site.release}-penstock-operator"
    text = site.home.kubectl("get", deployment, "-o", "yaml")
    second = yaml.safe_load(text)
    second["metadata"] = {"name": "second", "namespace": site.home.namespace}
    second["spec"]["selector"]["matchLabels"]["second"] = "true"
    second["spec"]["template"]["metadata"]["labels"]["second"] = "true"
    second.pop("status")
    with flowing(url(team)) as load:
        try:
            site.home.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(second))
            site.home.kubectl("rollout", "status", "deployment/second", "--timeout=120s")
            names = [f"both-{number}" for number in range(20)]
            team.apply(*subscriptions(names))
            converges(team, names)
            team.kube.kubectl("delete", "subscription", *names)
            converges(team)
            versions = _versions(team)
            load.flows(500)
            assert _versions(team) == versions, "they write against each other"
        finally:
            site.home.kubectl("delete", "deployment", "second", "--ignore-not-found", "--wait")
    assert team.field("pod", "main-0", "metadata", "uid") == uid
    no_spam(before, told(team))


def _versions(team: Team) -> dict[str, str]:
    kinds = "subscriptions,exchanges,statefulsets,services,secrets"
    listed = cast("list[Any]", pick(team.kube.get(kinds), "items") or [])
    return {f"{it['kind']} {it['metadata']['name']}": it["metadata"]["resourceVersion"] for it in listed}


def namespace_deleted(site: Site, team: Team) -> None:
    """The namespace goes with everything in it, under load, with a broker that is killed meanwhile."""
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


def operator_exchanged(site: Site, team: Team) -> None:
    """The operator's chart is upgraded, rolled back, uninstalled and installed again: nothing of the Brokers moves."""
    uid = team.field("pod", "main-0", "metadata", "uid")
    with flowing(url(team)) as load:
        site.install(resyncSeconds="30", logLevel="debug")
        site.home.helm("rollback", site.release, "--namespace", site.home.namespace, "--wait", "--timeout=120s")
        converges(team)
        site.home.helm("uninstall", site.release, "--namespace", site.home.namespace, "--wait")
        team.apply(*subscriptions(["meanwhile"]))
        _delete(team, ["fraud"])
        load.flows()
        assert team.reason("subscription", "meanwhile", "Ready") == ("Unknown", "Pending")
        assert team.field("subscription", "fraud", "metadata", "deletionTimestamp") is not None
        site.install()
        wait_for("fraud to go", lambda: team.kube.get("subscription", "fraud") is None, MINUTE)
        team.apply_whole()
        converges(team, ["meanwhile"])
        team.kube.kubectl("delete", "subscription", "meanwhile")
        assert load.reconnects == 0, load.last_problem
    assert team.field("pod", "main-0", "metadata", "uid") == uid


def lag_run_killed(site: Site, team: Team) -> None:
    """A run of the lag job is killed in the middle: messages flow, the next run reports."""
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
    patch = json.dumps({"spec": {"lagAnalysis": {"suspend": suspend, "intervalMinutes": 1}}})
    team.kube.kubectl("patch", "broker", "main", "--type=merge", "--patch", patch)


def _driver(team: Team, but: str) -> str | None:
    """The running driver pod of a lag job, another than `but`."""
    listed = cast("list[Any]", pick(team.kube.get("pods", "-l", "spark-role=driver"), "items") or [])
    running = (each["metadata"]["name"] for each in listed if each["status"].get("phase") == "Running")
    return next((name for name in running if name != but), None)


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
    "namespace-deleted": namespace_deleted,
}
"""By name, in the order in which they run."""
