"""What `helm test` of the operator's chart finds: CRDs older than the operator, and a Deployment that is not ready."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from charts.expressions import ROOT
from support.api_server_in_memory import ApiServerInMemory

from penstock_api.failure import Failure
from penstock_operator.installation.findings import OPENAPI, findings_of_crds, findings_of_deployment
from penstock_operator.installation.inspection import inspect


def published() -> dict[str, Any]:
    """What an API server publishes once it has the files in crds/."""
    schemas: dict[str, Any] = {}
    for file in sorted((ROOT / "crds").glob("*.yaml")):
        spec = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
        kind = spec["names"]["kind"]
        schemas[f"dev.penstock.v1alpha1.{kind}"] = {
            **spec["versions"][0]["schema"]["openAPIV3Schema"],
            "x-kubernetes-group-version-kind": [{"group": "penstock.dev", "kind": kind, "version": "v1alpha1"}],
        }
    return {"components": {"schemas": schemas}}


def of(document: dict[str, Any], kind: str) -> dict[str, Any]:
    found: dict[str, Any] = document["components"]["schemas"][f"dev.penstock.v1alpha1.{kind}"]
    return found


def deployment(**status: int) -> dict[str, Any]:
    every = {"observedGeneration": 3, "availableReplicas": 1, "updatedReplicas": 1, **status}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "op", "namespace": "home", "generation": 3},
        "spec": {"replicas": 1},
        "status": every,
    }


def test_the_crds_of_this_release_are_right() -> None:
    assert findings_of_crds(published()) == []


def test_a_cluster_without_crds_is_told() -> None:
    first, *_ = findings_of_crds(None)
    assert first == (
        "The cluster does not serve brokers.penstock.dev. Upgrade the CRDs: `kubectl apply --server-side -f crds`, "
        "or the chart with crds.enabled=true."
    )


def test_fields_that_older_crds_lack_are_named() -> None:
    """One at the top, one inside a map, one in the items of a list."""
    document = published()
    del of(document, "Broker")["properties"]["spec"]["properties"]["listeners"]["properties"]["amqps"]
    del of(document, "Subscription")["properties"]["spec"]["properties"]["bindingKeys"]
    del of(document, "Subscription")["properties"]["status"]["properties"]["conditions"]["items"]["properties"][
        "reason"
    ]
    of_broker, of_subscription = findings_of_crds(document)
    assert of_broker.startswith(
        "CRD brokers.penstock.dev is older than the operator: it does not have spec.listeners.amqps. Upgrade the CRDs"
    )
    assert "it does not have spec.bindingKeys, status.conditions.reason. " in of_subscription


def test_newer_crds_are_right() -> None:
    document = published()
    of(document, "Broker")["properties"]["spec"]["properties"]["aFieldOfTheFuture"] = {"type": "string"}
    assert findings_of_crds(document) == []


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ({"availableReplicas": 0}, "0 of 1 pods of Deployment op are ready, 1 of this release."),
        ({"updatedReplicas": 0}, "1 of 1 pods of Deployment op are ready, 0 of this release."),
        ({"observedGeneration": 2}, "Deployment op has just been changed. Wait for `kubectl rollout status"),
    ],
)
def test_a_deployment_that_is_not_available_is_told(status: dict[str, int], says: str) -> None:
    (finding,) = findings_of_deployment("op", deployment(**status))
    assert finding.startswith(says)


def test_a_deployment_of_no_pods_is_not_right() -> None:
    stopped = deployment(availableReplicas=0, updatedReplicas=0)
    stopped["spec"]["replicas"] = 0
    assert findings_of_deployment("op", stopped)


def test_a_deployment_that_is_available_is_right_and_none_is_not() -> None:
    assert findings_of_deployment("op", deployment()) == []
    assert findings_of_deployment("op", None) == ["There is no Deployment op. Name the one of the operator's release."]


async def test_all_findings_are_told_at_once_and_otherwise_what_was_checked() -> None:
    kube = ApiServerInMemory()
    with pytest.raises(Failure) as failed:
        await inspect(kube, "home", "op")
    assert "does not serve brokers.penstock.dev" in str(failed.value)
    assert "There is no Deployment op" in str(failed.value)
    kube.documents[OPENAPI] = published()
    kube.objects["Deployment", "home", "op"] = deployment()
    assert (await inspect(kube, "home", "op"))[1] == "Deployment home/op is available."
