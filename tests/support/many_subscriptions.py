"""Very many Subscriptions on one Broker of a real node: how long they take, and what they cost when nothing changes.

The figures of the API server are its own metrics; those of the operator are what the kernel says of its process, and
the gauges that it serves. Needs the node of hack/cluster, and root.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

from e2e import node_processes
from e2e.kube import pick, wait_for
from support.chaos_checks import subscriptions
from support.installed_operator import MINUTE, Installation, Team

from penstock_amqp.client.errors import ManagementError
from penstock_amqp.sasl.client import NotAuthenticated
from penstock_api.management import EntityType
from penstock_operator.cluster.api_server_http import HttpApiServer

__all__ = ["Report", "measure"]

CREATORS: Final = 32
PATIENCE: Final = 60 * MINUTE
RESTART_SECONDS: Final = 2.5 * MINUTE
"""Until a started operator has made its second list."""
HEALED_SECONDS: Final = 30
OTHERS: Final = 3
"""Subscriptions of examples/kubernetes/whole.yaml."""


@dataclass(slots=True)
class Report:
    """Lines to print, and what was not as it has to be."""

    say: Callable[[str], None]
    failures: list[str] = field(default_factory=list[str])

    def check(self, holds: bool, text: str) -> None:
        """Print the line; it is a failure unless it holds."""
        self.say(text if holds else f"{text}  FAILED")
        if not holds:
            self.failures.append(text)


def measure(installation: Installation, team: Team, count: int, idle_seconds: float, report: Report) -> None:
    """Do and measure everything, in a namespace with a Broker that is Ready. Raises TimeoutError."""
    operator = OperatorProcess(installation)
    began = time.monotonic()
    created = asyncio.run(_create(installation, team, count))
    report.say(f"the API server has taken {count} Subscriptions in {created:.0f} s ({count / created:.0f} a second)")
    wait_for("all to be Ready", lambda: _ready(operator) >= count + OTHERS, PATIENCE)
    report.say(f"all of them are Ready {time.monotonic() - began:.0f} s after the first was applied")
    # Else a new operator would have these to write.
    wait_for("their number in the status of Broker and Exchange", lambda: _counted(team) >= count, 5 * MINUTE)
    report.say(f"their number is in the status of Broker and Exchange after {time.monotonic() - began:.0f} s")
    report.say(f"the operator: {operator.usage()}")

    _restart(installation, team, count, report)
    operator = OperatorProcess(installation)
    busy, used = _idle(installation, operator, idle_seconds)
    report.say(
        f"idle, {idle_seconds / MINUTE:g} minutes: the API server answers {sum(busy.values()):.1f} requests a second"
    )
    report.say("  of these: " + ", ".join(f"{name} {rate:.2f}" for name, rate in busy.most_common(8)))
    report.say(f"  the operator: {operator.usage()}; {used:.1f} % of a core")
    installation.scale_operator(0)
    alone, _ = _idle(installation, None, idle_seconds / 2)
    report.say(f"without the operator: {sum(alone.values()):.1f} requests a second")
    installation.scale_operator(1)
    wait_for("all to be Ready", lambda: _ready(OperatorProcess(installation)) >= count + OTHERS, PATIENCE)
    _pass("the work of its start to end", RESTART_SECONDS)

    _wipe(team, OperatorProcess(installation), count, report)


async def _create(installation: Installation, team: Team, count: int) -> float:
    """Seconds in which the API server took them all."""
    api = await HttpApiServer.connect(installation.home.environment["KUBECONFIG"])
    manifests = subscriptions([f"many-{number:05}" for number in range(count)])
    waiting = iter(manifests)

    async def create() -> None:
        for manifest in waiting:
            manifest["metadata"]["namespace"] = team.kube.namespace
            await api.apply(manifest)

    began = time.monotonic()
    try:
        await asyncio.gather(*(create() for _ in range(CREATORS)))
    finally:
        await api.close()
    return time.monotonic() - began


class OperatorProcess:
    """The operator's process, as kernel and metrics show it."""

    def __init__(self, installation: Installation) -> None:
        pod = wait_for("the operator's pod", lambda: _running_pod(installation), 5 * MINUTE)
        self._address = str(pick(pod, "status", "podIP"))
        uid = str(pick(pod, "metadata", "uid"))
        self._pid = wait_for("its process", lambda: node_processes.of_container(uid, "operator"), MINUTE)

    def metrics(self) -> str:
        """What it serves."""
        with urllib.request.urlopen(f"http://{self._address}:8080/metrics", timeout=60) as answer:
            return str(answer.read().decode())

    def cpu_seconds(self) -> float:
        """Processor time since its start."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def usage(self) -> str:
        """Memory and processor time, in words."""
        status = Path(f"/proc/{self._pid}/status").read_text()
        now, most = (_kib(status, name) / 1024 for name in ("VmRSS", "VmHWM"))
        return f"{now:.0f} MiB resident, at most {most:.0f} MiB; {self.cpu_seconds():.0f} s of processor time"


def _kib(status: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1])


def _running_pod(installation: Installation) -> Any:
    pods = cast("list[Any]", pick(installation.home.get("pods"), "items") or [])
    ready = (pod for pod in pods if pick(pod, "status", "containerStatuses", 0, "ready") is True)
    return next((pod for pod in ready if pick(pod, "metadata", "deletionTimestamp") is None), None)


def _ready(operator: OperatorProcess) -> int:
    """How many Subscriptions have Ready=True, as the operator's gauge says."""
    try:
        text = operator.metrics()
    except OSError:
        return 0
    labels = 'kind="Subscription",status="True",type="Ready"'
    found = re.search(rf"^penstock_resource_conditions\{{{labels}\}} (\S+)$", text, re.MULTILINE)
    return 0 if found is None else int(float(found[1]))


