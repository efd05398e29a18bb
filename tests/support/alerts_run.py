"""Each alert of the chart, fired on a real node by causing its cause, and seen by a real Prometheus.

Prometheus scrapes with the jobs of examples/kubernetes/monitoring/prometheus.yaml and evaluates the rules of the chart.
So that this does not take an hour and a half, every duration is divided by the same number: the `for` of an alert, the
seconds in an expression, the time between two lists of the operator. tests/charts/alerts_test.yaml tests the durations
themselves. Needs the node of hack/cluster, root, and a Prometheus on the PATH.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import yaml
from e2e.kube import ROOT, pick, wait_for
from e2e.story import StoryError
from support.alert_causes import BROKER_ALERTS, Scene, cause_on_brokers, scene_of
from support.installed_operator import MINUTE, Installation
from support.operator_alert_causes import OPERATOR_CAUSES
from support.pod_targets import discovered
from support.prometheus_server import ask, prometheus

__all__ = ["NOT_CAUSED", "hurried", "play"]

RULES: Final = ROOT / "helm/penstock-operator/files/rules.yaml"
EXAMPLE: Final = ROOT / "examples/kubernetes/monitoring/prometheus.yaml"
NOT_CAUSED: Final = {"PenstockBrokerStuck": "a fault of the broker, which nothing from outside can cause"}
NAMES_NOTHING: Final = ("PenstockOperatorGone",)
"""It counts operators, and none is left."""
CALM: Final = "psub:durable:global:calm"
"""The queue of a subscription with which all is well: no alert may name it."""
LIST_SECONDS: Final = 120
"""How often the operator lists by default."""
SCRAPE_SECONDS: Final = 5
SELDOM_SECONDS: Final = 45
"""For the observer that stands still for most of the time: a scrape that waits for it succeeds."""
PATIENCE: Final = 15 * MINUTE
UNITS: Final = {"s": 1, "m": 60, "h": 3600}

Say = Callable[[str], None]


def hurried(rules: Mapping[str, Any], times: int) -> dict[str, Any]:
    """Rules whose durations are so many times shorter. The windows of rates stay, and so do other numbers."""
    groups: list[dict[str, Any]] = []
    for group in rules["groups"]:
        made = [dict(rule) for rule in group["rules"]]
        for rule in made:
            if "for" in rule:
                seconds = int(rule["for"][:-1]) * UNITS[rule["for"][-1]]
                rule["for"] = f"{seconds // times}s"
            rule["expr"] = re.sub(r"(?<=> )\d{3,}$", lambda found: str(int(found[0]) // times), rule["expr"].strip())
        groups.append({**group, "rules": made, "interval": f"{SCRAPE_SECONDS}s"})
    return {"groups": groups}


def _scrape_jobs(scene: Scene) -> list[dict[str, Any]]:
    """The jobs of the example for each Broker of the scene and for the operator. Not every Prometheus is built with the
    discovery of Kubernetes (Debian's is not): `_discover` writes what it would find.
    """
    broker, operator = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))["scrape_configs"]
    jobs: list[dict[str, Any]] = []
    for name, team in scene.teams.items():
        mounted = scene.work / f"{name}-scrape"
        mounted.mkdir()
        for key in ("token", "ca.crt"):
            (mounted / key).write_text(team.kube.secret("main-observer-scrape", key) or "")
        text = yaml.safe_dump(broker).replace("/etc/penstock/shop-main", str(mounted))
        job = yaml.safe_load(text.replace("main-observer.shop.svc", f"main-observer.{team.kube.namespace}.svc"))
        seldom = {"scrape_interval": f"{SELDOM_SECONDS}s", "scrape_timeout": f"{SELDOM_SECONDS}s"}
        jobs.append({**job, "job_name": name, **(seldom if name == "unsure" else {})})
    jobs.append({**operator, "job_name": "operator"})
    for job in jobs:
        del job["kubernetes_sd_configs"]
        files = [str(_targets_of(scene, job["job_name"]))]
        job["file_sd_configs"] = [{"files": files, "refresh_interval": f"{SCRAPE_SECONDS}s"}]
    return jobs


def _targets_of(scene: Scene, name: str) -> Path:
    return scene.work / f"{name}-targets.json"


def _discover(scene: Scene) -> None:
    """Write the targets of every job, as the discovery of Kubernetes finds them, until the scene ends."""
    while True:
        for name in (*scene.teams, "operator"):
            kube = scene.installation.home if name == "operator" else scene.teams[name].kube
            try:
                pods = cast("list[Any]", pick(kube.get("pods"), "items") or [])
            except StoryError:  # the API server is busy; what was found stays
                continue
            found = [target for pod in pods for target in _targets(pod)]
            new = scene.work / f"{name}-targets.new"
            new.write_text(json.dumps(found))
            new.rename(_targets_of(scene, name))
        if scene.stop.wait(SCRAPE_SECONDS):
            return


def _targets(pod: Any) -> Iterator[dict[str, Any]]:
    """Each port of a pod that has an address, as a file of targets has it."""
    about, address = pod["metadata"], pick(pod, "status", "podIP")
    if address:
        for labels in discovered(pod, about["namespace"], about["name"]):
            yield {"targets": [f"{address}:{labels['__meta_kubernetes_pod_container_port_number']}"], "labels": labels}


@dataclass(slots=True)
class Watch:
    """What fires, as Prometheus says, and what has fired."""

    address: str
    say: Say
    began: float = field(default_factory=time.monotonic)
    fired: dict[str, list[dict[str, str]]] = field(default_factory=dict[str, list[dict[str, str]]])
    """By alert: its labels, each once."""

    def look(self) -> None:
        """Ask Prometheus, and tell what fires for the first time. Raises OSError."""
        for alert in ask(self.address, "alerts")["alerts"]:
            labels = dict(alert["labels"])
            known = self.fired.setdefault(labels["alertname"], []) if alert["state"] == "firing" else None
            if known is not None and labels not in known:
                known.append(labels)
                self.say(
                    f"{time.monotonic() - self.began:5.0f} s: {labels['alertname']}: {alert['annotations']['summary']}"
                )

    def names(self, alert: str, namespace: str) -> bool:
        """Whether the alert has fired for something in this namespace; or at all, if it can't name anything."""
        self.look()
        found = self.fired.get(alert, [])
        places = ({labels[key] for key in ("broker_namespace", "namespace") if key in labels} for labels in found)
        return any(namespace in place or alert in NAMES_NOTHING for place in places)


def play(installation: Installation, work: Path, times: int, say: Say) -> list[str]:
    """Cause every alert; a line for each that did not fire for what was caused, or that fired for what is well."""
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    installation.install(resyncSeconds=str(LIST_SECONDS // times))
    with scene_of(installation, work) as scene:
        cause_on_brokers(scene)
        say("every cause on a broker has begun")
        with _watching(scene, rules, times, say) as watch:
            faults = [
                fault
                for each in BROKER_ALERTS
                if (fault := _awaited(watch, each, scene.namespace(BROKER_ALERTS[each])))
            ]
            for alert, cause in OPERATOR_CAUSES.items():
                where = scene.namespace("operator" if alert != "PenstockNodeLost" else "shop")
                say(f"{time.monotonic() - watch.began:5.0f} s: {(cause.__doc__ or '').strip()}")
                with cause(installation):
                    faults += [fault for fault in [_awaited(watch, alert, where)] if fault]
            listed = {rule["alert"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule}
            faults += [f"{name} was neither caused nor is it known why not" for name in listed - _known()]
            for name, found in watch.fired.items():
                faults += [f"{name} fired for what is well: {labels}" for labels in found if CALM in labels.values()]
            return faults + scene.failures


def _known() -> set[str]:
    return {*BROKER_ALERTS, *OPERATOR_CAUSES, *NOT_CAUSED}


@contextmanager
def _watching(scene: Scene, rules: Mapping[str, Any], times: int, say: Say) -> Generator[Watch]:
    written = scene.work / "rules.yaml"
    written.write_text(yaml.safe_dump(hurried(rules, times)))
    every = {"scrape_interval": f"{SCRAPE_SECONDS}s", "scrape_timeout": f"{SCRAPE_SECONDS}s"}
    settings = {
        "global": {**every, "evaluation_interval": f"{SCRAPE_SECONDS}s"},
        "rule_files": [str(written)],
        "scrape_configs": _scrape_jobs(scene),
    }
    scene.meanwhile(partial(_discover, scene))
    with prometheus(scene.work, settings) as address:
        yield Watch(address, say)


def _awaited(watch: Watch, alert: str, namespace: str) -> str:
    """Empty once the alert has fired for this namespace; else what is wrong."""
    try:
        wait_for(alert, lambda: watch.names(alert, namespace), PATIENCE)
    except TimeoutError:
        return f"{alert} has not fired for {namespace} within {PATIENCE / MINUTE:.0f} minutes"
    return ""
