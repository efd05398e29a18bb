"""The CRDs on a real API server: it refuses every bad manifest, and every change of an immutable field."""

from __future__ import annotations

import copy
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.kube import ROOT, Kube, own_cluster_environment
from e2e.story import StoryError
from support.resources import GOOD, Bad, bad_manifests

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def kube() -> Iterator[Kube]:
    made = Kube(f"penstock-crds-{secrets.token_hex(3)}", own_cluster_environment())
    made.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    made.kubectl("wait", "--for=condition=Established", "-f", str(ROOT / "crds"), "--timeout=30s")
    made.kubectl("create", "namespace", made.namespace)
    yield made
    made.kubectl("delete", "namespace", made.namespace, "--wait")


def created(kube: Kube, manifest: dict[str, Any]) -> str:
    """What kubectl prints when it creates a manifest in the namespace of this test."""
    here = copy.deepcopy(manifest)
    here["metadata"]["namespace"] = kube.namespace
    return kube.kubectl("create", "--validate=strict", "-o", "yaml", "-f", "-", stdin=json.dumps(here))


@pytest.mark.parametrize("bad", [pytest.param(bad, id=bad.name) for bad in bad_manifests()])
def test_every_bad_manifest_is_refused(kube: Kube, bad: Bad) -> None:
    with pytest.raises(StoryError) as refused:
        created(kube, bad.manifest)
    assert bad.says in str(refused.value)


@pytest.mark.parametrize("kind", GOOD)
def test_a_good_one_is_pending_until_an_operator_sees_it(kube: Kube, kind: str) -> None:
    status = yaml.safe_load(created(kube, GOOD[kind]))["status"]
    assert status["observedGeneration"] == -1
    assert [(it["type"], it["status"], it["reason"]) for it in status["conditions"]] == [
        ("Ready", "Unknown", "Pending")
    ]


@pytest.mark.parametrize("path", sorted((ROOT / "examples/kubernetes").glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_are_taken(kube: Kube, path: Path) -> None:
    # Nothing of theirs is in the namespace `default`; the server checks them and keeps nothing.
    elsewhere = Kube("default", kube.environment)
    elsewhere.kubectl("create", "--dry-run=server", "--validate=strict", "-f", str(path))


CONTAINER = {"scope": "Container", "clientId": "c"}


@pytest.mark.parametrize(
    ("kind", "before", "edit", "says"),
    [
        pytest.param(
            "Broker", {}, {"storage": {"storageClassName": "fast"}}, "storage.storageClassName", id="class-added"
        ),
        pytest.param(
            "Broker",
            {"externalService": {"loadBalancerClass": "example.com/a"}},
            {"externalService": {"loadBalancerClass": "example.com/b"}},
            "externalService.loadBalancerClass",
            id="load-balancer-class",
        ),
        pytest.param(
            "Broker",
            {"externalService": {}},
            {"externalService": {"loadBalancerClass": "example.com/a"}},
            "externalService.loadBalancerClass",
            id="load-balancer-class-added",
        ),
        pytest.param("Exchange", {}, {"brokerRef": {"name": "other"}}, "brokerRef", id="exchange-broker"),
        pytest.param("Exchange", {}, {"brokerRef": {"namespace": "n"}}, "brokerRef", id="broker-namespace-added"),
        pytest.param("Exchange", {}, {"type": "Direct"}, "type", id="type"),
        pytest.param("Exchange", {}, {"durability": "NonDurable"}, "durability", id="exchange-durability"),
        pytest.param("Exchange", {}, {"exchangeName": "x"}, "exchangeName", id="exchange-name-added"),
        pytest.param("Exchange", {"exchangeName": "x"}, {"exchangeName": None}, "exchangeName", id="name-removed"),
        pytest.param("Subscription", {}, {"brokerRef": {"name": "other"}}, "brokerRef", id="subscription-broker"),
        pytest.param("Subscription", {}, {"subscriptionName": "x"}, "subscriptionName", id="name-added"),
        pytest.param("Subscription", CONTAINER, {"clientId": "d"}, "clientId", id="client-id"),
        pytest.param("Subscription", {}, CONTAINER, "scope", id="scope"),
        pytest.param("Subscription", {}, {"sharing": "Exclusive"}, "sharing", id="sharing"),
        pytest.param("Subscription", {}, {"durability": "NonDurable"}, "durability", id="durability"),
        pytest.param(
            "Subscription",
            {"durability": "NonDurable"},
            {"expiryPolicy": "SessionEnd"},
            "expiryPolicy",
            id="expiry-policy",
        ),
        pytest.param("Queue", {}, {"brokerRef": {"name": "other"}}, "brokerRef", id="queue-broker"),
        pytest.param("Queue", {}, {"queueName": "x"}, "queueName", id="queue-name-added"),
        pytest.param("Queue", {"queueName": "x"}, {"queueName": "y"}, "queueName", id="queue-name"),
        pytest.param("Queue", {}, {"durability": "NonDurable"}, "durability", id="queue-durability"),
    ],
)
def test_what_is_immutable_stays(
    kube: Kube, kind: str, before: dict[str, Any], edit: dict[str, Any], says: str
) -> None:
    made = copy.deepcopy(GOOD[kind])
    made["metadata"]["name"] = f"still-{secrets.token_hex(3)}"
    made["spec"].update(before)
    created(kube, made)
    patch = json.dumps({"spec": edit})
    with pytest.raises(StoryError, match=f"`{says}` is immutable"):
        kube.kubectl("patch", kind, made["metadata"]["name"], "--type=merge", "--patch", patch)


def test_references_can_be_selected(kube: Kube) -> None:
    for number, broker in enumerate(("left", "right")):
        made = copy.deepcopy(GOOD["Subscription"])
        made["metadata"]["name"] = f"selected-{number}"
        made["spec"]["brokerRef"] = {"name": broker}
        created(kube, made)
    assert kube.kubectl("get", "psub", "--field-selector=spec.brokerRef.name=left", "-o=name").split() == [
        "subscription.penstock.dev/selected-0"
    ]
