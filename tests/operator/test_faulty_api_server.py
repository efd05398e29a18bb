"""The whole operator, with kopf's watches and its Lease, behind a proxy that refuses, cuts and delays its requests.

In the end the broker has what the resources declare, and meanwhile nothing was deleted that should stay.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.api_server_over_http import kubeconfig_for, serving
from support.faulty_proxy import Fault, Faults, serving_faults
from support.management_in_memory import BrokerInMemory, ManagementInMemory
from support.operator_in_memory import resource

from penstock_operator.brokers.management import BrokerManagement, ManagementAccess
from penstock_operator.main import operate
from penstock_operator.settings import OperatorSettings

NUMBER = 30


@dataclass
class World:
    """An API server, a broker, and the resources that users want."""

    faults: Faults
    api: ApiServerInMemory = field(default_factory=ApiServerInMemory)
    broker: BrokerInMemory = field(default_factory=BrokerInMemory)
    deleted: list[str] = field(default_factory=list[str])
    """Of the broker's entities."""
    kubeconfig: str = ""
    server: str = ""
    """The URL of the API server without the faults."""

    def settings(self, identity: str, lease_seconds: int) -> OperatorSettings:
        return OperatorSettings(
            broker_image="b",
            lag_image="l",
            own_namespace="system",
            lease="penstock",
            lease_seconds=lease_seconds,
            identity=identity,
            liveness_host="127.0.0.1",
            liveness_port=0,
            resync_seconds=3,
            poll_seconds=1,
            workers=8,
        )

    async def connect(self, _access: ManagementAccess) -> BrokerManagement:
        return ManagementInMemory(self.broker, self.deleted)

    def start(self, identity: str, kubeconfig: str = "", lease_seconds: int = 15) -> asyncio.Task[None]:
        settings = self.settings(identity, lease_seconds)
        return asyncio.create_task(operate(settings, self.connect, kubeconfig or self.kubeconfig))

    def watches(self) -> int:
        """How many watches were opened."""
        return sum(is_watch for *_, is_watch in self.faults.requests)

    def begin(self) -> None:
        """A Broker whose pod serves, an Exchange and many Subscriptions."""
        self.api.objects["Pod", "shop", "main-0"] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "main-0", "namespace": "shop"},
            "status": {"containerStatuses": [{"name": "broker", "ready": True}]},
        }
        self.api.user_applies(resource("Broker", "main"))
        self.api.user_applies(resource("Exchange", "orders"))
        for number in range(NUMBER):
            self.api.user_applies(resource("Subscription", f"s{number}"))

    def wanted(self) -> set[str]:
        """The subscriptions that the broker must have."""
        return {
            f"psub:durable:global:{name}"
            for (kind, _, name), it in self.api.objects.items()
            if kind == "Subscription" and "deletionTimestamp" not in it["metadata"]
        }

    def is_settled(self) -> bool:
        """Whether the broker has what is declared, every status says so, and nothing waits for its end."""
        own = [it for (kind, *_), it in self.api.objects.items() if kind in ("Broker", "Exchange", "Subscription")]
        return (
            set(self.broker.subscriptions) == self.wanted()
            and not any("deletionTimestamp" in it["metadata"] for it in own)
            and all(ready(it) for it in own)
        )


def ready(manifest: Any) -> bool:
    status, metadata = manifest.get("status", {}), manifest["metadata"]
    said = {it["type"]: it["status"] for it in status.get("conditions", [])}
    return said.get("Ready") == "True" and status.get("observedGeneration") == metadata["generation"]


def fails(_method: str, _path: str, _is_watch: bool) -> Fault:
    return Fault.SERVER_ERROR


def works(_method: str, _path: str, _is_watch: bool) -> None:
    return None


@asynccontextmanager
async def open_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: Faults) -> AsyncGenerator[World]:
    world = World(faults)
    async with serving(world.api) as server, serving_faults(server, faults) as proxy:
        world.server = server
        world.kubeconfig = kubeconfig_for(proxy, tmp_path / "kubeconfig")
        monkeypatch.setenv("KUBECONFIG", world.kubeconfig)
        yield world


