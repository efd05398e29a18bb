"""The way of lag from a poll to the status: a real observer's HTTP interface and rules, read by the operator over TLS.

Only the broker's answers are scripted, and the API server is in memory. The observer polls every ten seconds, and the
operator looks after each poll.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from observer.samples import START_MS, a_poll, a_result, a_subscription
from support.api_server_in_memory import ApiServerInMemory
from support.resources import GOOD
from support.served_observer import served_observer

from penstock_api.lag_result import LagState, SubscriptionLag
from penstock_api.management import Owner
from penstock_lag_rules.entry import time_of
from penstock_lag_rules.thresholds import Thresholds
from penstock_observer.http import Api, make_app
from penstock_observer.ledger import Ledger, SealLimits
from penstock_observer.live_lag import LiveLag
from penstock_observer.live_view import LiveView
from penstock_observer.results import BrokerPod, ResultStore
from penstock_observer.retention import RetentionLimits
from penstock_observer.rows import RowOrigin
from penstock_observer.secrets import TokenFile
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.reconcile.broker_findings import BrokerFindings
from penstock_operator.reconcile.lag_reader import LagReader

BROKER, BILLING = ResourceKey("Broker", "shop", "main"), ("Subscription", "shop", "billing")


@dataclass
class Site:
    """A broker's observer and an operator."""

    api: ApiServerInMemory
    reader: LagReader
    view: LiveView
    results: ResultStore
    seconds: int = 0
    """Since the first poll, on all clocks."""
    rules: LiveLag = field(default_factory=lambda: LiveLag(0, 10_000, Thresholds()))

    @property
    def now(self) -> datetime:
        return time_of(START_MS) + timedelta(seconds=self.seconds)

    async def poll(self, **figures: Any) -> str:
        """Ten seconds later: the broker answers its observer, and the operator looks; the state that is shown then."""
        self.seconds += 10
        metadata = self.api.objects[BILLING]["metadata"]
        owner = Owner(cluster_id="c", namespace="shop", kind="Subscription", name="billing", uid=metadata["uid"])
        poll = a_poll(START_MS + 1000 * self.seconds, a_subscription("billing", owner=owner, **figures))
        self.rules.observe(poll)
        self.view.answered(poll, tuple(self.rules.lags()))
        return await self.look()

    async def look(self) -> str:
        await self.reader.look(BROKER)
        await self.reader.writer.write_all()
        return str(self.shown("state"))

    def shown(self, name: str) -> Any:
        return self.api.objects[BILLING].get("status", {}).get("lag", {}).get(name)

    def fresh(self) -> tuple[str, str]:
        conditions = self.api.objects[BILLING]["status"]["conditions"]
        return next((it["status"], it["reason"]) for it in conditions if it["type"] == "LagFresh")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    (tmp_path / "token").write_text("secret\n")
    place, view = BrokerPod("main", "shop", 0), LiveView()
    rolling, limits = SealLimits(60, 1000, 10**9), RetentionLimits(10**12, 10**12)
    ledger = Ledger(tmp_path / "ledger", RowOrigin("main", 0, 1000), rolling, limits)
    results = ResultStore(tmp_path / "ledger" / "results", place, keep=3)
    served = Api(view, ledger, results, place, TokenFile(tmp_path / "token"), lambda: made.now)
    api, cache = ApiServerInMemory(), Cache()
    for kind in ("Broker", "Exchange", "Subscription"):
        api.user_applies(GOOD[kind])
    for _, manifest in api.events:
        cache.put(manifest)
    cache.is_complete = True
    async with served_observer(make_app(served), tmp_path) as access, aiohttp.ClientSession() as http:
        findings = {BROKER: BrokerFindings(observer=access)}
        reader = LagReader(api, cache, http, findings, lambda: made.now, lambda _: None, lambda: False)
        made = Site(api, reader, view, results)
        yield made
    ledger.close()


def healthy(step: int) -> dict[str, Any]:
    """Ten messages in each poll, all accepted."""
    count = 10 * step
    return {"consumers": 1, "credit": 5, "enqueued": count, "delivered": count, "acked": count}


