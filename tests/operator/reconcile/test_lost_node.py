"""The node of a Broker's pod, as the reconciler reads it from an API server in memory."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.resources import broker

from penstock_operator.cluster.api_server import ApiResource, Forbidden, KubeError
from penstock_operator.manifest import Manifest
from penstock_operator.reconcile.broker_children import ObservedChildren, observe_children
from penstock_operator.reconcile.cluster_facts import ClusterFacts


def with_pod(ready: str) -> ApiServerInMemory:
    """An API server that has the pod of a Broker on a node."""
    made = ApiServerInMemory()
    made.objects["Pod", "shop", "main-0"] = {
        "metadata": {"name": "main-0", "namespace": "shop"},
        "spec": {"nodeName": "n7"},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }
    made.objects["Node", "", "n7"] = {"metadata": {"name": "n7"}}
    return made


async def observed(ready: str) -> ObservedChildren:
    kube = with_pod(ready)
    return await observe_children(kube, ClusterFacts(kube, lambda: datetime(2026, 3, 1, tzinfo=UTC)), broker())


async def test_the_node_is_read_while_the_pod_is_not_ready_and_not_else() -> None:
    lost = await observed("Unknown")
    assert (lost.node, lost.is_node_known) == ({"metadata": {"name": "n7"}}, True)
    assert (await observed("True")).node is None


@pytest.mark.parametrize("error", [Forbidden(403, "no"), KubeError(503, "away")])
async def test_a_role_without_the_right_to_read_nodes_stops_nothing(
    error: KubeError, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = ApiServerInMemory.get

    async def get(api: ApiServerInMemory, kind: ApiResource, namespace: str | None, name: str) -> Manifest | None:
        if kind.kind == "Node":
            raise error
        return await really(api, kind, namespace, name)

    monkeypatch.setattr(ApiServerInMemory, "get", get)
    if error.status == 403:
        found: Any = await observed("Unknown")
        assert (found.node, found.is_node_known) == (None, False)
    else:
        with pytest.raises(KubeError):
            await observed("Unknown")
