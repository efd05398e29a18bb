"""The operator, with an API server in memory: a Subscription that asks for its token gets it in a Secret."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any, cast

from support.api_server_in_memory import ApiServerInMemory
from support.management_in_memory import BrokerInMemory, SessionsInMemory
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
