"""A status write of which the operator does not know whether it was done: its answer was lost.

The whole operator runs against an API server and a broker in memory; the watches are late.
"""

from __future__ import annotations

from typing import Any, cast

import pytest
from support.faulty_api_server import Fault, FaultyApiServer
from support.operator_in_memory import World, resource

from penstock_operator.cluster.cache import ResourceKey

INVOICES = ResourceKey("Queue", "shop", "invoices")


def shown(world: World) -> Any:
    return world.api.objects[INVOICES]["status"]


async def begun(fault: Fault) -> World:
    """A Queue without a Broker: nothing is asked of the API server but to write its status."""
    api = FaultyApiServer()
    world = World(api=api)
    api.user_applies(resource("Queue", "invoices"))
    await world.controller.list_all(cast(Any, api), ())
    world.forget()
    api.faults.append(fault)
    await world.reconcile_next(1)
    assert api.happened == 1
    return world


@pytest.mark.parametrize("status", [0, 504])
async def test_a_write_that_was_done_is_not_done_again_with_later_times(status: int) -> None:
    world = await begun(Fault(status, done=True))
    before = shown(world)
    world.now += 5
    await world.reconcile_next(1)
    assert shown(world) == before, "the cache does not know of it yet"
    await world.controller.list_all(cast(Any, world.api), ())
    world.now += 5
    await world.reconcile_next(1)
    assert (shown(world), world.api.written) == (before, 1)


async def test_a_write_that_was_not_done_is_done_again() -> None:
    world = await begun(Fault(0, done=False))
    world.now += 5
    await world.reconcile_next(1)
    assert [it["reason"] for it in shown(world)["conditions"] if it["type"] == "Ready"] == ["BrokerNotFound"]
