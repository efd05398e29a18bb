"""Children that others change are repaired, and children that are as they should be are not applied again.

The whole operator runs against an API server and a broker in memory.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from support.operator_in_memory import World
from support.resources import GOOD, broker_state

from penstock_operator.cluster.cache import ResourceKey

MAIN, ORDERS = ResourceKey("Broker", "shop", "main"), ResourceKey("Exchange", "shop", "orders")


async def begun() -> World:
    world = World()
    for kind in ("Broker", "Exchange", "Subscription"):
        world.api.user_applies(GOOD[kind])
    world.api.objects["Pod", "shop", "main-0"] = {
        "kind": "Pod",
        "metadata": {"name": "main-0", "namespace": "shop"},
        "status": {"containerStatuses": [{"name": "broker", "ready": True}]},
    }
    await world.calm_down()
    return world


def changed_by_somebody(world: World, kind: str, name: str, **fields: Any) -> None:
    there = world.api.objects[kind, "shop", name]
    there.update(fields)
    there["metadata"]["resourceVersion"] = f"{there['metadata']['resourceVersion']}-theirs"


async def what_lists_show(world: World) -> None:
    """Only the children are listed, and only what that puts into the queue is reconciled."""
    await world.controller.list_children(world.api, ())
    await world.reconcile_next(1000)


async def test_what_is_in_force_is_not_applied_again() -> None:
    world = await begun()
    applied = world.api.applied
    await world.calm_down()
    assert world.api.applied == applied
    read = world.api.read
    await what_lists_show(world)
    assert world.api.read == read, "nothing has changed"


async def test_an_exchange_whose_service_is_in_force_costs_no_request() -> None:
    world = await begun()
    requests = world.api.requests
    world.controller.enqueue(ORDERS)
    await world.reconcile_next(10)
    assert world.api.requests == requests


@pytest.mark.parametrize(
    ("kind", "name", "field", "by"),
    [
        ("Service", "main-amqp", "spec", {"selector": {"app": "theirs"}}),
        ("ConfigMap", "main-config", "data", {}),
        ("Service", "orders-x", "spec", {"selector": {"app": "theirs"}}),
    ],
)
async def test_a_change_that_a_list_shows_is_taken_back(kind: str, name: str, field: str, by: Any) -> None:
    world = await begun()
    before = copy.deepcopy(world.api.objects[kind, "shop", name][field])
    applied = world.api.applied
    changed_by_somebody(world, kind, name, **{field: by})
    await what_lists_show(world)
    assert world.api.objects[kind, "shop", name][field] == before
    assert world.api.applied == applied + 1, "and nothing else is applied"


@pytest.mark.parametrize(("kind", "name"), [("Service", "main-pods"), ("StatefulSet", "main"), ("Service", "orders-x")])
async def test_what_a_list_does_not_show_any_more_is_made_again(kind: str, name: str) -> None:
    world = await begun()
    del world.api.objects[kind, "shop", name]
    await what_lists_show(world)
    assert (kind, "shop", name) in world.api.objects


async def test_a_label_that_somebody_took_away_is_put_back() -> None:
    """A list by label does not contain the object then."""
    world = await begun()
    there = world.api.objects["Service", "shop", "orders-x"]
    labels, there["metadata"]["labels"] = there["metadata"]["labels"], {}
    await what_lists_show(world)
    assert world.api.objects["Service", "shop", "orders-x"]["metadata"]["labels"] == labels


async def test_a_stateful_set_of_an_earlier_release_keeps_its_selector() -> None:
    """It can't be changed, so the API server would refuse all of the StatefulSet."""
    world = await begun()
    selector = {"app.kubernetes.io/name": "penstock-broker", "app.kubernetes.io/instance": "main"}
    spec = world.api.objects["StatefulSet", "shop", "main"]["spec"]
    changed_by_somebody(
        world, "StatefulSet", "main", spec={**spec, "selector": {"matchLabels": selector}, "replicas": 3}
    )
    await what_lists_show(world)
    kept = world.api.objects["StatefulSet", "shop", "main"]["spec"]
    assert (kept["selector"]["matchLabels"], kept["replicas"]) == (selector, 1)


