"""The CRDs on a real API server: it refuses every bad manifest, and every change of an immutable field."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.kube import ROOT, Kube, own_cluster_environment
from support.direct_requests import DirectRequests, RefusedRequest, connected
from support.resources import GOOD, Bad, bad_manifests

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def kube() -> Iterator[Kube]:
    made = Kube(f"penstock-crds-{secrets.token_hex(3)}", own_cluster_environment())
    made.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    made.kubectl("wait", "--for=condition=Established", "-f", str(ROOT / "crds"), "--timeout=30s")
    made.kubectl("create", "namespace", made.namespace)
    yield made
    made.kubectl("delete", "namespace", made.namespace, "--wait=false")  # nothing in it has a finalizer


@pytest.fixture(scope="module")
def api(kube: Kube) -> Iterator[DirectRequests]:
    with connected(Path(kube.environment["KUBECONFIG"]), kube.namespace) as made:
        yield made


def created(api: DirectRequests, manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest as the API server has it in the namespace of this test."""
    here = copy.deepcopy(manifest)
    here["metadata"]["namespace"] = api.namespace
    return api.create(here)


@pytest.mark.parametrize("bad", [pytest.param(bad, id=bad.name) for bad in bad_manifests()])
def test_every_bad_manifest_is_refused(api: DirectRequests, bad: Bad) -> None:
    with pytest.raises(RefusedRequest) as refused:
        created(api, bad.manifest)
    assert bad.says in str(refused.value)


@pytest.mark.parametrize("kind", GOOD)
def test_a_good_one_is_pending_until_an_operator_sees_it(api: DirectRequests, kind: str) -> None:
    status = created(api, GOOD[kind])["status"]
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
    api: DirectRequests, kind: str, before: dict[str, Any], edit: dict[str, Any], says: str
) -> None:
    made = copy.deepcopy(GOOD[kind])
    made["metadata"]["name"] = f"still-{secrets.token_hex(3)}"
    made["spec"].update(before)
    created(api, made)
    with pytest.raises(RefusedRequest, match=f"`{says}` is immutable"):
        api.merge(kind, made["metadata"]["name"], {"spec": edit})


def test_references_can_be_selected(kube: Kube, api: DirectRequests) -> None:
    for number, broker in enumerate(("left", "right")):
        made = copy.deepcopy(GOOD["Subscription"])
        made["metadata"]["name"] = f"selected-{number}"
        made["spec"]["brokerRef"] = {"name": broker}
        created(api, made)
    assert kube.kubectl("get", "psub", "--field-selector=spec.brokerRef.name=left", "-o=name").split() == [
        "subscription.penstock.dev/selected-0"
    ]
