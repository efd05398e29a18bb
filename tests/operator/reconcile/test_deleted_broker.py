"""A Broker is deleted, and its resources stay: what they say while it goes, and what it costs to say it."""

from __future__ import annotations

import asyncio

import pytest
from support.operator_in_memory import World, resource
from support.virtual_time import run_in_virtual_time

from penstock_operator.reconcile.write_pace import WritePace

KINDS = (("Exchange", "orders"), ("Subscription", "billing"), ("Queue", "invoices"))


def reasons(world: World) -> set[tuple[str, str]]:
    """Status and reason of condition Ready, of all that is declared."""
    shown = [it["status"]["conditions"] for key, it in world.api.objects.items() if key[:1] in {(k,) for k, _ in KINDS}]
    return {(it["status"], it["reason"]) for conditions in shown for it in conditions if it["type"] == "Ready"}


async def begun(subscriptions: int = 1) -> World:
    """Everything is Ready."""
    world = World()
    world.api.user_applies(resource("Broker", "main"))
    for kind, name in KINDS:
        world.api.user_applies(resource(kind, name))
    for number in range(subscriptions - 1):
        world.api.user_applies(resource("Subscription", f"s{number}"))
    await world.controller.list_all(world.api, ())
    await world.reconcile_next(25_000)
    await world.reconcile_next(25_000)
    assert reasons(world) == {("True", "Ready")}
    return world


def delete_broker(world: World, *, waits: bool) -> None:
    """kubectl delete; `waits`: somebody else's finalizer, such as `--cascade=foreground` sets, holds it."""
    if waits:
        world.api.objects["Broker", "shop", "main"]["metadata"]["finalizers"] = ["foregroundDeletion"]
    world.api.user_deletes("Broker", "shop", "main")
    world.tell(len(world.api.events))


def release_broker(world: World) -> None:
    """Whoever held it lets it go."""
    del world.api.objects["Broker", "shop", "main"]
    world.api.collect_garbage()


async def test_what_is_declared_on_a_broker_that_is_being_deleted_says_so_until_there_is_another() -> None:
    world = await begun()
    delete_broker(world, waits=True)
    await world.reconcile_next(100)
    assert reasons(world) == {("False", "BrokerDeleting")}
    held = dict(world.broker.exchanges)
    world.api.user_applies(resource("Exchange", "parcels"))
    world.tell(len(world.api.events))
    await world.reconcile_next(100)
    assert reasons(world) == {("False", "BrokerDeleting")}
    assert world.broker.exchanges == held, "a new one is not declared"
    assert "finalizers" not in world.api.objects["Exchange", "shop", "parcels"]["metadata"], "nor held"
    release_broker(world)
    await world.controller.list_all(world.api, ())
    await world.reconcile_next(100)
    assert reasons(world) == {("False", "BrokerNotFound")}
    world.api.user_applies(resource("Broker", "main"))
    await world.calm_down()
    assert reasons(world) == {("True", "Ready")}
    assert "parcels" in world.broker.exchanges


async def test_no_deletion_waits_for_a_broker_that_is_being_deleted() -> None:
    world = await begun()
    delete_broker(world, waits=True)
    await world.reconcile_next(100)
    for kind, name in KINDS:
        world.api.user_deletes(kind, "shop", name)
    world.tell(len(world.api.events))
    await world.reconcile_next(100)
    assert [key for key in world.api.objects if key[0] in {kind for kind, _ in KINDS}] == []


@pytest.mark.parametrize("waits", [True, False])
def test_a_thousand_resources_of_a_deleted_broker_are_told_at_a_limited_rate_and_without_events(waits: bool) -> None:
    async def story() -> tuple[World, float]:
        world = await begun(1_000)
        world.api.writes.clear()
        world.reconciler.paced.pace = WritePace(100)
        delete_broker(world, waits=waits)
        now = asyncio.get_running_loop().time
        before = now()
        await world.reconcile_next(25_000)
        return world, now() - before

    world, seconds = run_in_virtual_time(story())
    assert reasons(world) == {("False", "BrokerDeleting" if waits else "BrokerNotFound")}
    assert world.api.writes == {"Exchange": 1, "Queue": 1, "Subscription": 1_000}
    assert seconds == pytest.approx(10.01)
