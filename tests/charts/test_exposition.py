"""Every metric of every alert, recording rule and dashboard, looked for in what a real broker, its observer and the
operator's endpoint expose.

`test_dashboard` compares with the pages; here nothing is made up: `penstock up` runs, clients send and receive, a
result of the lag job is stored, and `/metrics` is read as Prometheus reads it.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any, cast

import aiohttp
import pytest
import yaml
from charts.expressions import RECORDED, ROOT, selectors
from e2e.local_site import LocalSite
from prometheus_client.parser import text_string_to_metric_families
from support.proton_client import Subscribed, connected, publish, take
from support.resources import manifest_of
from support.waiting import until

from penstock_operator import health
from penstock_operator.cluster.cache import Cache
from penstock_operator.cluster.controller import Controller
from penstock_operator.metrics import Metrics
from penstock_operator.settings import OperatorSettings

FILES = ROOT / "helm/penstock-operator/files"
START_SECONDS = 120.0
ONLY_WHILE_A_VOLUME_FILLS = {"penstock_broker_largest_queue_bytes"}


def asked() -> dict[str, set[str]]:
    """Names of metrics, and where each is asked for."""
    found: dict[str, set[str]] = {}
    for group in yaml.safe_load((FILES / "rules.yaml").read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            for selector in selectors(rule["expr"]):
                found.setdefault(selector.metric, set()).add(rule.get("alert") or rule["record"])
    for path in sorted((FILES / "dashboards").glob("*.json")):
        dashboard = json.loads(path.read_text(encoding="utf-8"))
        variables = [it["definition"] for it in dashboard["templating"]["list"] if it["type"] == "query"]
        queries = [text.removeprefix("label_values(").rpartition(",")[0] for text in variables]
        queries += [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
        for query in queries:
            for selector in selectors(query):
                found.setdefault(selector.metric, set()).add(path.name)
    return found


def samples(text: str) -> set[str]:
    """The names of all series in an exposition."""
    return {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}


def get(site: LocalSite, path: str) -> str:
    token = (site.data / "observer.token").read_text(encoding="ascii").strip()
    request = urllib.request.Request(f"{site.state()['observer']}{path}", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def put_a_result(site: LocalSite) -> None:
    """What the observer says live, stored as if a run of the lag job had found it."""
    token = (site.data / "observer.token").read_text(encoding="ascii").strip()
    result = cast("dict[str, Any]", json.loads(get(site, "/v1/lag/live")))
    request = urllib.request.Request(
        f"{site.state()['observer']}/v1/lag/results/by-hand",
        data=json.dumps({**result, "runName": "by-hand"}).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        method="PUT",
    )
    urllib.request.urlopen(request, timeout=30).close()


@pytest.fixture(scope="module")
def of_the_observer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[set[str]]:
    """What the observer exposes of a broker whose subscription billing settled a message and holds one."""
    work = tmp_path_factory.mktemp("site")
    with LocalSite(ROOT / "examples/local", work / "data") as site:
        site.wait_until_serving()
        with connected(f"amqp://{site.state()['amqp']}") as connection:
            publish(connection.create_sender("orders/eu.fr"), ["one", "two"])
            take(connection.create_receiver("orders", name="billing", credit=1, options=Subscribed()), 1)
        until(lambda: "velocity_messages_per_minute{" in get(site, "/metrics"), "two polls", START_SECONDS)
        put_a_result(site)
        yield samples(get(site, "/metrics"))


@pytest.fixture
async def of_the_operator() -> set[str]:
    """What the operator exposes with a Subscription that is not Ready and a Broker that is analysed, after one pass."""
    metrics = Metrics()
    controller = Controller(Cache(), metrics, lambda: 0.0)
    conditions = [{"type": "Ready", "status": "False", "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    controller.cache.put(manifest_of("Subscription", {}, {"conditions": conditions}, {}))
    scheduled = {**conditions[0], "type": "LagAnalysisScheduled", "status": "True"}
    controller.cache.put(manifest_of("Broker", {}, {"conditions": [scheduled]}, {}))
    settings = OperatorSettings(broker_image="b", lag_image="l", liveness_host="127.0.0.1", liveness_port=0)
    runner = await health.serve(settings, controller, metrics, lambda: 0.0)
    try:
        with metrics.measured("Subscription"):
            pass
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as client,
            client.get("/metrics") as answer,
        ):
            return samples(await answer.text())
    finally:
        await runner.cleanup()


async def test_what_is_asked_for_is_exposed(of_the_observer: set[str], of_the_operator: set[str]) -> None:
    exposed = of_the_observer | of_the_operator | {"up", RECORDED}
    missing = {name: where for name, where in asked().items() if name not in exposed | ONLY_WHILE_A_VOLUME_FILLS}
    assert missing == {}


def test_rules_and_all_dashboards_are_read() -> None:
    found = asked()
    assert found["penstock_broker_wait_seconds_bucket"] == {"broker.json"}
    assert found["penstock_operator_queue_keys"] == {"operator.json"}
    assert found["penstock_subscription_stranded_messages"] == {"PenstockSubscriptionStranded"}
    assert found["penstock_broker_reachable"] >= {"PenstockBrokerUnreachable", "broker.json", "subscriptions.json"}
