"""A broker does not answer for a while: what is written meanwhile, and when its resources say so."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from support.operator_in_memory import World, resource

from penstock_operator.cluster.cache import ResourceKey

MAIN = ResourceKey("Broker", "shop", "main")
UNREACHABLE = (
    "Unknown",
    "BrokerUnreachable",
    "Broker main does not answer; its condition Available says why. This resource is declared on it when it answers.",
)
NOT_ASKED = (
    "Unknown",
    "BrokerNotAsked",
    "The operator has not asked Broker main yet; its condition Ready says what it waits for. This resource is declared "
    "on it when it answers.",
)


def show_pod(world: World, *, serves: bool) -> None:
    """The kubelet says whether the broker's container serves."""
    world.api.objects["Pod", "shop", "main-0"] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "main-0", "namespace": "shop", "uid": "uid-pod"},
        "status": {"containerStatuses": [{"name": "broker", "ready": serves}]},
    }


async def begun(subscriptions: int) -> World:
    """A world in which everything is Ready."""
    world = World()
    world.api.user_applies(resource("Broker", "main"))
    world.api.user_applies(resource("Exchange", "orders"))
    show_pod(world, serves=True)
    await settle(world)
    for number in range(subscriptions):
        world.api.user_applies(resource("Subscription", f"s{number}"))
    await world.controller.list_all(world.api, ())
    await world.reconcile_next(25_000)
    world.controller.enqueue(MAIN)
    await world.reconcile_next(1)
    assert {reason(world, key) for key in world.controller.cache.all()} == {"Ready"}
    world.api.writes.clear()
    return world


async def settle(world: World) -> None:
    """Two rounds: a list, and everything is reconciled."""
    for _ in range(2):
        await world.controller.list_all(world.api, ())
        await reconcile_all(world)


async def reconcile_all(world: World) -> None:
    """Everything is reconciled, as after a resync."""
    for key in world.controller.cache.all():
        world.controller.enqueue(key)
    await world.reconcile_next(25_000)


async def pass_seconds(world: World, seconds: int) -> None:
    """What is due is reconciled, each ten seconds."""
    for _ in range(seconds // 10):
        world.now += 10
        await world.reconcile_next(25_000)


def ready(world: World, key: ResourceKey) -> tuple[str, str, str]:
    shown = world.api.objects[key]["status"]["conditions"]
    return next((it["status"], it["reason"], it["message"]) for it in shown if it["type"] == "Ready")


def reason(world: World, key: ResourceKey) -> str:
    return ready(world, key)[1]


def go_down(world: World) -> None:
    world.broker.is_up = False
    show_pod(world, serves=False)
    world.controller.enqueue(MAIN)


def come_back(world: World) -> None:
    world.broker.is_up = True
    show_pod(world, serves=True)
    world.reconciler.brokers.findings[MAIN].is_out = False
    world.controller.enqueue_with_dependents(MAIN)


async def restart_costs(subscriptions: int) -> Counter[str]:
    """Status writes and Events because a broker restarts, by the kind that they are about."""
    world = await begun(subscriptions)
    go_down(world)
    await pass_seconds(world, 60)
    await reconcile_all(world)
    assert reason(world, MAIN) == "PodNotReady"
    assert reason(world, ResourceKey("Subscription", "shop", "s0")) == "Ready"
    come_back(world)
    await pass_seconds(world, 10)
    assert reason(world, MAIN) == "Ready"
    return world.api.writes


async def test_a_thousand_resources_and_a_restart_of_the_broker_cost_no_write_beyond_those_of_the_broker() -> None:
    assert await restart_costs(1_000) == {"Broker": 4}, "two statuses and two Events: down, and back"


async def test_a_restart_of_the_operator_writes_nothing() -> None:
    before = await begun(3)
    again = World(api=before.api, broker=before.broker)
    again.forget()
    again.sessions.connects = False
    await settle(again)
    (session,) = again.sessions.open.values()
    assert again.api.writes == {}, "nobody knows yet whether the broker answers"
    session.has_tried = True
    again.controller.enqueue_with_dependents(MAIN)
    await settle(again)
    assert again.api.writes == {}


@pytest.mark.parametrize("has_session", [True, False])
async def test_who_has_not_asked_the_broker_yet_does_not_say_that_it_does_not_answer(has_session: bool) -> None:
    """A new resource and a deletion meet an operator that has just begun to lead."""
    before = await begun(1)
    late, deleted = (ResourceKey("Subscription", "shop", name) for name in ("late", "s0"))
    again = World(api=before.api, broker=before.broker, now=before.now)
    again.forget()
    again.api.user_applies(resource("Subscription", "late"))
    again.api.user_deletes("Subscription", "shop", "s0")
    again.sessions.connects = False
    await again.controller.list_all(again.api, ())
    if has_session:
        again.controller.enqueue(MAIN)
        await again.reconcile_next(10)
    else:
        for key in (late, deleted):
            again.controller.enqueue(key)
            await again.reconciler.reconcile(key)
    assert (again.sessions.open != {}) == has_session
    assert again.api.writes == {}
    assert "status" not in again.api.objects[late]
    await pass_seconds(again, 10)
    for session in again.sessions.open.values():
        session.has_tried = True
    await pass_seconds(again, 30)
    assert reason(again, late) == "Ready"
    assert deleted not in again.api.objects


async def test_what_is_declared_on_a_new_broker_that_can_t_begin_says_so_at_once() -> None:
    world = World()
    foreign = {"name": "main-management", "namespace": "shop", "uid": "uid-of-another"}
    world.api.objects["Service", "shop", "main-management"] = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": foreign,
    }
    for manifest in (resource("Broker", "main"), resource("Exchange", "orders"), resource("Subscription", "late")):
        world.api.user_applies(manifest)
    await world.controller.list_all(world.api, ())
    await world.reconcile_next(10)
    assert world.sessions.open == {}
    assert ready(world, ResourceKey("Exchange", "shop", "orders")) == NOT_ASKED
    assert ready(world, ResourceKey("Subscription", "shop", "late")) == NOT_ASKED


