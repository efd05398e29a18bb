"""A lag reader in a test: an observer's HTTPS server that answers as the test says, and an API server in memory."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from support.api_server_in_memory import ApiServerInMemory
from support.resources import GOOD
from support.served_observer import served_observer

from penstock_api.observer_api import LATEST, LIVE_LAG
from penstock_operator.brokers.observer_client import ObserverAccess
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.lag_options import LagJobOptions
from penstock_operator.reconcile.broker_findings import BrokerFindings
from penstock_operator.reconcile.lag_reader import LagReader

__all__ = ["BILLING", "BROKER", "JOB", "NOW", "Stage", "document", "entry", "lag_stage"]

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
JOB = LagJobOptions(namespace="penstock-system", name="penstock-lag")
BROKER = ResourceKey("Broker", "shop", "main")
BILLING = ("Subscription", "shop", "billing")


def entry(uid: str, **changes: Any) -> dict[str, Any]:
    return {
        "queueName": "psub:durable:global:billing",
        "ownerNamespace": "shop",
        "ownerName": "billing",
        "ownerUid": uid,
        "observedTime": "2026-03-01T12:00:00Z",
        "state": "OK",
        "message": "It is so.",
        "messages": 17,
        **changes,
    }


def document(*entries: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "broker": "main",
        "namespace": "shop",
        "runName": "main-lag-1",
        "windowStart": "2026-03-01T11:45:00Z",
        "windowEnd": "2026-03-01T12:00:00Z",
        "expectedBrokers": 1,
        "reportingBrokers": 1,
        "subscriptions": list(entries),
        **changes,
    }


@dataclass
class Stage:
    """An observer that serves `answer`, and a lag reader that reads from it."""

    reader: LagReader
    api: ApiServerInMemory
    access: ObserverAccess
    uid: str
    now: datetime = NOW
    answer: Any = None
    status: int = 200
    live: Any = None
    """The live result; None if the observer is of an earlier release, a number for an error."""
    live_requests: int = 0
    answers: dict[str, Any] = field(default_factory=dict[str, Any])
    """Answers of other observers, by token; an asyncio.Event is one that is waited for."""
    requests: list[str] = field(default_factory=list[str])
    """The token of each request."""
    arrivals: dict[int, asyncio.Event] = field(default_factory=dict[int, asyncio.Event])
    """Set when so many requests have come."""
    bodies: int = 0
    """Results that were sent, and not only said to be unchanged."""

    def lag(self) -> Any:
        return self.api.objects[BILLING].get("status", {}).get("lag")

    def condition(self, kind: str) -> tuple[str, str]:
        conditions = self.api.objects[BILLING].get("status", {}).get("conditions", [])
        return next(((it["status"], it["reason"]) for it in conditions if it["type"] == kind), ("", ""))

    def lagging(self) -> tuple[str, str]:
        return self.condition("Lagging")

    def fresh(self) -> tuple[str, str]:
        return self.condition("LagFresh")

    def polled(self, seconds: int, **changes: Any) -> None:
        """The observer has polled its broker so many seconds after NOW, and the operator's clock says the same."""
        self.now = NOW + timedelta(seconds=seconds)
        moment = self.now.isoformat()
        self.live = document(entry(self.uid, observedTime=moment, **changes), runName="live", windowEnd=moment)

    def restart(self) -> None:
        """Another operator process: it knows only what the API server has."""
        cache = Cache()
        for manifest in self.api.objects.values():
            cache.put(copy.deepcopy(manifest))
        cache.is_complete = True
        old = self.reader
        self.reader = LagReader(self.api, cache, old.http, old.findings, old.clock, old.enqueue, lambda: False, JOB)

    async def look(self) -> None:
        """Read and judge once, and write everything that is to be written."""
        await self.reader.look(BROKER)
        await self.reader.writer.write_all()

    def add_broker(self, name: str, token: str | None = None, **access: Any) -> ResourceKey:
        """Another Broker of the namespace; its observer is the same server, and knows it by its token."""
        key = ResourceKey("Broker", "shop", name)
        self.api.user_applies({**GOOD["Broker"], "metadata": {"name": name, "namespace": "shop"}})
        self.reader.cache.put(copy.deepcopy(self.api.objects[("Broker", "shop", name)]))
        self.reader.findings[key] = BrokerFindings(observer=replace(self.access, token=token or name, **access))
        return key

    def add_subscription(self, name: str) -> str:
        """Another Subscription of the Broker main; its uid."""
        self.api.user_applies({**GOOD["Subscription"], "metadata": {"name": name, "namespace": "shop"}})
        made = self.api.objects[("Subscription", "shop", name)]
        self.reader.cache.put(copy.deepcopy(made))
        return str(made["metadata"]["uid"])

    async def rounds(self, count: int, apart: timedelta) -> None:
        """Look so often, with a pause on the operator's clock before each look."""
        for _ in range(count):
            self.now += apart
            await self.look()


@asynccontextmanager
async def lag_stage(tmp_path: Path) -> AsyncGenerator[Stage]:
    """The stage, while its observer serves."""
    api, cache, findings = ApiServerInMemory(), Cache(), dict[ResourceKey, BrokerFindings]()
    for kind in ("Broker", "Exchange", "Subscription"):
        api.user_applies(GOOD[kind])
    for _, manifest in api.events:
        cache.put(manifest)
    cache.is_complete = True

    async def latest(request: web.Request) -> web.Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        made.requests.append(token)
        if len(made.requests) in made.arrivals:
            made.arrivals[len(made.requests)].set()
        if token != "secret" and token not in made.answers:
            return web.Response(status=401)
        answer = made.answers.get(token, made.answer)
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            return web.Response(status=503)
        if made.status != 200:
            return web.Response(status=made.status)
        body = json.dumps(answer)
        tag = f'"{hashlib.sha256(body.encode()).hexdigest()}"'
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag})
        made.bodies += 1
        return web.Response(text=body, content_type="application/json", headers={"ETag": tag})

    async def live(request: web.Request) -> web.Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token != "secret" and token not in made.answers:
            return web.Response(status=401)
        made.live_requests += 1
        if made.live is None or isinstance(made.live, int):
            return web.Response(status=made.live or 404)
        return web.Response(text=json.dumps(made.live), content_type="application/json")

    app = web.Application()
    app.router.add_get(LATEST, latest)
    app.router.add_get(LIVE_LAG, live)
    async with served_observer(app, tmp_path) as access, aiohttp.ClientSession() as http:
        findings[BROKER] = BrokerFindings(observer=access)
        reader = LagReader(api, cache, http, findings, lambda: made.now, lambda _: None, lambda: False, JOB)
        made = Stage(reader, api, access, api.objects[BILLING]["metadata"]["uid"])
        yield made
