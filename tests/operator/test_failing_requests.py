"""Each request to the API server fails once, also after it has done what was asked: the operator tries again by itself,
without a list or a watch that brings it to mind.
"""

from __future__ import annotations

from typing import Any, cast

import pytest
from support.faulty_api_server import Fault, FaultyApiServer
from support.operator_in_memory import World, resource
from support.virtual_time import run_in_virtual_time

LONGEST_BACKOFF_SECONDS = 31
MANY = 150
"""More requests than any of these needs."""
QUEUE = "psub:durable:global:billing"


async def begun() -> tuple[World, FaultyApiServer]:
    """A Broker, an Exchange and a Subscription, of which the operator has read its first list."""
    api = FaultyApiServer()
    world = World(api=api)
    for kind, name in (("Broker", "main"), ("Exchange", "orders"), ("Subscription", "billing")):
        api.user_applies(resource(kind, name))
    api.objects["Pod", "shop", "main-0"] = {
        "kind": "Pod",
        "metadata": {"name": "main-0", "namespace": "shop"},
        "status": {"containerStatuses": [{"name": "broker", "ready": True}]},
    }
    await world.controller.list_all(cast(Any, api), ())
    return world, api


async def work(world: World) -> None:
    """The operator reconciles what is due, and what it has put off; watches tell it of its own writes."""
    for _ in range(5):
        await world.reconcile_next(100)
        world.tell(len(world.api.events))
        await world.reconcile_next(100)
        world.now += LONGEST_BACKOFF_SECONDS


def ready(world: World) -> dict[str, str]:
    """Status of Ready by the kind of the resource."""
    found = {
        kind: it["status"]["conditions"]
        for (kind, *_), it in world.api.objects.items()
        if "conditions" in it.get("status", {})
    }
    return {
        kind: next(it["status"] for it in conditions if it["type"] == "Ready") for kind, conditions in found.items()
    }


async def make(number: int, fault: Fault) -> tuple[World, FaultyApiServer]:
    """Everything is made; one request meets the fault."""
    world, api = await begun()
    api.faults = [*[None] * number, fault]
    await work(world)
    return world, api


async def remove(number: int, fault: Fault) -> tuple[World, FaultyApiServer]:
    """Subscription and Exchange are deleted; one request meets the fault."""
    world, api = await begun()
    await work(world)
    world.tell(len(api.events))
    api.faults = [*[None] * number, fault]
    for kind, name in (("Subscription", "billing"), ("Exchange", "orders")):
        api.user_deletes(kind, "shop", name)
    world.tell(len(api.events))
    await work(world)
    return world, api


@pytest.mark.parametrize("done", [False, True], ids=["not done", "done"])
@pytest.mark.parametrize("status", [0, 409, 429, 500])
def test_what_failed_while_resources_were_made_is_tried_again(status: int, done: bool) -> None:
    for number in range(MANY):
        world, api = run_in_virtual_time(make(number, Fault(status, done)))
        assert ready(world) == {"Broker": "True", "Exchange": "True", "Subscription": "True"}, number
        assert set(world.broker.subscriptions) == {QUEUE}, number
        if not api.happened:
            assert number > 40
            return
    raise AssertionError("there are more requests than expected")


@pytest.mark.parametrize("done", [False, True], ids=["not done", "done"])
@pytest.mark.parametrize("status", [0, 409, 429, 500])
def test_what_failed_while_resources_went_is_tried_again(status: int, done: bool) -> None:
    for number in range(MANY):
        world, api = run_in_virtual_time(remove(number, Fault(status, done)))
        assert not [key for key in api.objects if key[0] in ("Exchange", "Subscription")], number
        assert not world.broker.subscriptions, number
        assert not world.broker.exchanges, number
        if not api.happened:
            assert number > 3
            return
    raise AssertionError("there are more requests than expected")


def test_the_log_tells_once_that_a_finalizer_was_removed(caplog: pytest.LogCaptureFixture) -> None:
    """Another client has changed the resource first, so the request is sent twice."""
    caplog.set_level("INFO")
    for number in range(6):
        caplog.clear()
        run_in_virtual_time(remove(number, Fault(409, done=False)))
        told = [message for message in caplog.messages if message.startswith("the finalizer of ")]
        assert sorted(told) == [
            "the finalizer of Exchange shop/orders was removed: the broker has deleted the entity",
            "the finalizer of Subscription shop/billing was removed: the broker has deleted the entity",
        ], number