async def test_a_broker_is_reconciled_before_thousands_of_deletions_that_need_it() -> None:
    """They would be released as if it did not answer."""
    before = await begun(50)
    again = World(api=before.api, broker=before.broker, now=before.now)
    again.forget()
    for number in range(50):
        again.api.user_deletes("Subscription", "shop", f"s{number}")
    await again.controller.list_all(again.api, ())
    await again.reconcile_next(1)
    assert "shop/main" in again.sessions.open
    await again.reconcile_next(200)
    assert again.broker.subscriptions == {}


async def test_an_outage_shows_in_all_resources_after_two_minutes_and_so_does_its_end() -> None:
    world = await begun(3)
    keys = [key for key in world.controller.cache.all() if key != MAIN]
    go_down(world)
    await pass_seconds(world, 110)
    await reconcile_all(world)
    assert {reason(world, key) for key in keys} == {"Ready"}
    await pass_seconds(world, 40)
    assert {ready(world, key) for key in keys} == {UNREACHABLE}
    assert world.api.writes == {"Broker": 2, "Exchange": 1, "Subscription": 3}, "one status each, and no Event"
    world.sessions.open["shop/main"].problem_sentence = "It refuses the connection."
    await pass_seconds(world, 600)
    await reconcile_all(world)
    assert world.api.writes["Subscription"] == 3, "the error of each attempt is that of the Broker alone"
    come_back(world)
    await pass_seconds(world, 10)
    assert {reason(world, key) for key in keys} == {"Ready"}
    assert world.api.writes == {"Broker": 4, "Exchange": 2, "Subscription": 6}


async def test_a_second_outage_has_its_own_grace() -> None:
    world = await begun(1)
    (billing,) = world.controller.cache.all("Subscription")
    for _ in range(3):
        go_down(world)
        await pass_seconds(world, 100)
        come_back(world)
        await pass_seconds(world, 10)
    assert reason(world, billing) == "Ready"
    assert world.api.writes["Subscription"] == 0


