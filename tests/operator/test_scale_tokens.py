"""The operator, with an API server in memory: a resource that asks for its token has it in a Secret while it asks."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.management_in_memory import BrokerInMemory, SessionsInMemory
from support.operator_in_memory import World, resource
from support.resources import GOOD

from penstock_api.observer_tokens import scale_token
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.reconcile.broker_reconciler import BrokerReconciler
from penstock_operator.reconcile.reconciler import Reconciler
from penstock_operator.settings import OperatorSettings

BROKER = ResourceKey("Broker", "shop", "main")
BILLING = ResourceKey("Subscription", "shop", "billing")
SETTINGS = OperatorSettings(broker_image="b", lag_image="l")


async def test_the_token_follows_the_key_and_is_written_only_once_the_observer_knows_it() -> None:
    api, cache = ApiServerInMemory(), Cache()
    sessions = cast(BrokerSessions, SessionsInMemory(BrokerInMemory()))
    brokers = BrokerReconciler(
        api,
        cache,
        sessions,
        SETTINGS,
        lambda: datetime(2026, 3, 1, tzinfo=UTC),
        lambda _: None,
        lambda _: None,
        lambda: None,
    )
    whole = Reconciler(
        api, cache, sessions, SETTINGS, "c1", brokers, lambda: datetime(2026, 3, 1, tzinfo=UTC), lambda _: None
    )
    asks = {"name": "billing", "namespace": "shop", "annotations": {"penstock.dev/scale-token": "true"}}
    for manifest in (GOOD["Broker"], GOOD["Exchange"], {**GOOD["Subscription"], "metadata": asks}):
        api.user_applies(manifest)

    async def everything() -> Any:
        for key in (BROKER, ResourceKey("Exchange", "shop", "orders"), BILLING, BILLING):
            cache.put(api.objects[key])
            await whole.reconcile(key)
        return api.objects.get(("Secret", "shop", "billing-scale"))

    def value(secret: Any, key: str) -> str:
        return base64.b64decode(secret["data"][key]).decode()

    def condition() -> tuple[str, str]:
        conditions = api.objects[BILLING]["status"]["conditions"]
        return next((it["status"], it["reason"]) for it in conditions if it["type"] == "ScaleToken")

    assert await everything() is None
    assert condition() == ("Unknown", "Pending")
    accepted = brokers.findings[BROKER].accepted
    assert accepted is not None
    accepted.note(accepted=True)
    secret = await everything()
    assert condition() == ("True", "Written")
    stored = api.objects["Secret", "shop", "main-observer"]
    queue = "psub:durable:global:billing"
    assert value(secret, "token") == scale_token(value(stored, "scale.key").encode(), "shop", queue)
    assert value(secret, "ca.crt") == value(stored, "ca.crt")
    # The lag job and Prometheus have tokens of their own from now on.
    for user, token in (("lag", "lag.token"), ("scrape", "scrape.token")):
        assert value(api.objects["Secret", "shop", f"main-observer-{user}"], "token") == value(stored, token)
    before = value(secret, "token")
    del stored["data"]["scale.key"]
    assert value(await everything(), "token") != before


ASKS = {"penstock.dev/scale-token": "true"}


async def world_with(kind: str, name: str, secret: tuple[str, str, str]) -> World:
    """The resource `name` has asked for its Secret and got it."""
    world = World()
    for manifest in (resource("Broker", "main"), resource("Exchange", "orders"), resource(kind, name)):
        world.api.user_applies(manifest)
    world.api.user_annotates(kind, "shop", name, ASKS)
    await world.calm_down()
    world.know_scopes()
    await world.calm_down()
    assert secret in world.api.objects
    return world


def shown(world: World, kind: str, name: str) -> tuple[str, str] | None:
    found = world.api.objects[kind, "shop", name]["status"]["conditions"]
    return next(((it["status"], it["reason"]) for it in found if it["type"] == "ScaleToken"), None)


KINDS = pytest.mark.parametrize(
    ("kind", "name", "secret"),
    [
        ("Subscription", "billing", ("Secret", "shop", "billing-scale")),
        ("Queue", "invoices", ("Secret", "shop", "invoices-queue-scale")),
    ],
)


@KINDS
async def test_the_secret_goes_with_its_annotation_and_comes_again_with_it(
    kind: str, name: str, secret: tuple[str, str, str]
) -> None:
    world = await world_with(kind, name, secret)
    world.api.user_annotates(kind, "shop", name, {})
    await world.calm_down()
    assert secret not in world.api.objects
    assert shown(world, kind, name) is None
    world.api.user_annotates(kind, "shop", name, ASKS)
    await world.calm_down()
    assert secret in world.api.objects
    assert shown(world, kind, name) == ("True", "Written")


@KINDS
async def test_an_annotation_that_is_taken_away_while_the_broker_is_away_is_not_forgotten(
    kind: str, name: str, secret: tuple[str, str, str]
) -> None:
    world = await world_with(kind, name, secret)
    world.broker.is_up = False
    for _ in range(5):
        await world.controller.list_all(cast(Any, world.api), ())
        world.tell(len(world.api.events))
        for key in world.controller.cache.all():
            world.controller.enqueue(key)
        await world.reconcile_next(1000)
        world.now += 60
    ready = next(it for it in world.api.objects[kind, "shop", name]["status"]["conditions"] if it["type"] == "Ready")
    assert ready["reason"] == "BrokerUnreachable"
    assert shown(world, kind, name) == ("True", "Written"), "the Secret is still there"
    world.api.user_annotates(kind, "shop", name, {})
    await world.calm_down()
    assert secret not in world.api.objects
    assert shown(world, kind, name) is None


@KINDS
async def test_a_secret_of_somebody_else_stays(kind: str, name: str, secret: tuple[str, str, str]) -> None:
    world = await world_with(kind, name, secret)
    del world.api.objects[secret]["metadata"]["ownerReferences"]
    world.api.objects[secret]["metadata"]["labels"] = {}
    world.api.user_annotates(kind, "shop", name, {})
    await world.calm_down()
    assert secret in world.api.objects
    assert shown(world, kind, name) is None