def _counted(team: Team) -> int:
    """How many subscriptions the status of the Broker and that of the Exchange show; the smaller of both."""
    shown = team.field("broker", "main", "status", "subscriptions")
    bound = team.field("exchange", "orders", "status", "boundSubscriptions")
    return min(int(shown or 0), int(bound or 0))


def _restart(installation: Installation, team: Team, count: int, report: Report) -> None:
    """A new operator finds everything as it should be: it must write nothing."""
    installation.scale_operator(0)
    at = datetime.now(UTC)
    installation.scale_operator(1)
    operator = OperatorProcess(installation)
    wait_for("all to be Ready", lambda: _ready(operator) >= count + OTHERS, PATIENCE)
    report.say(
        f"a new operator has read all {(datetime.now(UTC) - at).total_seconds():.0f} s after its start was asked for"
    )
    _pass("its second list", RESTART_SECONDS)
    written = _written_since(team, at)
    mine = written["penstock-operator"]
    report.check(not mine, f"since then it has written {len(mine)} objects{''.join(f' {each}' for each in mine[:8])}")
    report.say(f"  and the lag of {len(written['penstock-lag'])} Subscriptions; {operator.usage()}")


def _pass(what: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    wait_for(what, lambda: time.monotonic() > until, seconds + MINUTE)


def _written_since(team: Team, at: datetime) -> dict[str, list[str]]:
    """Objects by the field manager that has changed them since then; the API server records the second."""
    found: dict[str, list[str]] = {"penstock-operator": [], "penstock-lag": []}
    for kinds in ("brokers,exchanges,subscriptions", "statefulsets,services,configmaps,secrets"):
        text = team.kube.kubectl("get", kinds, "-o", "json", "--show-managed-fields")
        for item in json.loads(text)["items"]:
            for entry in item["metadata"].get("managedFields", []):
                if datetime.fromisoformat(entry["time"]) > at:
                    found.setdefault(entry["manager"], []).append(f"{item['kind']}/{item['metadata']['name']}")
    return found


def _requests(installation: Installation) -> Counter[str]:
    """What the API server has answered so far, by verb, group and resource."""
    text = installation.home.kubectl("get", "--raw", "/metrics")
    found: Counter[str] = Counter()
    for labels, value in re.findall(r"^apiserver_request_total\{(.*?)\} (\S+)$", text, re.MULTILINE):
        names = dict(re.findall(r'(\w+)="(.*?)"', labels))
        if names["verb"] != "WATCH":
            what = "/".join(part for part in (names["group"], names["resource"], names["subresource"]) if part)
            found[f"{names['verb']} {what or 'others'}"] += int(float(value))
    return found


def _idle(
    installation: Installation, operator: OperatorProcess | None, idle_seconds: float
) -> tuple[Counter[str], float]:
    """Requests a second by kind, and the operator's share of a core in percent."""
    before, began = _requests(installation), time.monotonic()
    cpu = 0.0 if operator is None else operator.cpu_seconds()
    _pass("the time to pass", idle_seconds)
    seconds = time.monotonic() - began
    after = _requests(installation)
    rates = Counter({name: (count - before[name]) / seconds for name, count in after.items() if count > before[name]})
    return rates, 0.0 if operator is None else (operator.cpu_seconds() - cpu) / seconds * 100


def _wipe(team: Team, operator: OperatorProcess, count: int, report: Report) -> None:
    """The broker's volume and pod are deleted: everything is declared again on the empty one."""
    before = team.field("broker", "main", "status", "instanceId")
    uid = team.field("pod", "main-0", "metadata", "uid")
    team.kube.kubectl("delete", "pvc", "data-main-0", "--wait=false")
    team.kube.kubectl("delete", "pod", "main-0", "--wait=false")
    deleted = time.monotonic()

    def serves() -> bool:
        pod = team.kube.get("pod", "main-0")
        statuses = cast("list[Any]", pick(pod, "status", "containerStatuses") or [])
        ready = any(pick(each, "name") == "broker" and pick(each, "ready") for each in statuses)
        return pick(pod, "metadata", "uid") not in (None, uid) and ready

    wait_for("the empty broker to serve", serves, 10 * MINUTE)
    served, cpu = time.monotonic(), operator.cpu_seconds()
    wait_for("all to be declared", lambda: _declared(team) >= count + OTHERS, PATIENCE)
    healed = time.monotonic()
    report.check(
        healed - served < HEALED_SECONDS,
        f"a wiped broker has all again {healed - served:.0f} s after it served, {healed - deleted:.0f} s after it went",
    )
    report.say(f"  for this the operator needed {operator.cpu_seconds() - cpu:.1f} s of processor time")
    wait_for(
        "the status to say so",
        lambda: team.field("broker", "main", "status", "instanceId") not in (None, before),
        5 * MINUTE,
    )


def _declared(team: Team) -> int:
    """How many subscriptions the broker has; 0 while it does not answer."""

    async def ask() -> int:
        management = await team.management()
        try:
            return (await management.query(EntityType.SUBSCRIPTION, count=1, attributes=["queueName"])).total_count
        finally:
            await management.close()

    try:
        return asyncio.run(ask())
    except (OSError, TimeoutError, ManagementError, NotAuthenticated):
        return 0
