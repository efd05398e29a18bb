"""The Events about a pod that is not ready, as they are read from an API server in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.resources import broker

from penstock_operator.cluster.api_server import ApiResource, Forbidden, KubeError
from penstock_operator.manifest import Manifest
from penstock_operator.reconcile.pod_events import read_events

STATEFUL_SET: dict[str, Any] = {"metadata": {"name": "main", "uid": "s1"}}
SERVING = {"status": {"containerStatuses": [{"name": "broker", "ready": True}]}}


def with_events() -> ApiServerInMemory:
    made = ApiServerInMemory()
    for name, uid in (("a", "s1"), ("b", "another")):
        made.objects["Event", "shop", name] = {
            "metadata": {"name": name, "namespace": "shop"},
            "involvedObject": {"uid": uid},
        }
    return made


async def test_those_about_the_stateful_set_are_read_while_there_is_no_pod() -> None:
    found = await read_events(with_events(), broker(), None, STATEFUL_SET, {})
    assert [each["metadata"] for each in found] == [{"name": "a", "namespace": "shop"}]


@pytest.mark.parametrize(("pod", "replicas"), [(SERVING, 1), (None, 0)])
async def test_nothing_is_asked_for_a_broker_that_serves_or_is_scaled_to_zero(pod: Any, replicas: int) -> None:
    kube = with_events()
    assert await read_events(kube, broker(replicas=replicas), pod, STATEFUL_SET, {}) == ()
    assert kube.requests == 0


@pytest.mark.parametrize("error", [Forbidden(403, "no"), KubeError(503, "away")])
async def test_a_role_without_the_right_to_list_events_stops_nothing(
    error: KubeError, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(
        api: ApiServerInMemory, kind: ApiResource, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> AsyncIterator[Manifest]:
        if kind.kind == "Event":
            raise error
        yield {}

    monkeypatch.setattr(ApiServerInMemory, "list", fails)
    if error.status == 403:
        assert await read_events(ApiServerInMemory(), broker(), None, STATEFUL_SET, {}) == ()
    else:
        with pytest.raises(KubeError):
            await read_events(ApiServerInMemory(), broker(), None, STATEFUL_SET, {})