async def test_the_grace_begins_when_the_broker_stops_to_answer_and_not_when_its_pod_became_not_ready() -> None:
    world = await begun(1)
    (billing,) = world.controller.cache.all("Subscription")
    show_pod(world, serves=False)
    world.controller.enqueue(MAIN)
    await pass_seconds(world, 600)
    assert (reason(world, MAIN), reason(world, billing)) == ("PodNotReady", "Ready")
    go_down(world)
    await pass_seconds(world, 60)
    await reconcile_all(world)
    assert reason(world, billing) == "Ready"
    await pass_seconds(world, 90)
    assert ready(world, billing) == UNREACHABLE


async def test_an_operator_that_starts_during_an_outage_knows_how_long_it_has_lasted() -> None:
    """A minute of it may be the difference of the clocks of two machines."""
    before = await begun(1)
    go_down(before)
    await pass_seconds(before, 100)
    again = World(api=before.api, broker=before.broker, now=before.now)
    again.forget()
    await settle(again)
    (billing,) = again.controller.cache.all("Subscription")
    assert reason(again, billing) == "Ready"
    await pass_seconds(again, 60)
    assert reason(again, billing) == "Ready"
    await pass_seconds(again, 50)
    assert ready(again, billing) == UNREACHABLE


@pytest.mark.parametrize("change", ["new", "edited"])
async def test_what_is_new_says_at_once_that_it_is_not_declared(change: str) -> None:
    world = await begun(1)
    go_down(world)
    await pass_seconds(world, 10)
    spec: dict[str, Any] = {} if change == "new" else {"bindingKeys": ["eu.#"]}
    name = "late" if change == "new" else "s0"
    world.api.user_applies(resource("Subscription", name, **spec))
    world.tell(len(world.api.events))
    await world.reconcile_next(10)
    assert ready(world, ResourceKey("Subscription", "shop", name)) == UNREACHABLE


async def test_a_missing_exchange_is_told_also_while_the_broker_is_away() -> None:
    world = await begun(1)
    go_down(world)
    await pass_seconds(world, 10)
    world.api.user_applies(resource("Subscription", "s0", exchangeRef={"name": "nowhere"}))
    world.tell(len(world.api.events))
    await world.reconcile_next(10)
    assert reason(world, ResourceKey("Subscription", "shop", "s0")) == "ExchangeNotFound"


async def test_it_shows_also_while_the_api_server_refuses_something_else() -> None:
    world = await begun(1)
    (billing,) = world.controller.cache.all("Subscription")
    world.api.failing = True
    go_down(world)
    await pass_seconds(world, 160)
    assert ready(world, billing) == UNREACHABLE


async def test_a_broker_without_a_session_shows_after_the_grace_too() -> None:
    """The operator does not get as far as a session, because an object of another owner has a name that it needs."""
    before = await begun(1)
    before.api.objects["Service", "shop", "main-amqp"]["metadata"].update({"ownerReferences": [], "labels": {}})
    again = World(api=before.api, broker=before.broker, now=before.now)
    again.forget()
    await settle(again)
    (billing,) = again.controller.cache.all("Subscription")
    assert again.sessions.open == {}
    assert reason(again, billing) == "Ready"
    for _ in range(13):
        again.now += 10
        await reconcile_all(again)
    assert ready(again, billing) == NOT_ASKED


async def test_a_broker_that_was_scaled_to_zero_has_the_grace_when_it_is_scaled_up() -> None:
    world = await begun(1)
    world.api.user_applies(resource("Broker", "main", replicas=0))
    go_down(world)
    await world.controller.list_all(world.api, ())
    await pass_seconds(world, 3600)
    (billing,) = world.controller.cache.all("Subscription")
    assert reason(world, billing) == "BrokerStopped"
    world.api.user_applies(resource("Broker", "main"))
    await world.controller.list_all(world.api, ())
    await pass_seconds(world, 60)
    await reconcile_all(world)
    assert not world.reconciler.brokers.findings[MAIN].is_out
    assert world.sessions.contacts.of("shop/main").unasked_since == datetime(2026, 3, 1, 13, 0, 10, tzinfo=UTC)
    await pass_seconds(world, 100)
    assert world.reconciler.brokers.findings[MAIN].is_out
