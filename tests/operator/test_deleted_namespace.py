"""A namespace is deleted with everything in it, while its broker does not answer, or while the operator can't read what
is in it: it must not stay `Terminating`. The API server and the controllers that delete a namespace and what it owned
are real ones.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.api_server_alone import ApiServerAlone, api_server_alone
from support.broker_process import BrokerProcess
from support.ended_operator import end_operator
from support.operator_in_memory import resource
from support.waiting import wait_until

from penstock_amqp.client.management import ManagementClient
from penstock_api.management import EntityType
from penstock_operator.brokers.management import BrokerManagement, Connector, ManagementAccess, Unreachable
from penstock_operator.brokers.management_amqp import AmqpManagement
from penstock_operator.main import operate
from penstock_operator.settings import OperatorSettings

pytestmark = pytest.mark.built

CONTROLLERS = ("namespace-controller", "garbage-collector-controller")
SETTINGS = OperatorSettings(
    broker_image="b", lag_image="l", own_namespace="default", liveness_host="127.0.0.1", liveness_port=0, lease=""
)
READY = 'jsonpath={.status.conditions[?(@.type=="Ready")].reason}'
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
    connect: Connector = no_broker
    running: asyncio.Task[None] | None = None

    def apply(self, *manifests: Any) -> None:
        path = self.folder / "applied.yaml"
        path.write_text(yaml.safe_dump_all(manifests))
        self.server.kubectl("apply", "-f", str(path))

    @asynccontextmanager
    async def operator(self) -> AsyncGenerator[None]:
        self.running = asyncio.create_task(operate(SETTINGS, self.connect, str(self.server.kubeconfig)))
        yield
        running, self.running = self.running, None
        await end_operator(running)

    async def until(self, *arguments: str, says: str) -> None:
        """Wait until kubectl says exactly this."""

        async def is_so() -> bool:
            assert self.running is None or not self.running.done(), self.running
            return await asyncio.to_thread(self.server.kubectl, *arguments) == says

        await wait_until(is_so)

    async def edit(self, name: str, patch: Any) -> None:
        """Change a Subscription, as soon as the API server takes it: it reads a new CRD a moment later."""
        edit = ("-n", "shop", "patch", "psub", name, "--type=merge", "-p", json.dumps(patch))

        async def is_taken() -> bool:
            try:
                await asyncio.to_thread(self.server.kubectl, *edit)
            except subprocess.CalledProcessError:
                return False
            return True

        await wait_until(is_taken)

    def install_crd(self, *later: str) -> None:
        """That of Subscriptions, of this release or of a later one with more words for `rebindPolicy`."""
        path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/rebindPolicy/enum"
        words = ["InPlace", "WhenIdle", "WhenIdleAndEmpty", "Never", *later]
        patch = json.dumps([{"op": "replace", "path": path, "value": words}])
        self.server.kubectl("patch", "crd", "subscriptions.penstock.dev", "--type=json", "-p", patch)

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


async def test_while_the_operator_cannot_read_what_is_in_it(site: Site) -> None:
    """CRDs and operator were rolled back, and one of the resources has a value that only the later release knows."""
    broker = resource("Broker", "main", allowedNamespaces=["shop"])
    broker["metadata"]["namespace"] = "infra"
    site.apply(broker, *declaring({"name": "main", "namespace": "infra"}))
    with BrokerProcess(site.folder / "broker") as process:

        async def connect(_access: ManagementAccess) -> BrokerManagement:
            return AmqpManagement(await ManagementClient.connect(process.management), "the broker")

        async def queues() -> list[object]:
            asking = await ManagementClient.connect(process.management)
            rows = await asking.query_all(EntityType.SUBSCRIPTION, attributes=["queueName"])
            await asking.close()
            return [row["queueName"] for row in rows]

        site.connect = connect
        async with site.operator():
            await site.declared()
            await site.until("-n", "shop", "get", "psub", "billing", "-o", READY, says="Ready")
            site.install_crd("Later")
            await site.edit("billing", {"spec": {"rebindPolicy": "Later"}})
            site.install_crd()
            await site.until("-n", "shop", "get", "psub", "billing", "-o", READY, says="InvalidSpec")
            site.server.kubectl("delete", "namespace", "shop", "--wait=false")
            await site.gone()
        assert await queues() == ["psub:durable:global:billing"], "it is left to the collector"
