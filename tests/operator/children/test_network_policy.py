"""The NetworkPolicy and the PodDisruptionBudget of a Broker: whole manifests."""

from __future__ import annotations

from typing import Any

import pytest
from support.resources import broker

from penstock_operator.children.disruption_budget import disruption_budgets
from penstock_operator.children.metadata import child_metadata
from penstock_operator.children.network_policy import network_policies

SELECTOR = {"app.kubernetes.io/name": "penstock-broker", "app.kubernetes.io/instance": "main"}
OWN: dict[str, Any] = {"podSelector": {}}
EVERY_POD: dict[str, Any] = {"namespaceSelector": {}}


def namespaces(*found: str) -> dict[str, Any]:
    by_name = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [*found]}
    return {"namespaceSelector": {"matchExpressions": [by_name]}}


def ports(*numbers: int) -> list[dict[str, Any]]:
    return [{"protocol": "TCP", "port": number} for number in numbers]


def rules(policy: dict[str, Any] | None = None, operator: str = "home", **spec: Any) -> list[Any]:
    (made,) = network_policies(broker(networkPolicy=policy or {}, **spec), operator)
    found: Any = made["spec"]
    return list(found["ingress"])


def test_a_broker_that_asks_for_none_has_neither() -> None:
    assert network_policies(broker(), "home") == []
    assert disruption_budgets(broker()) == disruption_budgets(broker(pod={"eviction": "Allow"})) == []


def test_the_whole_policy() -> None:
    assert network_policies(broker(networkPolicy={}), "home") == [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": child_metadata(broker(), broker(), "main"),
            "spec": {
                "podSelector": {"matchLabels": SELECTOR},
                "policyTypes": ["Ingress"],
                "ingress": [
                    {"ports": ports(5671), "from": [OWN]},
                    {"ports": ports(5670), "from": [namespaces("home")]},
                    {"ports": ports(8080), "from": [EVERY_POD]},
                ],
            },
        }
    ]


def test_the_whole_budget() -> None:
    assert disruption_budgets(broker(pod={"eviction": "Refuse"})) == [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": child_metadata(broker(), broker(), "main"),
            "spec": {
                "maxUnavailable": 0,
                "selector": {"matchLabels": SELECTOR},
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            },
        }
    ]


@pytest.mark.parametrize(
    ("allowed", "clients"),
    [
        ([], [OWN]),
        (["hub", "billing", "shop"], [OWN, namespaces("billing", "hub")]),
        (["hub", "*"], [EVERY_POD]),
    ],
)
def test_whose_resources_may_use_the_broker_may_connect(allowed: list[str], clients: list[Any]) -> None:
    assert rules(allowedNamespaces=allowed)[0]["from"] == clients


def test_every_listener_that_is_on_can_be_reached_and_no_other() -> None:
    all_of_them = {"amqps": True, "amqp": True, "webSocket": True}
    assert rules(listeners=all_of_them)[0]["ports"] == ports(5671, 5672, 5443)
    assert rules(listeners={"amqps": False, "amqp": True})[0]["ports"] == ports(5672)


def test_peers_that_are_named_take_the_place_of_the_default() -> None:
    app = {"podSelector": {"matchLabels": {"app": "shop"}}, "namespaceSelector": {"matchLabels": {"team": "a"}}}
    found = rules({"clients": [app, {"cidr": "10.0.0.0/8"}]})
    assert found[0]["from"] == [app, {"ipBlock": {"cidr": "10.0.0.0/8"}}]
    assert found[1:] == rules()[1:]


def test_no_client_at_all_is_a_choice_too() -> None:
    assert [rule["ports"] for rule in rules({"clients": []})] == [ports(5670), ports(8080)]


@pytest.mark.parametrize(
    ("backend", "of_the_job"), [("Auto", []), ("None", []), ("CronJob", [OWN]), ("ScheduledSparkApplication", [OWN])]
)
def test_operator_and_lag_job_get_to_an_observer_that_is_for_prometheus_alone(
    backend: str, of_the_job: list[Any]
) -> None:
    prometheus = {"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}
    found = rules({"observer": [prometheus]}, lagAnalysis={"backend": backend})
    assert found[2] == {"ports": ports(8080), "from": [namespaces("home"), *of_the_job, prometheus]}


def test_an_operator_outside_the_cluster_is_not_locked_out() -> None:
    found = rules({"observer": [{"cidr": "10.0.0.0/8"}]}, operator="")
    assert found[1:] == [{"ports": ports(5670)}, {"ports": ports(8080)}]
