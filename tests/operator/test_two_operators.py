"""Two whole operators over one namespace, each with a Lease of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.management_in_memory import BrokerInMemory
from support.operator_in_memory import SETTINGS, World, resource

from penstock_operator.cluster.cache import ResourceKey
from penstock_operator.plans.managing_operator import OVER_SECONDS

MAIN = ResourceKey("Broker", "shop", "main")


def operators() -> tuple[World, World]:
    """They have different settings, which show in the certificate of a broker."""
    api, broker = ApiServerInMemory(), BrokerInMemory()
    worlds = [
        World(api=api, broker=broker, settings=replace(SETTINGS, own_namespace="x", lease=name, cluster_domain=name))
        for name in ("one", "two")
    ]
    api.objects["Pod", "shop", "main-0"] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "main-0", "namespace": "shop"},
        "status": {"containerStatuses": [{"name": "broker", "ready": True}]},
    }
    api.user_applies(resource("Broker", "main"))
    api.user_applies(resource("Exchange", "orders"))
    api.user_applies(resource("Subscription", "billing"))
    return worlds[0], worlds[1]


def renew(world: World) -> None:
    """The operator renews its Lease."""
    name, api = world.settings.lease, world.api
    spec = {"holderIdentity": f"pod-{name}", "leaseDurationSeconds": 15, "renewTime": str(world.now)}
    about = {"name": name, "namespace": "x"}
    api.objects["Lease", "x", name] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": about}
    api.objects["Lease", "x", name]["spec"] = spec


async def turn(*worlds: World) -> None:
    """Ten seconds of each operator: it lists, works, and looks at the others."""
    for world in worlds:
        renew(world)
        await world.reconciler.others.look()
        await world.controller.list_all(world.api, ())
        for key in world.controller.cache.all():
            world.controller.enqueue(key)
        await world.reconcile_next(1000)
        world.now += 10


def status(api: ApiServerInMemory, kind: str, name: str) -> Any:
    return api.objects[kind, "shop", name]["status"]


async def test_the_second_one_writes_nothing_and_has_no_session() -> None:
    one, two = operators()
    for _ in range(5):
        await turn(one, two)
    api = one.api
    assert status(api, "Broker", "main")["operator"] == "x/one"
    assert "Subscription" in api.writes
    before = (api.written, api.applied, len(api.announced))
    for _ in range(20):
        await turn(one, two)
    assert (api.written, api.applied, len(api.announced)) == before
    assert one.sessions.get("shop/main") is not None
    assert two.sessions.get("shop/main") is None
    assert two.reconciler.others.count() == 1
    told = [it["message"] for it in api.announced if it["reason"] == "ManagedByOtherOperator"]
    assert len(told) == 1
    assert told[0].startswith("The operator x/one manages this Broker. The operator x/two")


async def test_a_change_is_made_by_the_first_one_alone() -> None:
    one, two = operators()
    for _ in range(5):
        await turn(one, two)
    one.api.user_applies(resource("Subscription", "late"))
    await turn(two)
    assert "psub:durable:global:late" not in one.broker.subscriptions
    assert "status" not in one.api.objects["Subscription", "shop", "late"]
    await turn(one)
    await turn(one)
    assert "psub:durable:global:late" in one.broker.subscriptions


async def test_it_takes_over_with_everything_and_the_first_one_lets_go_of_it() -> None:
    one, two = operators()
    for _ in range(5):
        await turn(one, two)
    one.api.user_applies(resource("Subscription", "late"))
    for _ in range(int(OVER_SECONDS / 10) - 1):
        await turn(two)
        assert status(one.api, "Broker", "main")["operator"] == "x/one"
    for _ in range(5):
        await turn(two)
    assert status(one.api, "Broker", "main")["operator"] == "x/two"
    assert "psub:durable:global:late" in one.broker.subscriptions
    # The first one only stood still.
    await turn(two, one, two, one)
    before = (one.api.written, one.api.applied)
    for _ in range(10):
        await turn(one, two)
    assert (one.api.written, one.api.applied) == before
    assert status(one.api, "Broker", "main")["operator"] == "x/two"
    assert one.sessions.get("shop/main") is None
    assert MAIN not in one.reconciler.brokers.findings


async def test_a_deletion_waits_for_a_broker_that_has_come_back_and_is_not_connected_yet() -> None:
    """That this operator did not ask the broker while another one managed it does not mean that it did not answer."""
    one, two = operators()
    for _ in range(5):
        await turn(one, two)
    for _ in range(int(OVER_SECONDS / 10) + 5):
        await turn(two)
    await turn(one, one)
    api = one.api
    assert status(api, "Broker", "main")["operator"] == "x/two"
    assert one.sessions.get("shop/main") is None
    api.user_deletes("Subscription", "shop", "billing")
    one.sessions.connects = False
    while status(api, "Broker", "main")["operator"] == "x/two":
        await turn(one)
    assert api.objects["Subscription", "shop", "billing"]["metadata"]["finalizers"]
    assert "psub:durable:global:billing" in one.broker.subscriptions


@pytest.mark.parametrize(
    ("how", "released_at"),
    [
        pytest.param("namespace", 150, id="its-namespace-goes"),
        pytest.param("force", 150, id="a-person-forces-it"),
        pytest.param("", None, id="it-is-only-deleted"),
    ],
)
async def test_a_deletion_that_the_manager_of_its_broker_does_not_see_does_not_hold_its_namespace(
    how: str, released_at: int | None
) -> None:
    """The first one watches single namespaces by now, and this one is not among them; it manages the Broker still."""
    one, two = operators()
    for _ in range(5):
        await turn(one, two)
    api = one.api
    api.user_deletes("Subscription", "shop", "billing")
    if how == "namespace":
        api.terminating.add("shop")
    elif how == "force":
        api.user_annotates("Subscription", "shop", "billing", {"penstock.dev/force-delete": "true"})
    written, released = api.written, None
    while two.now < 600 and released is None:
        renew(one)
        one.now += 10
        at = two.now
        await turn(two)
        released = at if ("Subscription", "shop", "billing") not in api.objects else None
    assert released == released_at
    assert two.sessions.open == {}
    assert api.written == written
    assert "psub:durable:global:billing" in one.broker.subscriptions, (
        "only who manages the Broker deletes anything there"
    )
