"""The documented order of an upgrade: the CRDs come first, so a resource may use a field that the operator does not
know yet. Nothing of what it has declared may be lost, from its manifest to the collector of orphans.
"""

from __future__ import annotations

from typing import Any, cast

import pytest
from support.operator_in_memory import World, resource

from penstock_operator.cluster.cache import ResourceKey

MAIN = ResourceKey("Broker", "shop", "main")
QUEUE = "psub:durable:global:billing"
ORPHAN = "psub:durable:global:fraud"
BEGUN = (
    resource("Broker", "main"),
    resource("Exchange", "orders", deletionPolicy="Delete"),
    resource("Subscription", "billing"),
    resource("Subscription", "fraud"),
)


async def begun() -> World:
    """A world in which everything is declared, and then one Subscription went without the operator seeing it."""
    world = World()
    for manifest in BEGUN:
        world.api.user_applies(manifest)
    await world.calm_down()
    assert set(world.broker.subscriptions) == {QUEUE, ORPHAN}
    del world.api.objects["Subscription", "shop", "fraud"]
    return world


async def pass_time(world: World, minutes: int = 30) -> None:
    """Lists, reconciles and looks for orphans, one each minute."""
    for _ in range(minutes):
        await world.controller.list_all(cast(Any, world.api), ())
        await world.reconcile_next(100)
        await world.collector.run()
        world.now += 60


def edit(world: World, kind: str, name: str, spec: dict[str, object]) -> None:
    """The user writes what the new CRD allows."""
    there = world.api.objects[kind, "shop", name]
    world.api.user_applies({**there, "spec": {**there["spec"], **spec}})


def conditions(world: World, kind: str, name: str) -> dict[str, tuple[str, str, str]]:
    shown = world.api.objects[kind, "shop", name]["status"]["conditions"]
    return {it["type"]: (it["status"], it["reason"], it["message"]) for it in shown}


def orphans(world: World) -> list[tuple[str, str]]:
    shown = world.api.objects["Broker", "shop", "main"]["status"].get("orphans", [])
    return [(it["name"], it["reason"]) for it in shown]


@pytest.mark.parametrize(
    ("kind", "name", "spec"),
    [
        pytest.param("Subscription", "billing", {"fromTheFuture": 1}, id="a-new-field-of-the-subscription"),
        pytest.param("Subscription", "billing", {"durability": "Mirrored"}, id="its-name-can-t-be-read-either"),
        pytest.param("Subscription", "billing", {"brokerRef": {"selector": "main"}}, id="nor-its-broker"),
        pytest.param("Exchange", "orders", {"fromTheFuture": 1}, id="a-new-field-of-the-exchange"),
        pytest.param("Broker", "main", {"fromTheFuture": 1}, id="a-new-field-of-the-broker"),
    ],
)
async def test_a_new_field_costs_nothing_that_was_declared(kind: str, name: str, spec: dict[str, object]) -> None:
    world = await begun()
    edit(world, kind, name, spec)
    await pass_time(world)
    assert set(world.broker.subscriptions) == {QUEUE, ORPHAN}, "nothing is collected while something can't be read"
    assert set(world.broker.exchanges) == {"orders"}
    ready = conditions(world, kind, name)["Ready"]
    assert ready[:2] == ("False", "InvalidSpec")
    assert f"{kind} {name}: spec." in ready[2]
    there = world.api.objects[kind, "shop", name]
    world.api.user_applies({**there, "spec": next(it["spec"] for it in BEGUN if it["metadata"]["name"] == name)})
    await pass_time(world)
    assert set(world.broker.subscriptions) == {QUEUE}, "what is an orphan is collected as soon as all can be read"
    assert conditions(world, "Subscription", "billing")["Ready"][:2] == ("True", "Ready")


async def test_what_is_held_is_listed_and_what_can_t_be_read_is_no_orphan() -> None:
    world = await begun()
    edit(world, "Subscription", "billing", {"durability": "Mirrored"})
    await pass_time(world)
    assert orphans(world) == [(ORPHAN, "Held")]


async def test_it_keeps_the_address_and_the_queue_in_its_status() -> None:
    world = await begun()
    edit(world, "Subscription", "billing", {"fromTheFuture": 1})
    await pass_time(world, 2)
    shown = world.api.objects["Subscription", "shop", "billing"]["status"]
    assert (shown["queueName"], shown["address"]) == (QUEUE, "amqps://orders-x.shop.svc:5671/orders")


async def test_the_log_tells_of_it_once(caplog: pytest.LogCaptureFixture) -> None:
    world = await begun()
    edit(world, "Exchange", "orders", {"fromTheFuture": 1})
    for _ in range(10):
        world.controller.enqueue(ResourceKey("Exchange", "shop", "orders"))
        await pass_time(world, 1)
    (told,) = [message for message in caplog.messages if "can't be parsed" in message]
    assert told.startswith("Exchange shop/orders can't be parsed: Exchange orders: spec.")


async def test_what_refers_to_it_says_so() -> None:
    world = await begun()
    edit(world, "Exchange", "orders", {"fromTheFuture": 1})
    await pass_time(world, 2)
    said = (
        "False",
        "ReferenceUnreadable",
        "This operator can't read Exchange orders; its condition Ready says why. The broker keeps what it has."
        " See docs/how-to/runbooks/reasons.md#ReferenceUnreadable.",
    )
    assert conditions(world, "Subscription", "billing")["Accepted"] == said


