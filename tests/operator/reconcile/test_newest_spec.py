"""A resource changes while it is reconciled: nothing is declared from its old spec, and the newest state is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.operator_in_memory import World, resource

from penstock_operator.cluster.api_server import ApiResource, Conflict
from penstock_operator.cluster.cache import ResourceKey
from penstock_operator.manifest import Manifest

ORDERS = ResourceKey("Exchange", "shop", "orders")
MAIN = ResourceKey("Broker", "shop", "main")


@dataclass(slots=True)
class EventfulApiServer(ApiServerInMemory):
    """While the first object is read or applied, or gets its finalizer, something happens."""

    meanwhile: Callable[[], None] | None = None
    while_finalizers_are_set: Callable[[], None] | None = None
    while_applied: Callable[[], None] | None = None

    async def apply(self, manifest: Manifest) -> Manifest:
        meanwhile, self.while_applied = self.while_applied, None
        if meanwhile is not None:
            meanwhile()
        return await ApiServerInMemory.apply(self, manifest)

    async def set_finalizers(self, resource: Manifest, finalizers: Sequence[str]) -> Manifest | None:
        meanwhile, self.while_finalizers_are_set = self.while_finalizers_are_set, None
        if meanwhile is not None:
            meanwhile()
        return await ApiServerInMemory.set_finalizers(self, resource, finalizers)

    async def get(self, kind: ApiResource, namespace: str | None, name: str) -> Manifest | None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return await ApiServerInMemory.get(self, kind, namespace, name)


async def begun() -> tuple[World, EventfulApiServer]:
    api = EventfulApiServer()
    world = World(api=api)
    api.user_applies(resource("Broker", "main"))
    api.user_applies(resource("Exchange", "orders"))
    await world.calm_down()
    assert world.broker.exchanges["orders"].persistence == "Always"
    world.broker.wipe()
    world.controller.children.forget(ORDERS)  # the pass reads the Service of the Exchange again
    return world, api


async def reconcile(world: World) -> None:
    await world.reconciler.reconcile(ORDERS)


async def test_a_spec_that_has_changed_meanwhile_is_not_declared() -> None:
    world, api = await begun()

    def edit() -> None:
        api.user_applies(resource("Exchange", "orders", persistence="AsSent"))
        world.tell(len(api.events))

    api.meanwhile = edit
    await reconcile(world)
    assert world.broker.exchanges == {}
    await world.reconcile_next(10)
    assert world.broker.exchanges["orders"].persistence == "AsSent"


async def test_a_resource_that_is_being_deleted_or_gone_is_not_declared() -> None:
    for is_gone in (False, True):
        world, api = await begun()

        def delete(world: World = world, api: Any = api, is_gone: bool = is_gone) -> None:
            if is_gone:
                api.objects["Exchange", "shop", "orders"]["metadata"]["finalizers"] = []
            api.user_deletes("Exchange", "shop", "orders")
            world.tell(len(api.events))

        api.meanwhile = delete
        await reconcile(world)
        assert world.broker.exchanges == {}


async def test_children_are_not_made_from_the_old_spec_of_a_broker() -> None:
    world, api = await begun()
    applied: int = api.applied

    def edit() -> None:
        api.user_applies(resource("Broker", "main", replicas=0))
        world.tell(len(api.events))

    api.meanwhile = edit
    await world.reconciler.reconcile(ResourceKey("Broker", "shop", "main"))
    assert api.applied == applied
    await world.reconcile_next(10)
    stateful_set = api.objects["StatefulSet", "shop", "main"]
    assert stateful_set["spec"]["replicas"] == 0


@pytest.mark.parametrize("is_held", [False, True], ids=["gone", "held-by-somebody-else"])
async def test_no_child_is_made_for_a_broker_that_is_deleted_meanwhile(is_held: bool) -> None:
    """With `--cascade=orphan` the children stay, without an owner. One that names it again would be deleted for it."""
    api = EventfulApiServer()
    world = World(api=api)
    api.user_applies(resource("Broker", "main"))
    await world.controller.list_all(api, ())

    def delete() -> None:
        if is_held:
            api.objects["Broker", "shop", "main"]["metadata"]["finalizers"] = ["orphan"]
        api.user_deletes("Broker", "shop", "main")
        world.tell(len(api.events))

    api.while_applied = delete
    with pytest.raises(Conflict, match="was deleted meanwhile"):
        await world.reconciler.reconcile(MAIN)
    assert api.applied == 1, "the one that was under way"
    await world.reconcile_next(10)
    assert (api.applied, world.sessions.open) == (1, {})


async def test_a_broker_that_is_gone_when_its_children_have_been_read_gets_none() -> None:
    api = EventfulApiServer()
    world = World(api=api)
    api.user_applies(resource("Broker", "main"))
    await world.controller.list_all(api, ())

    def delete() -> None:
        api.user_deletes("Broker", "shop", "main")
        world.tell(len(api.events))

    api.meanwhile = delete
    await world.reconciler.reconcile(MAIN)
    assert (api.applied, world.sessions.open) == (0, {})


async def test_who_protects_a_resource_at_the_last_moment_keeps_what_it_declared() -> None:
    """The deletion reads the namespace before it asks the broker; meanwhile a person annotates the resource."""
    api = EventfulApiServer()
    world = World(api=api)
    for kind, name in (("Broker", "main"), ("Exchange", "orders"), ("Subscription", "billing")):
        api.user_applies(resource(kind, name))
    await world.calm_down()
    declared = set(world.broker.subscriptions)
    assert len(declared) == 1
    api.user_deletes("Subscription", "shop", "billing")
    world.tell(len(api.events))

    def protect() -> None:
        api.user_annotates("Subscription", "shop", "billing", {"penstock.dev/delete-protection": "true"})
        world.tell(len(api.events))

    api.meanwhile = protect
    await world.reconciler.reconcile(ResourceKey("Subscription", "shop", "billing"))
    await world.reconcile_next(10)
    assert set(world.broker.subscriptions) == declared
    shown = api.objects["Subscription", "shop", "billing"]["status"]["conditions"]
    assert [it["reason"] for it in shown if it["type"] == "DeletionBlocked"] == ["ProtectedByAnnotation"]


async def test_a_pass_that_writes_nothing_puts_nothing_back() -> None:
    world, api = await begun()
    written = api.written

    def touch() -> None:
        there = api.objects["Exchange", "shop", "orders"]
        there["metadata"]["annotations"] = {"who": "a user"}
        there["metadata"]["resourceVersion"] = "900"
        world.controller.resource_changed(there)

    api.meanwhile = touch
    await reconcile(world)
    assert api.written == written
    entry = world.controller.cache.get(ORDERS)
    assert entry is not None
    assert entry.version.resource_version == "900"


async def test_the_reply_to_a_write_that_shows_a_newer_spec_is_work() -> None:
    world, api = await begun()
    entry = world.controller.cache.get(ORDERS)
    assert entry is not None
    shown: Any = entry.manifest["status"]
    del shown["address"]
    # The edit is not told by any event: only the reply to the write of the status shows it.
    api.meanwhile = lambda: api.user_applies(resource("Exchange", "orders", persistence="AsSent"))
    await reconcile(world)
    await world.reconcile_next(10)
    assert world.broker.exchanges["orders"].persistence == "AsSent"


async def test_an_exchange_ref_that_changes_while_the_finalizer_is_set_is_the_one_that_is_declared() -> None:
    world, api = await begun()
    api.user_applies(resource("Exchange", "prices"))
    await world.calm_down()
    api.user_applies(resource("Subscription", "billing", exchangeRef={"name": "orders"}))
    # No event tells of the edit, only the reply to the write of the finalizer.
    api.while_finalizers_are_set = lambda: api.user_applies(
        resource("Subscription", "billing", exchangeRef={"name": "prices"})
    )
    world.tell(1)
    await world.reconcile_next(10)
    assert [each.exchange for each in world.broker.subscriptions.values()] == ["prices"]