async def test_an_owner_that_somebody_took_away_is_put_back() -> None:
    """The label of the Service of an Exchange names the Broker, which has nothing to do for it."""
    world = await begun()
    service = world.api.objects["Service", "shop", "orders-x"]
    owners = copy.deepcopy(service["metadata"]["ownerReferences"])
    del service["metadata"]["ownerReferences"]
    changed_by_somebody(world, "Service", "orders-x")
    await what_lists_show(world)
    assert world.api.objects["Service", "shop", "orders-x"]["metadata"]["ownerReferences"] == owners


async def test_a_secret_may_not_be_listed_and_is_repaired_when_somebody_asks_for_it() -> None:
    world = await begun()
    before = copy.deepcopy(world.api.objects["Secret", "shop", "main-observer-scrape"]["data"])
    changed_by_somebody(world, "Secret", "main-observer-scrape", data={})
    there = world.api.objects["Broker", "shop", "main"]
    there["metadata"].update({"annotations": {"penstock.dev/reconcile-at": "now"}, "resourceVersion": "asked"})
    await world.controller.list_all(world.api, ())
    await world.reconcile_next(10)
    assert world.api.objects["Secret", "shop", "main-observer-scrape"]["data"] == before


async def test_an_event_of_a_child_concerns_its_owner_and_what_the_operator_applied_is_no_event() -> None:
    world = await begun()
    service = copy.deepcopy(world.api.objects["Service", "shop", "orders-x"])
    world.controller.child_changed(service)
    assert len(world.controller.queue) == 0
    service["metadata"]["resourceVersion"] = "theirs"
    world.controller.child_changed(service)
    assert world.controller.queue.take(world.now) == ORDERS
    assert world.controller.queue.take(world.now) is None
    world.controller.queue.done(ORDERS)
    world.controller.child_changed(world.api.objects["StatefulSet", "shop", "main"], is_deleted=True)
    assert world.controller.queue.take(world.now) == MAIN


async def test_a_broker_that_is_ready_is_not_reconciled_by_each_resync() -> None:
    """Alone it would be looked at after six seconds at most."""
    world = await begun()
    world.controller.enqueue(MAIN)
    await world.reconcile_next(10)
    is_due = await world.reconciler.brokers.begin_resync()
    assert (is_due(MAIN), is_due(ORDERS)) == (False, True)
    world.now += 6
    assert is_due(MAIN)


async def test_the_spark_operator_that_is_installed_meanwhile_concerns_every_broker() -> None:
    world = await begun()
    world.api.served.add("ScheduledSparkApplication")
    world.now += 120
    is_due = await world.reconciler.brokers.begin_resync()
    assert is_due(MAIN)


async def test_what_does_not_concern_the_children_is_reported_without_a_request_for_them() -> None:
    """The lag job ends a run every few minutes."""
    world = await begun()
    brokers = world.reconciler.brokers
    world.sessions.open["shop/main"].state = broker_state()
    world.now += 1200
    world.controller.enqueue(MAIN)
    await world.reconcile_next(10)
    read = world.api.read
    brokers.findings[MAIN].lag = {"lastRunName": "main-lag-18"}
    world.controller.enqueue(MAIN)
    await world.reconcile_next(10)
    assert world.api.objects["Broker", "shop", "main"]["status"]["lagAnalysis"] == {"lastRunName": "main-lag-18"}
    assert world.api.read == read
    changed_by_somebody(world, "Service", "main-pods", spec={})
    await what_lists_show(world)
    assert world.api.read > read, "a change of a child is looked at"
    read = world.api.read
    world.sessions.open["shop/main"].state = broker_state(epoch=2)
    world.controller.enqueue(MAIN)
    await world.reconcile_next(10)
    assert world.api.read > read, "a restarted broker may be of another image"
