"""The operator with an API server and a broker in memory: the Secret of a binding, and rights, from end to end."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from support.faulty_api_server import Fault, FaultyApiServer
from support.operator_in_memory import World, resource
from support.resources import broker_state
from support.virtual_time import run_in_virtual_time

from penstock_operator.cluster.cache import ResourceKey

BINDING = ("Secret", "shop", "billing-binding")
BILLING = ("Subscription", "shop", "billing")
BROKER = ResourceKey("Broker", "shop", "main")
QUEUE = "psub:durable:global:billing"
DELEGATING: dict[str, Any] = {"permissions": [], "delegatedPermissions": {}}
APP: list[Any] = [{"serviceAccounts": ["app"]}]


async def world_with(subscription: dict[str, Any], world: World | None = None, **of_broker: Any) -> World:
    world = World() if world is None else world
    for manifest in (
        resource("Broker", "main", **of_broker),
        resource("Exchange", "orders", publishers=APP if of_broker else []),
        resource("Subscription", "billing", **subscription),
    ):
        world.api.user_applies(manifest)
    await world.calm_down()
    return world


def entry(world: World, key: str) -> str:
    return base64.b64decode(world.api.objects[BINDING]["data"][key]).decode()


def consumers(world: World) -> tuple[str, ...]:
    return world.broker.subscriptions[QUEUE].consumers


def publishers(world: World) -> tuple[str, ...]:
    return world.broker.exchanges["orders"].publishers


def trusted_by_the_observer(world: World) -> str:
    return base64.b64decode(world.api.objects["Secret", "shop", "main-observer"]["data"]["ca.crt"]).decode()


def condition(world: World, type: str) -> tuple[str, str]:
    conditions = world.api.objects[BILLING]["status"]["conditions"]
    return next((it["status"], it["reason"]) for it in conditions if it["type"] == type)


async def test_who_asks_for_no_binding_gets_none() -> None:
    world = await world_with({})
    assert BINDING not in world.api.objects
    assert "binding" not in world.api.objects[BILLING]["status"]


async def test_the_secret_is_named_in_the_status_and_follows_the_ca() -> None:
    world = await world_with({"binding": {}})
    assert world.api.objects[BILLING]["status"]["binding"] == {"name": "billing-binding"}
    assert condition(world, "BindingSecret") == ("True", "Written")
    old = entry(world, "ca.crt")
    assert old == trusted_by_the_observer(world)
    del world.api.objects["Secret", "shop", "main-ca"]
    world.api.user_applies(resource("Broker", "main", idleTimeoutSeconds=30))
    await world.calm_down()
    assert entry(world, "ca.crt") not in ("", old)
    assert entry(world, "ca.crt") == trusted_by_the_observer(world)


async def test_a_new_ca_is_written_in_its_turn_and_not_at_once() -> None:
    world = await world_with({"binding": {}})
    found = world.reconciler.brokers.findings[BROKER]
    assert found.trusted is not None
    found.trusted += b"another"
    before = len(world.api.events)
    await world.reconciler.reconcile(ResourceKey("Subscription", "shop", "billing"))
    assert not entry(world, "ca.crt").endswith("another")
    assert len(world.api.events) == before
    await world.reconciler.bindings.write_all()
    assert entry(world, "ca.crt").endswith("another")


def test_a_new_ca_is_written_later_if_the_api_server_has_too_much_to_do() -> None:
    async def rewritten() -> float:
        api = FaultyApiServer(retry_after_seconds=5)
        world = await world_with({"binding": {}}, World(api=api))
        found = world.reconciler.brokers.findings[BROKER]
        assert found.trusted is not None
        found.trusted += b"another"
        await world.reconciler.reconcile(ResourceKey("Subscription", "shop", "billing"))
        api.faults = [Fault(429, False)]
        began = asyncio.get_running_loop().time()
        await world.reconciler.bindings.write_all()
        assert entry(world, "ca.crt").endswith("another")
        return asyncio.get_running_loop().time() - began

    assert run_in_virtual_time(rewritten()) == pytest.approx(5)


async def test_a_secret_of_somebody_else_is_left_alone_and_named() -> None:
    world = World()
    foreign = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "billing-binding", "namespace": "shop"}}
    world.api.user_applies({**foreign, "data": {"theirs": "eA=="}})
    for manifest in (
        resource("Broker", "main"),
        resource("Exchange", "orders"),
        resource("Subscription", "billing", binding={}),
    ):
        world.api.user_applies(manifest)
    await world.calm_down()
    assert world.api.objects[BINDING]["data"] == {"theirs": "eA=="}
    assert condition(world, "BindingSecret") == ("False", "NameTaken")
    assert condition(world, "Ready") == ("True", "Ready")
    assert "binding" not in world.api.objects[BILLING]["status"]


async def test_the_secret_goes_with_the_wish_and_with_the_subscription() -> None:
    world = await world_with({"binding": {}})
    assert BINDING in world.api.objects
    world.api.user_applies(resource("Subscription", "billing"))
    await world.calm_down()
    assert BINDING not in world.api.objects
    assert "binding" not in world.api.objects[BILLING]["status"]
    world.api.user_applies(resource("Subscription", "billing", binding={}))
    await world.calm_down()
    assert BINDING in world.api.objects
    world.api.user_deletes("Subscription", "shop", "billing")
    await world.calm_down()
    assert BINDING not in world.api.objects


async def test_what_is_unchanged_costs_no_request() -> None:
    world = await world_with({"binding": {}})
    before = len(world.api.events)
    secret = world.api.objects[BINDING]["metadata"]["resourceVersion"]
    await world.calm_down()
    assert world.api.objects[BINDING]["metadata"]["resourceVersion"] == secret
    assert len(world.api.events) == before


async def test_rights_reach_the_broker_and_end_when_the_broker_delegates_none() -> None:
    world = await world_with({"consumers": APP}, **DELEGATING)
    assert consumers(world) == ("system:serviceaccount:shop:app",)
    assert publishers(world) == ("system:serviceaccount:shop:app",)
    assert condition(world, "Permitted") == ("True", "Granted")
    world.api.user_applies(resource("Broker", "main", permissions=[]))
    # The change of the Broker alone reaches what is declared on it: no list, and no resync.
    world.tell(len(world.api.events))
    await world.reconcile_next(100)
    assert consumers(world) == ()
    assert publishers(world) == ()
    assert condition(world, "Permitted") == ("False", "NotDelegated")


async def test_rights_end_with_what_the_resource_says() -> None:
    world = await world_with({"consumers": APP}, **DELEGATING)
    world.api.user_applies(resource("Subscription", "billing"))
    world.tell(len(world.api.events))
    await world.reconcile_next(100)
    assert consumers(world) == ()


async def test_what_is_retained_stays_without_rights() -> None:
    world = await world_with({"consumers": APP, "deletionPolicy": "Retain"}, **DELEGATING)
    assert consumers(world) == ("system:serviceaccount:shop:app",)
    world.sessions.open["shop/main"].state = broker_state(understands=("subscription.consumers",))
    world.api.user_deletes("Subscription", "shop", "billing")
    await world.calm_down()
    assert BILLING not in world.api.objects
    assert consumers(world) == ()
