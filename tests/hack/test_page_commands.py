"""Commands that pages show could work as they are printed: kubectl's against what the operator makes, ours against the
options that they have.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.kubectl_commands import Cluster, columns, faults, penstock_fault, words
from support.page_commands import Shown, shown
from support.resources import broker, subscription

from penstock_operator.children import credentials, scale_secret
from penstock_operator.children.services import broker_services
from penstock_operator.children.stateful_set import PinnedPods, broker_stateful_set

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "helm").rglob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = [each for page in PAGES for each in shown(page)]
MANIFESTS = sorted((ROOT / "examples" / "kubernetes").rglob("*.yaml"))
IN_COMMENTS = [
    Shown(path.name, command, ())
    for path in MANIFESTS
    for command in re.findall(r"^#   (kubectl .*)", path.read_text(encoding="utf-8"), re.MULTILINE)
]
KUBECTL = [*(each for each in COMMANDS if each.command.startswith("kubectl ")), *IN_COMMENTS]


def conditions() -> frozenset[str]:
    """The types that the operator writes, by its source."""
    found = set[str]()
    for source in (ROOT / "operator" / "penstock_operator").rglob("*.py"):
        text = source.read_text(encoding="utf-8")
        found |= set(re.findall(r'(?:StatusCondition|secret_condition)\(\s*"(\w+)"', text))
        found |= set(re.findall(r'Final = "((?:Lag|Scale|Storage|Node|Server)\w+)"', text))
    return frozenset(found)


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    main = broker(page={"showMessages": True})
    stateful_set: Any = broker_stateful_set(main, PinnedPods("r/b:1", "r/b:1", 1))[0]
    made = credentials.renew(
        {}, main, credentials.hosts_of(main, "cluster.local"), datetime(2026, 3, 1, tzinfo=UTC), lambda n: "x" * n, True
    )
    secrets: list[Any] = [each for each in credentials.manifests(main, made) if each["kind"] == "Secret"]
    keys = {each["metadata"]["name"]: frozenset(each["data"]) for each in secrets}
    keys[scale_secret.secret_name(subscription())] = frozenset({"token", "ca.crt", "url"})
    services: list[Any] = broker_services(main)
    return Cluster(
        pod={**stateful_set["spec"]["template"]["spec"], "hostname": "main-0"},
        secret_keys=keys,
        services={
            each["metadata"]["name"]: frozenset(port["port"] for port in each["spec"]["ports"]) for each in services
        },
        conditions=conditions(),
    )


@pytest.mark.parametrize("shown", KUBECTL, ids=lambda each: f"{each.page}: {each.command.splitlines()[0]}")
def test_a_command_of_kubectl_names_what_there_is(shown: Shown, cluster: Cluster) -> None:
    assert faults(shown.command, cluster) == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("get psubs billing", "there is no resource 'psubs'"),
        ("get broker,pex,psub -o yaml", "it leaves out queues"),
        ("wait broker/main psub --all --for=condition=Ready", "KIND NAME... or KIND/NAME..., not both"),
        ("wait psub/billing --for=jsonpath='{.status.backlog}'=1", "subscriptions have no {.status.backlog"),
        ("gets psub billing", "there is no verb 'gets'"),
        ("delete crd brokers.penstock.dev topics.penstock.dev", "there is no CRD 'topics.penstock.dev'"),
        ("get psub billing -o jsonpath='{.status.backlog}'", "subscriptions have no {.status.backlog}"),
        (
            "get broker main -o jsonpath='{.status.conditions[?(@.type==\"Fine\")].status}'",
            "there is no condition 'Fine'",
        ),
        ("wait psub billing --for=condition=Fine --timeout=2m", "there is no condition 'Fine'"),
        ("get secret main-observers -o jsonpath='{.data.token}'", "there is no Secret 'main-observers'"),
        ("get secret main-observer -o jsonpath='{.data.ca\\.pem}'", "Secret 'main-observer' has no key 'ca.pem'"),
        ("port-forward svc/main-observer 18080", "Service 'main-observer' has no port 18080"),
        ("logs main-0 -c operator", "the pod has no container 'operator'"),
        ("exec main-0 -c broker -- df -h /var/lib", "/var/lib is on no volume of container 'broker'"),
        ("exec main-0 -c broker -- jq .", "the image has no 'jq'"),
        (
            "exec main-0 -c broker -- penstock look q --broker b:1",
            "there is no command ['look', 'q', '--broker', 'b:1']",
        ),
        ("exec main-0 -c broker -- penstock peek q --broker b:1 --most 3", "No such option '--most'"),
    ],
)
def test_a_command_that_could_not_work_is_named(wrong: str, says: str, cluster: Cluster) -> None:
    assert says in "\n".join(faults(f"kubectl -n shop {wrong} | head", cluster))


def test_a_table_of_subscriptions_has_the_columns_of_the_crd() -> None:
    tables = [each for each in KUBECTL if re.search(r"get (-\S+ \S+ )*psub", each.command) and len(each.output) > 1]
    assert tables
    for each in tables:
        assert each.output[0].split() == columns(wide="wide" in each.command)


def test_commands_of_ours_have_the_options_that_pages_give_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the command itself, or by a variable that the page has exported before."""
    ours = [each for each in COMMANDS if re.match(r"(\.venv/bin/)?penstock [^[]*$", each.command)]
    exporting = {each.page for each in COMMANDS if "export PENSTOCK_BROKER=" in each.command}
    assert len(ours) > 3
    faults_by_page: dict[str, str] = {}
    for each in ours:
        monkeypatch.delenv("PENSTOCK_BROKER", raising=False)
        if each.page in exporting:
            monkeypatch.setenv("PENSTOCK_BROKER", "127.0.0.1:5670")
        fault = penstock_fault(words(each.command)[1:])
        if fault is not None:
            faults_by_page[f"{each.page}: {each.command}"] = fault
    assert faults_by_page == {}
