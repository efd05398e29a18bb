"""Who may write a namespace that uses a Broker can't reach an exchange there whose Exchange does not let this namespace
in: an Exchange of one's own, of the same `exchangeName`, is no way around.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.operator_in_memory import World, resource

IN_SHOP = {"name": "main", "namespace": "shop"}


def spying(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    """A resource of another namespace that uses the Broker."""
    made = resource(kind, name, brokerRef=IN_SHOP, **spec)
    return {**made, "metadata": {"name": name, "namespace": "spy"}}


async def begun(*allowed: str) -> World:
    world = World()
    world.api.user_applies(resource("Broker", "main", allowedNamespaces=["spy"]))
    world.api.user_applies(resource("Exchange", "orders", allowedNamespaces=list(allowed)))
    await world.calm_down()
    world.api.user_applies(spying("Exchange", "mine", exchangeName="orders"))
    return world


def ready(world: World, kind: str, name: str) -> tuple[str, str]:
    conditions = world.api.objects[kind, "spy", name]["status"]["conditions"]
    return next((it["status"], it["reason"]) for it in conditions if it["type"] == "Ready")


@pytest.mark.parametrize(
    ("allowed", "expected", "bound"),
    [((), ("False", "NamespaceNotAllowed"), {}), (("spy",), ("True", "Ready"), {"psub:durable:global:tap": "orders"})],
    ids=["that-lets-nobody-in", "that-lets-it-in"],
)
async def test_a_subscription_is_bound_only_to_an_exchange_that_lets_its_namespace_in(
    allowed: tuple[str, ...], expected: tuple[str, str], bound: dict[str, str]
) -> None:
    world = await begun(*allowed)
    world.api.user_applies(spying("Subscription", "tap", exchangeRef={"name": "mine"}))
    await world.calm_down()
    assert ready(world, "Exchange", "mine") == ("False", "DuplicateExchange")
    assert {name: it.exchange for name, it in world.broker.subscriptions.items()} == bound
    assert ready(world, "Subscription", "tap") == expected


async def test_when_the_older_exchange_goes_the_subscription_is_declared() -> None:
    world = await begun()
    world.api.user_applies(spying("Subscription", "tap", exchangeRef={"name": "mine"}))
    await world.calm_down()
    world.api.user_deletes("Exchange", "shop", "orders")
    await world.calm_down()
    assert ready(world, "Subscription", "tap") == ("True", "Ready")


async def test_what_the_older_exchange_allows_is_followed_before_the_next_resync() -> None:
    world = await begun()
    world.api.user_applies(spying("Subscription", "tap", exchangeRef={"name": "mine"}))
    await world.calm_down()
    for allowed, expected in ((["spy"], ("True", "Ready")), ([], ("False", "NamespaceNotAllowed"))):
        world.api.user_applies(resource("Exchange", "orders", allowedNamespaces=allowed))
        world.tell(len(world.api.events))
        await world.reconcile_next(100)
        assert ready(world, "Subscription", "tap") == expected


async def kept(*, readable: bool) -> World:
    """An exchange of the namespace shop whose Exchange was deleted and has left it behind, or can't be read."""
    world = World()
    world.api.user_applies(resource("Broker", "main", allowedNamespaces=["spy"]))
    world.api.user_applies(resource("Exchange", "orders", deletionPolicy="Retain"))
    await world.calm_down()
    if readable:
        world.api.user_deletes("Exchange", "shop", "orders")
    else:
        world.api.user_applies(resource("Exchange", "orders", deletionPolicy="Retain", fieldOfALaterRelease="x"))
    await world.calm_down()
    assert set(world.broker.exchanges) == {"orders"}
    return world


@pytest.mark.parametrize("readable", [True, False], ids=["retained", "unreadable"])
async def test_an_exchange_that_no_resource_seen_declares_is_not_used_from_another_namespace(readable: bool) -> None:
    world = await kept(readable=readable)
    world.api.user_applies(spying("Subscription", "tap", exchangeRef={"name": "mine"}))
    world.api.user_applies(spying("Exchange", "mine", exchangeName="orders"))
    to_it = {"unroutable": "Alternate", "alternateExchangeRef": {"name": "mine"}}
    world.api.user_applies(spying("Exchange", "funnel", **to_it))
    await world.calm_down()
    assert ready(world, "Exchange", "mine") == ("False", "DuplicateSubscription")
    assert ready(world, "Subscription", "tap") == ("False", "NamespaceNotAllowed")
    assert ready(world, "Exchange", "funnel") == ("False", "NamespaceNotAllowed")
    assert world.broker.subscriptions == {}
    # When its owner has removed it, the name is free.
    del world.broker.exchanges["orders"]
    world.api.user_deletes("Exchange", "shop", "orders")
    await world.calm_down()
    assert ready(world, "Subscription", "tap") == ("True", "Ready")


async def test_what_nobody_takes_is_not_sent_on_to_an_exchange_of_another_namespace() -> None:
    world = await begun("spy")
    to_it = {"unroutable": "Alternate", "alternateExchangeRef": {"name": "mine"}}
    world.api.user_applies(spying("Exchange", "funnel", **to_it))
    await world.calm_down()
    assert ready(world, "Exchange", "funnel") == ("False", "NamespaceNotAllowed")
    assert set(world.broker.exchanges) == {"orders"}
