"""The scrape example, read as Prometheus documents its configuration, against the real server over TLS.

The reader below finds the targets of a job among pods by its relabel rules, and then does what
https://prometheus.io/docs/prometheus/latest/configuration/configuration/ says: a GET with the bearer token of
`credentials_file`, over TLS with the CA of `ca_file` and the name `server_name`. The pod is the operator's, and so are
the files of the Secret.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
import yaml
from aiohttp import web
from observer.samples import START_MS, a_poll, a_subscription
from support.pod_targets import discovered
from support.resources import broker

from penstock_observer.http import Api, make_app
from penstock_observer.ledger import Ledger, SealLimits
from penstock_observer.live_view import LiveView
from penstock_observer.results import BrokerPod, ResultStore
from penstock_observer.retention import RetentionLimits
from penstock_observer.rows import RowOrigin
from penstock_observer.secrets import TokenFile
from penstock_operator.children import credentials, stateful_set
from penstock_operator.manifest import Manifest, dig

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = yaml.safe_load((ROOT / "examples/kubernetes/monitoring/prometheus.yaml").read_text(encoding="utf-8"))
JOBS: dict[str, Any] = {job["job_name"]: job for job in EXAMPLE["scrape_configs"]}
MOUNT = "/etc/penstock/shop-main/"


def relabelled(rules: list[dict[str, Any]], target: Mapping[str, str]) -> dict[str, str] | None:
    """The labels of a target; None if a rule drops it. As documented: `keep`, and `replace` with its defaults."""
    labels = dict(target)
    for rule in rules:
        value = ";".join(labels.get(name, "") for name in rule["source_labels"])
        if rule.get("action", "replace") == "keep":
            if re.fullmatch(rule["regex"], value) is None:
                return None
        else:
            labels[rule["target_label"]] = value
    return {key: value for key, value in labels.items() if not key.startswith("__")}


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    """A server over TLS with the operator's Secrets; the files of the scrape Secret are in `tmp_path/scrape`."""
    now = datetime.now(UTC)
    hosts = credentials.hosts_of(broker(), "cluster.local")
    made = credentials.renew({}, broker(), hosts, now, lambda n: "r" * n + str(n), knows_scopes=True)
    for name, text in made.observer.items():
        (tmp_path / name).write_text(text)
    tokens = dict(made.users_of_the_observer())
    (tmp_path / "scrape").mkdir()
    (tmp_path / "scrape" / "token").write_text(tokens["scrape"])
    (tmp_path / "scrape" / "ca.crt").write_bytes(made.ca.certificate)
    (tmp_path / "tls.crt").write_bytes(made.server.certificate)
    (tmp_path / "tls.key").write_bytes(made.server.key)
    place = BrokerPod("main", "shop", 0)
    limits = SealLimits(60, 1000, 10**9), RetentionLimits(10**12, 10**12)
    ledger = Ledger(tmp_path / "ledger", RowOrigin("main", 0, 1000), *limits)
    results = ResultStore(tmp_path / "results", place, keep=3)
    api = Api(LiveView(), ledger, results, place, TokenFile(tmp_path / "token"), lambda: now)
    api.live.answered(a_poll(START_MS, a_subscription("billing", depth=9)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    runner = web.AppRunner(make_app(api), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield runner.addresses[0][1]
    await runner.cleanup()
    ledger.close()


async def test_the_job_of_the_broker_gets_its_metrics(port: int, tmp_path: Path) -> None:
    job = JOBS["penstock-broker-shop-main"]
    token = (tmp_path / "scrape" / job["authorization"]["credentials_file"].removeprefix(MOUNT)).read_text()
    context = ssl.create_default_context(cafile=tmp_path / "scrape" / job["tls_config"]["ca_file"].removeprefix(MOUNT))
    headers = {"Authorization": f"{job['authorization']['type']} {token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as client,
        client.get(
            f"{job['scheme']}://127.0.0.1:{port}/metrics",
            ssl=context,
            server_hostname=job["tls_config"]["server_name"],
        ) as answer,
    ):
        assert answer.status == 200
        assert 'penstock_subscription_depth_messages{exchange="events",namespace="shop"' in await answer.text()


def test_the_job_of_the_broker_finds_the_observer_of_each_pod_and_names_its_broker() -> None:
    made, _ = stateful_set.broker_stateful_set(broker(), stateful_set.pin(broker(), None, "image"))
    template = cast("Manifest", dig(made, "spec", "template"))
    rules = JOBS["penstock-broker-shop-main"]["relabel_configs"]
    targets = [relabelled(rules, it) for it in discovered(template, "shop", "main-0")]
    assert [it for it in targets if it is not None] == [
        {
            "broker": "main",
            "broker_namespace": "shop",
            "pod": "main-0",
            "instance": "main-0",
            "container": "observer",
        }
    ]


def test_the_pod_monitors_add_the_same_labels_and_the_series_outlive_the_address_of_the_pod() -> None:
    """That of the chart, and that of the page about monitoring. Prometheus puts the address into `instance` only if no
    rule gives it a value.
    """
    for path in ("helm/penstock-broker/templates/pod-monitor.yaml", "docs/how-to/monitoring.md"):
        text = (ROOT / path).read_text(encoding="utf-8")
        assert dict(re.findall(r"sourceLabels: \[(\w+)\],?\s+targetLabel: (\w+)", text)) == {
            "__meta_kubernetes_pod_label_penstock_dev_broker": "broker",
            "__meta_kubernetes_namespace": "broker_namespace",
            "__meta_kubernetes_pod_name": "instance",
        }, path


def test_the_job_of_the_operator_finds_its_pod() -> None:
    labels = {"app.kubernetes.io/name": "penstock-operator"}
    pod: Manifest = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "operator", "ports": [{"name": "http", "containerPort": 8080}]}]},
    }
    (target,) = discovered(pod, "penstock-system", "operator-0")
    rules = JOBS["penstock-operator"]["relabel_configs"]
    assert relabelled(rules, target) == {"namespace": "penstock-system", "pod": "operator-0"}
    other: Manifest = {**pod, "metadata": {"labels": {"app.kubernetes.io/name": "other"}}}
    assert relabelled(rules, discovered(other, "penstock-system", "x")[0]) is None


def test_both_keep_the_labels_of_the_series() -> None:
    """Else the namespace of a subscription or a resource would be called exported_namespace."""
    assert [job["honor_labels"] for job in JOBS.values()] == [True, True]