async def wait_for(true: Callable[[], bool], *tasks: asyncio.Task[None], seconds: float = 300) -> float:
    """Wait until something is true, and fail early if an operator ends; how long it took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not true():
        for task in tasks:
            assert not task.done(), task
        assert loop.time() - began < seconds, "it did not become true"
        await asyncio.sleep(0.05)
    return loop.time() - began


async def stop(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("seed", [1, 2])
async def test_whatever_the_api_server_does_the_topology_converges(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_world(tmp_path, monkeypatch, Faults(seed)) as world:
        world.begin()
        chance, gone = random.Random(seed), set[str]()
        operator = world.start("a", lease_seconds=60)
        await wait_for(world.is_settled, operator)
        world.faults.rate = 0.25
        for step in range(40):
            await asyncio.sleep(0.25)
            name = f"s{chance.randrange(NUMBER)}"
            if step % 2:
                world.api.user_deletes("Subscription", "shop", name)
                gone.add(f"psub:durable:global:{name}")
            else:
                world.api.user_applies(resource("Subscription", f"t{step}"))
            assert not operator.done(), operator
        assert len(world.faults.happened) >= 2
        world.faults.rate = 0.0
        await wait_for(world.is_settled, operator)
        assert set(world.deleted) <= gone
        assert world.api.objects["Lease", "system", "penstock"]["spec"]["holderIdentity"] == "a"
        await stop(operator)


async def test_an_operator_that_goes_hands_over_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_world(tmp_path, monkeypatch, Faults(1)) as world:
        world.begin()
        first = world.start("a", lease_seconds=120)
        await wait_for(world.is_settled, first)
        second = world.start("b", lease_seconds=120)
        await wait_for(lambda: world.watches() >= 2 * 7, first, second)
        versions = {
            name: it["metadata"]["resourceVersion"]
            for (kind, _, name), it in world.api.objects.items()
            if kind == "Subscription"
        }
        await stop(first)
        world.api.user_applies(resource("Subscription", "late"))
        # The Lease would be over after two minutes. The other one asks for it every 16 s.
        assert await wait_for(world.is_settled, second) < 100
        assert world.api.objects["Lease", "system", "penstock"]["spec"]["holderIdentity"] == "b"
        after = {
            name: world.api.objects["Subscription", "shop", name]["metadata"]["resourceVersion"] for name in versions
        }
        assert after == versions, "what is unchanged is not written again"
        assert world.deleted == []
        await stop(second)


async def test_a_leader_without_an_api_server_stops_and_the_other_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_world(tmp_path, monkeypatch, Faults(1)) as world, serving_faults(world.server, Faults(1)) as other:
        world.begin()
        first = world.start("a")
        await wait_for(world.is_settled, first)
        second = world.start("b", kubeconfig_for(other, tmp_path / "second"))
        await wait_for(lambda: world.watches() >= 2 * 7, first, second)
        world.faults.always = fails
        world.api.user_applies(resource("Subscription", "late"))
        await wait_for(world.is_settled, first, second)
        assert world.api.objects["Lease", "system", "penstock"]["spec"]["holderIdentity"] == "b"
        assert world.deleted == []
        # It waits now, and leads again after the other one.
        world.faults.always = works
        await stop(second)
        world.api.user_applies(resource("Subscription", "later"))
        await wait_for(world.is_settled, first)
        assert world.api.objects["Lease", "system", "penstock"]["spec"]["holderIdentity"] == "a"
        await stop(first)


async def test_an_operator_alone_goes_on_after_an_outage_longer_than_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The process does not end: the container of one that ends is started again after a pause that doubles."""
    async with open_world(tmp_path, monkeypatch, Faults(1)) as world:
        world.begin()
        operator = world.start("a", lease_seconds=5)
        await wait_for(world.is_settled, operator)
        world.faults.always = fails
        # What is under way when it stops must not stay in the work queue of the time before.
        world.api.user_applies(resource("Subscription", "late"))
        world.api.user_deletes("Subscription", "shop", "s1")
        await wait_for(lambda: "could not be renewed" in caplog.text, operator)
        assert "psub:durable:global:late" not in world.broker.subscriptions
        world.faults.always = works
        await wait_for(world.is_settled, operator)
        assert world.api.objects["Lease", "system", "penstock"]["spec"]["leaseTransitions"] == 0
        assert world.deleted == ["psub:durable:global:s1"]
        await stop(operator)


async def test_a_server_that_refuses_everything_is_asked_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For ten seconds each answer is 429 with Retry-After: 1. Without pauses there would be thousands of requests."""
    async with open_world(tmp_path, monkeypatch, Faults(1)) as world:
        world.begin()
        operator = world.start("a")
        await wait_for(world.is_settled, operator)
        world.faults.always = lambda _method, path, _is_watch: None if "leases" in path else Fault.TOO_MANY
        for number in range(NUMBER):
            world.api.user_deletes("Subscription", "shop", f"s{number}")
        world.faults.requests.clear()
        await asyncio.sleep(10)
        asked = [(at, path) for at, _, path, fault, _ in world.faults.requests if fault is Fault.TOO_MANY]
        # Eight workers try at once, then all rest for a second; lists and watches come on top.
        assert len(asked) < 150
        world.faults.always = works
        await wait_for(world.is_settled, operator)
        assert world.broker.subscriptions == {}
        await stop(operator)
