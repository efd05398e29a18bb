"""Conditions as metrics: what counts as trouble, how many series there are, and the exposition of the operator."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.resources import manifest_of

from penstock_operator import health
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.cluster.controller import Controller
from penstock_operator.condition_metrics import (
    WARNINGS,
    TroubledResource,
    conditions_of,
    is_trouble,
    lag_analysis_since,
)
from penstock_operator.metrics import Metrics
from penstock_operator.settings import OperatorSettings

NOT_READY: Any = {"type": "Ready", "status": "False", "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def resource(kind: str, name: str, **conditions: str) -> Any:
    """A resource with these conditions: type and status of each."""
    found = [
        {"type": type_, "status": status, "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for type_, status in conditions.items()
    ]
    return manifest_of(kind, {}, {"conditions": found}, {"name": name})


@pytest.mark.parametrize(
    ("type_", "status", "reason", "trouble"),
    [
        ("Ready", "True", "R", False),
        ("Ready", "False", "R", True),
        ("Ready", "Unknown", "R", True),
        ("Stalled", "True", "R", True),
        ("Lagging", "True", "R", True),
        ("Lagging", "False", "R", False),
        ("Lagging", "Unknown", "R", False),
        ("LagFresh", "False", "R", True),
        ("StorageFilling", "True", "R", True),
        ("StorageHealthy", "True", "R", False),
        ("StorageHealthy", "False", "R", True),
        ("LagAnalysisScheduled", "False", "NotWritten", True),
        ("LagAnalysisScheduled", "False", "Suspended", False),
        ("LagAnalysisScheduled", "False", "Disabled", False),
        ("Available", "False", "ScaledToZero", False),
    ],
)
def test_what_means_trouble(type_: str, status: str, reason: str, trouble: bool) -> None:
    assert is_trouble(type_, status, reason) is trouble


@pytest.mark.parametrize(
    ("status", "reason", "since"),
    [
        ("True", "Scheduled", 1767225600.0),
        ("Unknown", "Pending", 1767225600.0),
        ("False", "RunOverdue", 1767225600.0),
        ("False", "Suspended", None),
        ("False", "Disabled", None),
        ("False", "ScaledToZero", None),
    ],
)
def test_since_when_results_of_the_lag_job_are_expected(status: str, reason: str, since: float | None) -> None:
    scheduled = {**NOT_READY, "type": "LagAnalysisScheduled", "status": status, "reason": reason}
    assert lag_analysis_since(manifest_of("Broker", {}, {"conditions": [NOT_READY, scheduled]}, {})) == since
    assert lag_analysis_since(manifest_of("Broker", {}, {"conditions": [NOT_READY]}, {})) is None


def test_all_are_counted_and_those_in_trouble_are_named() -> None:
    counts, troubled = conditions_of(
        [
            resource("Subscription", "billing", Ready="True", Lagging="True"),
            resource("Subscription", "fraud", Ready="True", Lagging="False"),
            resource("Broker", "main", Ready="False", Stalled="True"),
        ]
    )
    assert counts == {
        ("Subscription", "Ready", "True"): 2,
        ("Subscription", "Lagging", "True"): 1,
        ("Subscription", "Lagging", "False"): 1,
        ("Broker", "Ready", "False"): 1,
        ("Broker", "Stalled", "True"): 1,
    }
    assert troubled == [
        TroubledResource("Broker", "shop", "main", "Ready", "False"),
        TroubledResource("Broker", "shop", "main", "Stalled", "True"),
        TroubledResource("Subscription", "shop", "billing", "Lagging", "True"),
    ]


def test_of_very_many_in_trouble_the_first_are_named_and_all_are_counted() -> None:
    lost = [resource("Subscription", f"s{number:03}", Ready="Unknown") for number in reversed(range(30))]
    counts, troubled = conditions_of(lost, named=10)
    assert counts == {("Subscription", "Ready", "Unknown"): 30}
    assert [each.name for each in troubled] == [f"s00{number}" for number in range(10)]


def test_every_condition_that_warns_is_on_the_page_of_the_operator() -> None:
    """And every condition of the page of which True is no good sign, because it is absent otherwise, is a warning."""
    from charts.expressions import ROOT

    page = (ROOT / "docs/reference/operator.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and line.count("|") == 5]
    listed = {row.split("|")[2].strip().strip("`"): row for row in rows if row.split("|")[2].strip().startswith("`")}
    absent = {name for name, row in listed.items() if "the condition is absent" in row}
    assert absent - {"ServerCertificate"} <= WARNINGS  # True is good: it is absent for a certificate of the operator's
    assert WARNINGS - absent <= {"Lagging", "NodeLost"}


async def test_the_operator_exposes_them() -> None:
    made, metrics = Controller(Cache(), Metrics(), lambda: 0.0), Metrics()
    settings = OperatorSettings(broker_image="b", lag_image="l", liveness_host="127.0.0.1", liveness_port=0)
    runner = await health.serve(settings, made, metrics, lambda: 0.0)
    try:
        made.cache.put(resource("Subscription", "billing", Ready="False", LagFresh="True"))
        made.cache.put(resource("Broker", "main", LagAnalysisScheduled="True"))
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as client,
            client.get("/metrics") as answer,
        ):
            families = {family.name: family for family in text_string_to_metric_families(await answer.text())}
    finally:
        await runner.cleanup()
    (named,) = families["penstock_resource_condition"].samples
    assert named.labels == {
        "kind": "Subscription",
        "namespace": "shop",
        "name": "billing",
        "type": "Ready",
        "status": "False",
    }
    counts = {
        (each.labels["type"], each.labels["status"]): each.value
        for each in families["penstock_resource_conditions"].samples
    }
    assert counts == {("Ready", "False"): 1, ("LagFresh", "True"): 1, ("LagAnalysisScheduled", "True"): 1}
    (analysed,) = families["penstock_lag_analysis_since_timestamp_seconds"].samples
    assert (analysed.labels, analysed.value) == ({"broker_namespace": "shop", "broker": "main"}, 1767225600.0)


async def test_what_another_operator_manages_is_counted_by_that_one() -> None:
    made, metrics = Controller(Cache(), Metrics(), lambda: 0.0), Metrics()
    settings = OperatorSettings(broker_image="b", lag_image="l", liveness_host="127.0.0.1", liveness_port=0)
    for broker in ("main", "foreign"):
        made.cache.put(manifest_of("Broker", {}, {"conditions": [NOT_READY]}, {"name": broker}))
        spec = {"brokerRef": {"name": broker}, "exchangeType": "Topic"}
        made.cache.put(manifest_of("Exchange", spec, {"conditions": [NOT_READY]}, {"name": f"{broker}-orders"}))
    made.left = lambda: [ResourceKey("Broker", "shop", "foreign")]
    runner = await health.serve(settings, made, metrics, lambda: 0.0)
    try:
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as client,
            client.get("/metrics") as answer,
        ):
            families = {family.name: family for family in text_string_to_metric_families(await answer.text())}
    finally:
        await runner.cleanup()
    assert {each.labels["name"] for each in families["penstock_resource_condition"].samples} == {"main", "main-orders"}
    counts = {each.labels["kind"]: each.value for each in families["penstock_resource_conditions"].samples}
    assert counts == {"Broker": 1, "Exchange": 1}
