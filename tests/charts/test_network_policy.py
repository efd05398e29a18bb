"""The NetworkPolicy for the operator's own pods, as Helm renders it."""

from __future__ import annotations

import pytest
from charts.test_operator_replicas import NAME, rendered

pytestmark = pytest.mark.built  # hack/cluster builds Helm

LABELS = {"app.kubernetes.io/name": "penstock-operator", "app.kubernetes.io/instance": "one"}


def test_there_is_none_unless_it_is_asked_for() -> None:
    assert ("NetworkPolicy", NAME) not in rendered()


def test_nobody_connects_to_the_operator() -> None:
    """Its own connections stay as they are: the policy says nothing of egress."""
    policy = rendered("networkPolicy.enabled=true")["NetworkPolicy", NAME]
    assert policy["metadata"]["namespace"] == "home"
    assert policy["spec"] == {"podSelector": {"matchLabels": LABELS}, "policyTypes": ["Ingress"], "ingress": []}


def test_who_scrapes_reaches_the_port_of_the_metrics_alone() -> None:
    found = rendered("networkPolicy.enabled=true", "networkPolicy.scrapers[0].podSelector.matchLabels.app=prometheus")
    assert found["NetworkPolicy", NAME]["spec"]["ingress"] == [
        {"from": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}], "ports": [{"port": "http"}]}
    ]
    deployment = found["Deployment", NAME]["spec"]["template"]
    (container,) = deployment["spec"]["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": 8080}]
    assert deployment["metadata"]["labels"].items() >= LABELS.items()
