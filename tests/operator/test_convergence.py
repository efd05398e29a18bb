"""In the end the broker has what the resources declare, whatever happens in whatever order.

The whole operator runs against an API server and a broker in memory. Users apply and delete resources; watches deliver,
lose or repeat events; the broker goes away, comes back, or loses its volume; the API server answers with conflicts and
errors, also after it has done what was asked. Then everything works again, and the broker must have exactly what the
resources declare.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.examples import examples
from support.faulty_api_server import Fault, FaultyApiServer
from support.operator_in_memory import World, resource
from support.virtual_time import run_in_virtual_time

from penstock_api import declaration
from penstock_api.resources import Exchange, Queue, Subscription, parse
from penstock_operator.cluster.api_server import KubeError

EXAMPLES = examples(60)


RESOURCES = {
    "main": resource("Broker", "main"),
    "stopped": resource("Broker", "main", replicas=0),
    "orders": resource("Exchange", "orders"),
    "parcels": resource("Exchange", "parcels", deletionPolicy="Delete"),
    "billing": resource("Subscription", "billing"),
    "billing-parcels": resource("Subscription", "billing", exchangeRef={"name": "parcels"}),
    "twin": resource("Subscription", "twin", subscriptionName="billing"),
    "fraud": resource("Subscription", "fraud", exchangeRef={"name": "parcels"}),
    "kept": resource("Subscription", "kept", deletionPolicy="Retain"),
    "invoices": resource("Queue", "invoices"),
    "kept-queue": resource("Queue", "kept-queue", deletionPolicy="Retain"),
}


@dataclass(slots=True)
class Expected:
    """What must be there in the end, computed in a simple way from the resources that are left."""

    exchanges: set[str] = field(default_factory=set[str])
    bindings: dict[str, str] = field(default_factory=dict[str, str])
    queues: dict[str, str] = field(default_factory=dict[str, str])
    """The resource of each."""
    reasons: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """Of Ready, by kind and name; those that are being deleted have none."""


def expected(world: World) -> Expected:
    """All rules about what is declared, written once more in a simple and slow way."""
    found = Expected()
    left = [
        parse(manifest)
        for key, manifest in world.api.objects.items()
        if key[0] in ("Exchange", "Subscription", "Queue")
    ]
    brokers = [manifest for key, manifest in world.api.objects.items() if key[0] == "Broker"]
    runs = bool(brokers) and brokers[0]["spec"].get("replicas", 1) == 1
    without = "BrokerStopped" if brokers else "BrokerNotFound"
    there = {it.metadata.name for it in left if isinstance(it, Exchange)}
    for it in sorted(left, key=lambda it: it.metadata.uid):
        reason = "Ready" if runs else without
        if isinstance(it, Exchange) and runs:
            found.exchanges.add(it.metadata.name)
        if isinstance(it, Subscription) and brokers:
            queue, to = declaration.queue_name(it), it.spec.exchange_ref.name
            rivals = [rival for rival in left if isinstance(rival, Subscription)]
            oldest = min((rival for rival in rivals if declaration.queue_name(rival) == queue), key=by_age)
            if to not in there:
                reason = "ExchangeNotFound"
            elif oldest is not it:
                reason = "DuplicateSubscription"
            elif runs:
                found.bindings[queue] = to
        if isinstance(it, Queue) and runs:
            found.queues[declaration.queue_name(it)] = it.metadata.name
        if it.metadata.deletion_timestamp is None:
            found.reasons[it.kind, it.metadata.name] = reason
    return found


def by_age(subscription: Subscription) -> str:
    """All resources are created in the same second here, so the lower uid is the older one."""
    return subscription.metadata.uid


FAULTS = st.none() | st.builds(Fault, status=st.sampled_from([0, 409, 410, 429, 500]), done=st.booleans())

STEPS = st.one_of(
    st.tuples(st.just("apply"), st.sampled_from(sorted(RESOURCES))),
    st.tuples(st.just("delete"), st.sampled_from(sorted(RESOURCES))),
    st.tuples(st.just("tell"), st.integers(1, 8)),
    st.tuples(st.just("forget"), st.none()),
    st.tuples(st.just("step"), st.integers(1, 8)),
    st.tuples(st.just("list"), st.none()),
    st.tuples(st.just("down"), st.none()),
    st.tuples(st.just("up"), st.none()),
    st.tuples(st.just("wipe"), st.none()),
    st.tuples(st.just("time"), st.integers(1, 40)),
    st.tuples(st.just("collect"), st.none()),
    st.tuples(st.just("faults"), st.lists(FAULTS, min_size=1, max_size=12)),
)


async def play(steps: list[tuple[str, Any]], world: World) -> None:
    for verb, argument in steps:
        match verb:
            case "apply":
                world.api.user_applies(RESOURCES[argument])
            case "delete":
                metadata = RESOURCES[argument]["metadata"]
                world.api.user_deletes(RESOURCES[argument]["kind"], metadata["namespace"], metadata["name"])
            case "tell":
                world.tell(argument)
            case "forget":
                world.forget()
            case "step":
                await world.reconcile_next(argument)
            case "list":
                await look(world)
            case "down":
                world.broker.is_up = False
            case "up":
                world.broker.is_up = True
            case "collect":
                world.api.collect_garbage()
            case "wipe":
                world.broker.wipe()
            case "faults":
                cast(FaultyApiServer, world.api).faults.extend(argument)
            case _:
                world.now += argument


async def look(world: World) -> None:
    """The operator lists; it tries again later if that fails."""
    for listing in (world.controller.list_all, world.controller.list_children):
        with contextlib.suppress(KubeError):
            await listing(cast(Any, world.api), ())


async def play_out(steps: list[tuple[str, Any]]) -> World:
    """Play the steps in a new world, then let everything work again."""
    api = FaultyApiServer()
    world = World(api=api)
    await play(steps, world)
    api.faults.clear()
    await world.calm_down()
    return world


MADE_ANEW: list[tuple[str, Any]] = [
    ("forget", None),
    ("delete", "main"),
    ("forget", None),
    ("time", 2),
    ("step", 1),
    ("list", None),
    ("apply", "main"),
    ("step", 6),
]
"""A Broker is deleted, the operator looks at it once more before it learns so, and another of its name is made."""
BEGUN = [("apply", name) for name in ("main", "orders", "parcels", "billing", "fraud", "kept", "invoices")]


@hypothesis_settings(max_examples=EXAMPLES, deadline=None)
@given(st.booleans(), st.lists(STEPS, min_size=8, max_size=40))
@example(True, MADE_ANEW)
def test_any_order_ends_with_what_is_declared(begun: bool, steps: list[tuple[str, Any]]) -> None:
    before: list[tuple[str, Any]] = [*BEGUN, ("list", None), ("step", 20)] if begun else []
    world = run_in_virtual_time(play_out([*before, *steps]))
    deleting = [key for key, it in world.api.objects.items() if "deletionTimestamp" in it["metadata"]]
    # An Exchange may still wait for Subscriptions that are bound to it; nothing else hangs.
    waiting = {key[2] for key in deleting}
    assert waiting <= {"orders"}
    wanted = expected(world)
    said = {key: ready_reason(world, *key) for key in wanted.reasons}
    assert said == wanted.reasons
    assert wanted.exchanges <= set(world.broker.exchanges)
    found = {name: it.exchange for name, it in world.broker.subscriptions.items()}
    assert {name: found.get(name) for name in wanted.bindings} == wanted.bindings
    declared_by = {name: it.owner.name for name, it in world.broker.queues.items() if it.owner is not None}
    assert {name: declared_by.get(name) for name in wanted.queues} == wanted.queues
    if wanted.exchanges:
        assert all(is_left_over(world, name) for name in found if name not in wanted.bindings)


def ready_reason(world: World, kind: str, name: str) -> str:
    """The reason of condition Ready in the status."""
    status = world.api.objects[kind, "shop", name].get("status", {"conditions": []})
    return next((it["reason"] for it in status["conditions"] if it["type"] == "Ready"), "")


def is_left_over(world: World, name: str) -> bool:
    """Whether something may stay on the broker although no resource declares it now.

    That is so if its resource was deleted while the broker did not answer, if its policy is Retain, or if its exchange
    was deleted at once, as its policy says, and its messages are still there.
    """
    owner = world.broker.subscriptions[name].owner
    assert owner is not None
    if ("Subscription", owner.namespace, owner.name) not in world.api.objects or owner.deletion_policy == "Retain":
        return True
    return ready_reason(world, "Subscription", owner.name) == "ExchangeNotFound"


async def test_a_quiet_world_costs_no_write() -> None:
    world = await play_out([("apply", name) for name in ("main", "orders", "billing", "twin")])
    written, version = world.api.written, len(world.api.events)
    await world.calm_down()
    assert (world.api.written, len(world.api.events)) == (written, version)


async def test_nothing_is_asked_of_the_predecessor_of_a_broker() -> None:
    again = [("delete", "main"), ("apply", "main"), ("list", None), ("step", 20)]
    world = World()
    await play([*BEGUN, ("list", None), ("step", 20)], world)
    del world.broker.exchanges["orders"]
    await play(again, world)
    assert ready_reason(world, "Broker", "main") == "PredecessorLeaving"
    assert "orders" not in world.broker.exchanges
    await play([("time", 130), ("step", 20)], world)
    assert {ready_reason(world, "Exchange", name) for name in ("orders", "parcels")} == {"BrokerNotAsked"}
    await world.calm_down()
    assert ready_reason(world, "Broker", "main") == "PodNotReady"
    assert ready_reason(world, "Exchange", "orders") == "Ready"


async def test_a_paused_broker_is_still_declared_to_when_the_operator_starts_again() -> None:
    world = World()
    await play([*BEGUN, ("list", None), ("step", 20)], world)
    paused = world.api.objects["Broker", "shop", "main"]
    paused["metadata"]["annotations"] = {"penstock.dev/paused": "true"}
    again = World(api=world.api, broker=world.broker)
    again.forget()
    again.broker.wipe()
    del again.api.objects["Service", "shop", "main-pods"]
    await again.calm_down()
    assert set(again.broker.exchanges) == {"orders", "parcels"}
    assert ("Service", "shop", "main-pods") not in again.api.objects


async def test_a_removal_told_late_does_not_hide_its_successor() -> None:
    world = World()
    await play([*BEGUN, ("list", None), ("step", 20)], world)
    world.tell(len(world.api.events))
    await play([("delete", "main"), ("apply", "main"), ("list", None)], world)
    world.tell(1)
    broker = world.controller.cache.broker("shop", "main")
    assert broker is not None
    assert broker.metadata.uid == world.api.objects["Broker", "shop", "main"]["metadata"]["uid"]


@pytest.mark.parametrize("first", ["main", "orders", "billing"])
async def test_each_of_three_may_come_last(first: str) -> None:
    names = [name for name in ("main", "orders", "billing") if name != first]
    world = await play_out([*(("apply", name) for name in names), ("list", None), ("step", 9), ("apply", first)])
    assert list(world.broker.subscriptions) == ["psub:durable:global:billing"]
    status = world.api.objects["Subscription", "shop", "billing"]["status"]
    ready = next(it for it in status["conditions"] if it["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("True", "Ready")


async def test_the_younger_twin_takes_over_when_the_older_goes() -> None:
    start = [("apply", name) for name in ("main", "orders", "billing")]
    world = await play_out([*start, ("list", None), ("step", 20), ("apply", "twin"), ("list", None), ("step", 20)])
    twin = world.api.objects["Subscription", "shop", "twin"]["status"]["conditions"]
    assert next(it for it in twin if it["type"] == "Ready")["reason"] == "DuplicateSubscription"
    world.api.user_deletes("Subscription", "shop", "billing")
    await world.calm_down()
    (declared,) = world.broker.subscriptions.values()
    assert declared.owner is not None
    assert declared.owner.name == "twin"


async def test_the_younger_of_two_queues_takes_over_when_the_older_goes() -> None:
    older, younger = (
        resource("Queue", "older", queueName="invoices"),
        resource("Queue", "younger", queueName="invoices"),
    )
    world = World()
    await play([("apply", "main")], world)
    world.api.user_applies(older)
    await play([("list", None), ("step", 20)], world)
    world.api.user_applies(younger)
    await world.calm_down()
    assert ready_reason(world, "Queue", "older") == "Ready"
    assert ready_reason(world, "Queue", "younger") == "DuplicateQueue"
    world.api.user_deletes("Queue", "shop", "older")
    await world.calm_down()
    owner = world.broker.queues["invoices"].owner
    assert owner is not None
    assert (owner.kind, owner.name) == ("Queue", "younger")
    assert ready_reason(world, "Queue", "younger") == "Ready"


async def test_a_queue_that_can_t_be_read_keeps_what_it_declared() -> None:
    """Its CRD is of a later release: nothing of it is collected, however long that lasts."""
    world = World()
    await play([("apply", "main"), ("apply", "invoices"), ("list", None), ("step", 20)], world)
    assert "invoices" in world.broker.queues
    world.api.user_applies(resource("Queue", "invoices", fromTheFuture=1))
    for _ in range(3):
        await world.calm_down()
        await world.collector.run()
        world.now += 700
    assert ready_reason(world, "Queue", "invoices") == "InvalidSpec"
    assert "invoices" in world.broker.queues


async def test_the_orphan_of_a_queue_is_collected_when_its_broker_is_back() -> None:
    world = World()
    await play([("apply", "main"), ("apply", "invoices"), ("list", None), ("step", 20), ("down", None)], world)
    world.api.user_deletes("Queue", "shop", "invoices")
    await play([("list", None), ("step", 20), ("time", 31), ("list", None), ("step", 20)], world)
    assert ("Queue", "shop", "invoices") not in world.api.objects
    assert "invoices" in world.broker.queues
    await play([("list", None), ("up", None)], world)
    await world.collector.run()
    assert world.broker.queues == {}


async def test_a_start_of_the_operator_releases_no_deletion_that_waits_for_consumers() -> None:
    """Deletions come first, when no broker is connected yet."""
    world = World()
    await play([*BEGUN, ("list", None), ("step", 20)], world)
    world.api.user_deletes("Subscription", "shop", "billing")
    again = World(now=3600, api=world.api, broker=world.broker)
    await play([("list", None), ("step", 1)], again)
    billing = again.api.objects["Subscription", "shop", "billing"]
    assert billing["metadata"]["finalizers"] == ["penstock.dev/topology"]
    # Nobody has asked the broker yet, so nothing is said about it.
    assert {it["type"] for it in billing["status"]["conditions"]}.isdisjoint({"DeletionBlocked"})
    await again.calm_down()
    assert ("Subscription", "shop", "billing") not in again.api.objects
    assert "psub:durable:global:billing" not in again.broker.subscriptions
