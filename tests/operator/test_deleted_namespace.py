"""A namespace is deleted with everything in it, while its broker does not answer: it must not stay `Terminating`. The
API server and the controllers that delete a namespace and what it owned are real ones.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.api_server_alone import ApiServerAlone, api_server_alone
from support.ended_operator import end_operator
from support.operator_in_memory import resource
from support.waiting import wait_until

from penstock_operator.brokers.management import BrokerManagement, ManagementAccess, Unreachable
from penstock_operator.main import operate
from penstock_operator.settings import OperatorSettings

pytestmark = pytest.mark.built

CONTROLLERS = ("namespace-controller", "garbage-collector-controller")
SETTINGS = OperatorSettings(
    broker_image="b", lag_image="l", own_namespace="default", liveness_host="127.0.0.1", liveness_port=0, lease=""
)
DECLARING = ("exchange.penstock.dev/orders", "subscription.penstock.dev/billing", "queue.penstock.dev/invoices")


async def no_broker(_access: ManagementAccess) -> BrokerManagement:
    raise Unreachable("there is no broker")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServerAlone]:
    with api_server_alone(tmp_path, CONTROLLERS, ("shop", "infra")) as made:
        yield made


@dataclass
class Site:
    """An API server, and an operator that runs now and then."""

    server: ApiServerAlone
    folder: Path
    running: asyncio.Task[None] | None = None

    def apply(self, *manifests: Any) -> None:
        path = self.folder / "applied.yaml"
        path.write_text(yaml.safe_dump_all(manifests))
        self.server.kubectl("apply", "-f", str(path))

    @asynccontextmanager
    async def operator(self) -> AsyncGenerator[None]:
        self.running = asyncio.create_task(operate(SETTINGS, no_broker, str(self.server.kubeconfig)))
        yield
        running, self.running = self.running, None
        await end_operator(running)

    async def until(self, *arguments: str, says: str) -> None:
        """Wait until kubectl says exactly this."""

        async def is_so() -> bool:
            assert self.running is None or not self.running.done(), self.running
            return await asyncio.to_thread(self.server.kubectl, *arguments) == says

        await wait_until(is_so)

    async def declared(self) -> None:
        """Everything has the operator's finalizer."""
        path = "jsonpath={.items[*].metadata.finalizers}"
        mark = '["penstock.dev/topology"]'
        await self.until("-n", "shop", "get", *DECLARING, "-o", path, says=" ".join([mark] * 3))

    async def gone(self) -> None:
        """The namespace is gone."""
        await self.until("get", "namespace", "shop", "--ignore-not-found", says="")


@pytest.fixture
def site(server: ApiServerAlone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    return Site(server, tmp_path)


def declaring(broker: dict[str, str]) -> list[Any]:
    """One of each kind that is declared on a Broker, which must go from the broker before it may go."""
    exchange, subscription, queue = (
        resource(kind, name, brokerRef=broker, deletionPolicy="Delete")
        for kind, name in (("Exchange", "orders"), ("Subscription", "billing"), ("Queue", "invoices"))
    )
    return [exchange, subscription, queue]


@pytest.mark.parametrize("first", ["", "secrets,configmaps,services,statefulsets"], ids=["at-once", "children-first"])
async def test_with_its_broker(site: Site, first: str) -> None:
    site.apply(resource("Broker", "main"), *declaring({"name": "main"}))
    async with site.operator():
        await site.declared()
        if first:
            site.server.kubectl("-n", "shop", "delete", first, "--all", "--wait=false")
        site.server.kubectl("delete", "namespace", "shop", "--wait=false")
        await site.gone()


async def test_while_its_broker_lives_in_another_one(site: Site) -> None:
    """It does not answer, so what is declared on it is waited for, but for 30 seconds only."""
    broker = resource("Broker", "main", allowedNamespaces=["shop"])
    broker["metadata"]["namespace"] = "infra"
    site.apply(broker, *declaring({"name": "main", "namespace": "infra"}))
    async with site.operator():
        await site.declared()
        site.server.kubectl("delete", "namespace", "shop", "--wait=false")
        await site.gone()
        assert json.loads(site.server.kubectl("-n", "infra", "get", "broker", "main", "-o", "json"))["status"]


async def test_while_the_operator_is_away(site: Site) -> None:
    """Its finalizer is there, as the operator before it has left it."""
    made = declaring({"name": "main"})
    for each in made:
        each["metadata"]["finalizers"] = ["penstock.dev/topology"]
    site.apply(resource("Broker", "main"), *made)
    site.server.kubectl("delete", "namespace", "shop", "--wait=false")
    remaining = 'jsonpath={.status.conditions[?(@.type=="NamespaceFinalizersRemaining")].status}'
    await site.until("get", "namespace", "shop", "-o", remaining, says="True")
    async with site.operator():
        await site.gone()
