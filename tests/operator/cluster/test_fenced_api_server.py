"""An operator that does not lead any more writes nothing to the API server, also in the middle of what it had begun."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.operator_in_memory import World, resource

from penstock_operator.cluster.api_server import API_RESOURCES, ApiServer, KubeError
from penstock_operator.cluster.fenced_api_server import FencedApiServer
from penstock_operator.manifest import Manifest

OBJECT: Manifest = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "main-ca", "namespace": "shop", "uid": "u", "resourceVersion": "1"},
}
EVENT: Manifest = {"kind": "Event", "metadata": {"namespace": "shop"}, "involvedObject": {"kind": "Broker"}}
CONFIG_MAP = API_RESOURCES["ConfigMap"]
Request = Callable[[FencedApiServer], Awaitable[object]]


async def listed(server: FencedApiServer) -> list[Manifest]:
    return [it async for it in server.list(CONFIG_MAP)]


READS: dict[str, Request] = {
    "get": lambda server: server.get(CONFIG_MAP, "shop", "main-ca"),
    "list": listed,
    "document": lambda server: server.document("/version"),
    "serves": lambda server: server.serves(CONFIG_MAP),
}
WRITES: dict[str, Request] = {
    "apply": lambda server: server.apply(OBJECT),
    "apply_status": lambda server: server.apply_status(OBJECT, {"conditions": []}, "penstock-operator"),
    "set_finalizers": lambda server: server.set_finalizers(OBJECT, ["penstock.dev/topology"]),
    "create": lambda server: server.create(EVENT),
    "delete": lambda server: server.delete(OBJECT),
}


def test_every_request_is_in_one_of_the_two_tables() -> None:
    asked = {name for name, it in vars(ApiServer).items() if callable(it) and not name.startswith("_")}
    assert asked == READS.keys() | WRITES.keys()


@pytest.mark.parametrize("name", [*READS, *WRITES])
async def test_who_leads_may_do_everything(name: str) -> None:
    api = ApiServerInMemory()
    api.objects["ConfigMap", "shop", "main-ca"] = {**OBJECT, "metadata": {**cast(Any, OBJECT)["metadata"]}}
    await (READS | WRITES)[name](FencedApiServer(api, lambda: True))
    assert api.requests == 1


@pytest.mark.parametrize("name", READS)
async def test_who_does_not_lead_reads(name: str) -> None:
    api = ApiServerInMemory()
    await READS[name](FencedApiServer(api, lambda: False))
    assert api.requests == 1


@pytest.mark.parametrize("name", WRITES)
async def test_who_does_not_lead_sends_no_write(name: str) -> None:
    api = ApiServerInMemory()
    with pytest.raises(KubeError, match="does not lead any more") as refused:
        await WRITES[name](FencedApiServer(api, lambda: False))
    assert (refused.value.status, refused.value.refusal, api.requests) == (0, None, 0)


@dataclass
class Lease:
    """It is lost as soon as so many writes have begun."""

    writes: int
    """Writes that are still allowed."""

    def leads(self) -> bool:
        self.writes -= 1
        return self.writes >= 0


def begun(lease: Lease) -> World:
    """An operator with a Broker and an Exchange; what it writes to the API server needs a Lease."""
    world = World()
    fenced = FencedApiServer(world.api, lease.leads)
    whole, brokers = world.reconciler, world.reconciler.brokers
    for part in (whole, whole.finalizers, whole.children, whole.paced, whole.bindings, brokers, brokers.facts):
        cast(Any, part).kube = fenced
    world.api.objects["Pod", "shop", "main-0"] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "main-0", "namespace": "shop"},
        "status": {"containerStatuses": [{"name": "broker", "ready": True}]},
    }
    for manifest in (resource("Broker", "main"), resource("Exchange", "orders")):
        world.api.user_applies(manifest)
    return world


async def passes(writes: int) -> tuple[list[str], bool, bool]:
    """What a pass over a new Subscription has done when the Lease is lost after so many of its writes: the finalizers
    that it has, whether the broker has it, and whether its status says so.
    """
    lease = Lease(1_000_000)
    world = begun(lease)
    await world.calm_down()
    world.api.user_applies(resource("Subscription", "billing"))
    world.tell(len(world.api.events))
    lease.writes = writes
    await world.reconcile_next(1)
    made = world.api.objects["Subscription", "shop", "billing"]
    return made["metadata"].get("finalizers", []), bool(world.broker.subscriptions), "status" in made


@pytest.mark.parametrize(
    ("writes", "expected"),
    [
        pytest.param(0, (list[str](), False, False), id="before-the-finalizer-nothing-follows"),
        pytest.param(1, (["penstock.dev/topology"], True, False), id="before-the-status"),
        pytest.param(9, (["penstock.dev/topology"], True, True), id="not-at-all"),
    ],
)
async def test_a_pass_ends_at_the_write_before_which_the_lease_was_lost(
    writes: int, expected: tuple[list[str], bool, bool]
) -> None:
    assert await passes(writes) == expected


async def test_what_was_refused_so_waits_for_the_next_attempt_like_any_failure() -> None:
    lease = Lease(1_000_000)
    world = begun(lease)
    await world.calm_down()
    world.api.user_applies(resource("Subscription", "billing"))
    world.tell(len(world.api.events))
    lease.writes = 0
    await world.reconcile_next(1)
    lease.writes = 1_000_000
    world.now += 30
    await world.reconcile_next(10)
    assert list(world.broker.subscriptions) == ["psub:durable:global:billing"]