async def test_a_consumer_that_dies_is_shown_by_the_poll_that_judges_it(site: Site) -> None:
    """It dies at 40 s, and ten messages come in each poll. At 100 s the backlog is a minute old and grows; at 110 s
    there was no consumer for more than a minute.
    """
    states = [await site.poll(**healthy(step)) for step in range(1, 5)]
    assert states == ["Unknown", "Unknown", "OK", "OK"], "three polls are needed to judge"
    died = START_MS + 40_000
    states = [
        await site.poll(
            enqueued=40 + waiting,
            delivered=40,
            acked=40,
            depth=waiting,
            ready=waiting,
            oldest_available_ms=died,
            unused_since_ms=died,
        )
        for waiting in range(10, 80, 10)
    ]
    assert states == ["OK"] * 5 + ["Lagging", "Unconsumed"]
    assert site.shown("message") == "no consumer for 70 s; 70 messages wait, the oldest for 70 s"
    assert (site.shown("messages"), site.shown("source"), site.fresh()) == (70, "Live", ("True", "Current"))


async def test_a_run_adds_its_percentile(site: Site) -> None:
    for step in range(1, 4):
        await site.poll(**healthy(step))
    metadata = site.api.objects[BILLING]["metadata"]
    found = SubscriptionLag(
        queue_name="psub:durable:global:billing",
        owner_namespace="shop",
        owner_name="billing",
        owner_uid=metadata["uid"],
        observed_time=site.now,
        state=LagState.LAGGING,
        message="It was so.",
        messages=999,
        sojourn_p95_millis=40,
    )
    site.results.put("main-lag-1", a_result("main-lag-1", site.now, subscriptions=(found,)), site.now)
    assert await site.poll(**healthy(4)) == "OK"
    assert (site.shown("messages"), site.shown("sojournP95Millis")) == (0, 40)
    assert (site.shown("runName"), site.shown("runTime")) == ("main-lag-1", "2023-11-14T22:20:30Z")


async def test_a_broker_that_does_not_answer_and_an_observer_that_begins_anew(site: Site) -> None:
    for step in range(1, 5):
        await site.poll(**healthy(step))
    site.view.away("the broker does not answer: refused")
    assert (await site.look(), site.fresh()) == ("OK", ("True", "Current")), "one missed poll"
    site.view.away("the broker does not answer: refused")
    assert await site.look() == "Unknown"
    assert (site.shown("message"), site.fresh()) == ("the broker does not answer: refused", ("Unknown", "Unknown"))
    assert await site.poll(**healthy(5)) == "OK"
    written = site.api.written
    # The observer's process is another one: 503 before its first poll, then too few polls to judge.
    site.view.known = LiveView().known
    site.rules = LiveLag(0, 10_000, Thresholds())
    site.seconds += 10
    assert await site.look() == "OK"
    states = [await site.poll(**healthy(step)) for step in range(6, 10)]
    assert (states, site.fresh()) == (["OK"] * 4, ("True", "Current"))
    assert site.api.written - written <= 1, "figures, and no state"


async def test_an_observer_that_is_gone(site: Site) -> None:
    for step in range(1, 5):
        await site.poll(**healthy(step))
    found = site.reader.findings[BROKER]
    assert found.observer is not None
    found.observer = replace(found.observer, port=1)
    states: list[str] = []
    for _ in range(9):
        site.seconds += 10
        states.append(await site.look())
    assert (states, site.fresh()) == (["OK"] * 8 + ["Unknown"], ("False", "ObserverUnreachable"))


async def test_a_queue_has_lag_like_a_subscription(site: Site) -> None:
    """Ten messages come in each poll, and nobody consumes."""
    site.api.user_applies(GOOD["Queue"])
    key = ("Queue", "shop", "invoices")
    made = site.api.objects[key]
    made["spec"]["lagThresholds"] = {"messages": 50}
    site.reader.cache.put(made)
    owner = Owner(cluster_id="c", namespace="shop", kind="Queue", name="invoices", uid=made["metadata"]["uid"])
    queue = {"queue_name": "invoices", "exchange": "", "owner": owner, "unused_since_ms": START_MS}
    for step in range(1, 10):
        site.seconds += 10
        count = {
            "enqueued": 10 * step,
            "depth": 10 * step,
            "ready": 10 * step,
            "oldest_available_ms": START_MS + 10_000,
        }
        poll = a_poll(START_MS + 1000 * site.seconds, a_subscription("invoices", **queue, **count))
        site.rules.observe(poll)
        site.view.answered(poll, tuple(site.rules.lags()))
        await site.look()
    status = site.api.objects[key]["status"]
    assert (status["lag"]["state"], status["lag"]["messages"], status["lag"]["source"]) == ("Unconsumed", 90, "Live")
    shown = {it["type"]: (it["status"], it["reason"]) for it in status["conditions"]}
    assert shown["Lagging"] == ("True", "BacklogAboveThreshold")
    assert shown["LagFresh"] == ("True", "Current")
    assert "status" not in site.api.objects[BILLING] or site.shown("messages") is None