async def test_its_deletion_waits_for_an_operator_that_can_read_it() -> None:
    world = await begun()
    edit(world, "Subscription", "billing", {"fromTheFuture": 1})
    await pass_time(world, 2)
    world.api.user_deletes("Subscription", "shop", "billing")
    await pass_time(world)
    assert conditions(world, "Subscription", "billing")["DeletionBlocked"][:2] == ("True", "InvalidSpec")
    assert set(world.broker.subscriptions) == {QUEUE, ORPHAN}
    # The operator that replaces this one knows the field: here, the field is simply gone.
    del world.api.objects["Subscription", "shop", "billing"]["spec"]["fromTheFuture"]
    newer = World(api=world.api, broker=world.broker, now=world.now)
    await pass_time(newer)
    assert ("Subscription", "shop", "billing") not in newer.api.objects
    assert set(newer.broker.subscriptions) == set()


async def test_a_forced_deletion_leaves_what_it_declared_to_the_collector() -> None:
    world = await begun()
    edit(world, "Subscription", "billing", {"fromTheFuture": 1})
    await pass_time(world, 2)
    world.api.objects["Subscription", "shop", "billing"]["metadata"]["annotations"] = {
        "penstock.dev/force-delete": "true"
    }
    world.api.user_deletes("Subscription", "shop", "billing")
    await pass_time(world, 9)
    assert ("Subscription", "shop", "billing") not in world.api.objects
    assert QUEUE in world.broker.subscriptions, "ten minutes are left to make the resource again"
    await pass_time(world, 5)
    assert QUEUE not in world.broker.subscriptions


async def test_it_does_not_hold_its_namespace_if_its_deletion_policy_is_what_was_declared() -> None:
    world = await begun()
    edit(world, "Subscription", "billing", {"fromTheFuture": 1, "deletionPolicy": "Delete"})
    await pass_time(world, 2)
    world.api.terminating.add("shop")
    world.api.user_deletes("Subscription", "shop", "billing")
    await pass_time(world, 2)
    assert ("Subscription", "shop", "billing") not in world.api.objects
    assert QUEUE in world.broker.subscriptions, "ten minutes are left to make the resource again"
    await pass_time(world, 12)
    assert QUEUE not in world.broker.subscriptions


@pytest.mark.parametrize("policy", ["Retain", "Archive"])
async def test_it_holds_its_namespace_if_what_was_declared_would_lose_its_messages_in_another_way(policy: str) -> None:
    """The edit that can't be read has also changed the deletionPolicy, so the broker's mark is an old one."""
    world = await begun()
    edit(world, "Subscription", "billing", {"fromTheFuture": 1, "deletionPolicy": policy})
    await pass_time(world, 2)
    world.api.terminating.add("shop")
    world.api.user_deletes("Subscription", "shop", "billing")
    await pass_time(world)
    assert conditions(world, "Subscription", "billing")["DeletionBlocked"][:2] == ("True", "InvalidSpec")
    assert QUEUE in world.broker.subscriptions


async def test_it_holds_its_namespace_while_its_broker_does_not_answer() -> None:
    world = await begun()
    edit(world, "Subscription", "billing", {"fromTheFuture": 1, "deletionPolicy": "Delete"})
    await pass_time(world, 2)
    world.broker.is_up = False
    world.api.terminating.add("shop")
    world.api.user_deletes("Subscription", "shop", "billing")
    await pass_time(world)
    assert conditions(world, "Subscription", "billing")["DeletionBlocked"][:2] == ("True", "InvalidSpec")
    world.broker.is_up = True
    world.controller.enqueue_with_dependents(MAIN)  # as a session does that has connected
    await pass_time(world, 2)
    assert ("Subscription", "shop", "billing") not in world.api.objects


async def test_a_clock_that_is_set_back_does_not_make_a_deletion_wait_for_a_broker_that_can_t_be_read() -> None:
    """By two hours: the 30 seconds begin again, and are over when they are over."""
    world, billing = await begun(), ResourceKey("Subscription", "shop", "billing")
    edit(world, "Broker", "main", {"fromTheFuture": 1})
    world.now = 9000
    await pass_time(world, 1)
    world.api.user_deletes("Subscription", "shop", "billing")
    await world.controller.list_all(cast(Any, world.api), ())
    for world.now in (1800, 1829):
        await world.reconciler.reconcile(billing)
        assert conditions(world, "Subscription", "billing")["DeletionBlocked"][:2] == ("True", "ReferenceUnreadable")
    world.now = 1830
    await world.reconciler.reconcile(billing)
    assert billing not in world.api.objects


async def test_its_deletion_does_not_wait_for_a_broker_that_is_gone() -> None:
    world = await begun()
    edit(world, "Subscription", "billing", {"fromTheFuture": 1})
    await pass_time(world, 2)
    world.api.user_deletes("Subscription", "shop", "billing")
    world.api.user_deletes("Broker", "shop", "main")
    await pass_time(world, 2)
    assert ("Subscription", "shop", "billing") not in world.api.objects
    assert QUEUE in world.broker.subscriptions, "its volume stays as it is"
