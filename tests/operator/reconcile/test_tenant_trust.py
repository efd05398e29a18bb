"""The CA of a Broker in the namespaces of those who use it, against an API server in memory."""

from __future__ import annotations

import asyncio
import logging

import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.resources import manifest_of

from penstock_api.resources import Broker, Declaring, Exchange
from penstock_operator.cluster.api_server import ApiResource, KubeError
from penstock_operator.manifest import Manifest
from penstock_operator.reconcile.tenant_trust import AT_ONCE, TenantTrust

CA = b"-----BEGIN CERTIFICATE-----\n"


class SlowApiServer(ApiServerInMemory):
    """Answers a GET when so many as `AT_ONCE` are on the way, or nobody else is going to ask."""

    def __init__(self) -> None:
        super().__init__()
        self.on_the_way = self.most = 0
        self.refuses: dict[str, int] = {}
        """The status with which a GET of a namespace fails."""

    async def get(self, kind: ApiResource, namespace: str | None, name: str) -> Manifest | None:
        self.on_the_way += 1
        self.most = max(self.most, self.on_the_way)
        for _ in range(100):
            await asyncio.sleep(0)
        self.on_the_way -= 1
        status = self.refuses.get(namespace or "")
        if status is not None:
            raise KubeError(status, "no")
        return await super().get(kind, namespace, name)


def broker() -> Broker:
    return Broker.model_validate(manifest_of("Broker", {}, None, {"name": "main", "namespace": "shop"}))


def tenants(count: int) -> dict[str, Declaring]:
    names = [f"team-{number}" for number in range(count)]
    return {
        name: Exchange.model_validate(manifest_of("Exchange", {}, None, {"name": "x", "namespace": name}))
        for name in names
    }


async def test_many_namespaces_are_looked_at_together_and_not_all_at_once() -> None:
    api = SlowApiServer()
    await TenantTrust(api).publish(broker(), tenants(100), CA)
    assert sum(kind == "ConfigMap" for kind, _, _ in api.objects) == 100
    assert api.most == AT_ONCE == 16


async def test_a_namespace_that_refuses_keeps_no_other_from_its_ca() -> None:
    api = SlowApiServer()
    api.refuses["team-3"] = 403
    await TenantTrust(api).publish(broker(), tenants(20), CA)
    assert sum(kind == "ConfigMap" for kind, _, _ in api.objects) == 19


async def test_an_api_server_that_is_overloaded_is_asked_no_further() -> None:
    api = SlowApiServer()
    api.refuses["team-0"] = 503
    with pytest.raises(KubeError) as raised:
        await TenantTrust(api).publish(broker(), tenants(100), CA)
    assert raised.value.status == 503
    assert sum(kind == "ConfigMap" for kind, _, _ in api.objects) <= 2 * AT_ONCE


async def test_what_lasts_is_logged_once_and_so_is_its_change_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    api = SlowApiServer()
    caplog.set_level(logging.INFO, "penstock_operator.reconcile.tenant_trust")
    trust, wanted = TenantTrust(api), tenants(3)

    async def passes(count: int) -> list[str]:
        """What so many passes log."""
        caplog.clear()
        for _ in range(count):
            await trust.publish(broker(), wanted, CA)
        return [f"{record.levelname} {record.getMessage()}" for record in caplog.records]

    api.refuses["team-1"] = 403
    refused = "WARNING the CA of Broker shop/main is not in namespace team-1: it can't be written: "
    (said,) = await passes(50)
    assert said.startswith(f"{refused}403: ")
    api.refuses["team-1"] = 409
    (said,) = await passes(50)
    assert said.startswith(f"{refused}409: ")
    foreign = {"name": "shop.main-ca", "namespace": "team-1", "uid": "uid-of-another"}
    api.objects["ConfigMap", "team-1", "shop.main-ca"] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": foreign,
    }
    del api.refuses["team-1"]
    assert await passes(50) == [
        "WARNING the CA of Broker shop/main is not in namespace team-1: the ConfigMap shop.main-ca there is "
        "somebody else's, so clients can't take the CA from it"
    ]
    del api.objects["ConfigMap", "team-1", "shop.main-ca"]
    assert await passes(50) == ["INFO the CA of Broker shop/main is in namespace team-1 now"]
    api.refuses["team-1"] = 403
    assert len(await passes(50)) == 1
    del wanted["team-1"]
    assert await passes(50) == [], "nobody there uses the Broker any more"
    wanted["team-1"] = tenants(2)["team-1"]
    assert len(await passes(1)) == 1
    trust.forget("shop/main")
    assert len(await passes(50)) == 1, "another Broker of the same name"
