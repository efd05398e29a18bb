"""The lag reader, from an observer's HTTPS server to the status of Subscriptions; and what a result document can't
change.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from support.api_server_in_memory import ApiServerInMemory
from support.resources import GOOD

from penstock_api.observer_api import LATEST
from penstock_operator.brokers.observer_client import (
    LagResultInvalid,
    LagResultUnavailable,
    NoNewResult,
    ObserverAccess,
    TaggedResult,
    fetch_latest,
)
from penstock_operator.children import certificates
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.reconcile.broker_reconciler import BrokerFindings
from penstock_operator.reconcile.lag_reader import LagReader
from penstock_operator.reconcile.write_pace import WritePace

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
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

    def restart(self) -> None:
        """Another operator process: it knows only what the API server has."""
        cache = Cache()
        for manifest in self.api.objects.values():
            cache.put(copy.deepcopy(manifest))
        cache.is_complete = True
        old = self.reader
        self.reader = LagReader(self.api, cache, old.http, old.findings, old.clock, old.enqueue)

    async def rounds(self, count: int, apart: timedelta) -> None:
        """Look so often, with a pause on the operator's clock before each look."""
        for _ in range(count):
            self.now += apart
            await self.reader.look(BROKER)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    now = datetime.now(UTC)
    ca = certificates.make_ca("test", now)
    pair = certificates.make_server(ca, ["*.shop.svc"], now)
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
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

    app = web.Application()
    app.router.add_get(LATEST, latest)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    (address,) = runner.addresses
    access = ObserverAccess(
        host="127.0.0.1", port=address[1], server_name="main-observer.shop.svc", ca=ca.certificate, token="secret"
    )
    findings[BROKER] = BrokerFindings(observer=access)
    async with aiohttp.ClientSession() as http:
        reader = LagReader(api, cache, http, findings, lambda: made.now, lambda _: None)
        made = Stage(reader, api, access, api.objects[BILLING]["metadata"]["uid"])
        yield made
    await runner.cleanup()


async def test_the_figure_reaches_the_subscription_and_the_run_the_broker(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.reader.look(BROKER)
    assert stage.lag() == {
        "messages": 17,
        "state": "OK",
        "message": "It is so.",
        "observedTime": "2026-03-01T12:00:00Z",
        "runName": "main-lag-1",
        "brokersReporting": "1/1",
    }
    assert (stage.lagging(), stage.fresh()) == (("False", "WithinThresholds"), ("True", "Current"))
    assert stage.reader.findings[BROKER].lag == {
        "lastRunName": "main-lag-1",
        "windowEnd": "2026-03-01T12:00:00Z",
        "brokersReporting": "1/1",
    }


async def test_the_same_result_is_written_once(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    for _ in range(3):
        await stage.reader.look(BROKER)
    assert stage.api.written == 1


async def test_an_older_window_is_passed_over(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.reader.look(BROKER)
    stage.answer = document(
        entry(stage.uid, messages=99, observedTime="2026-03-01T11:50:00Z"), windowEnd="2026-03-01T11:50:00Z"
    )
    await stage.reader.look(BROKER)
    assert stage.lag()["messages"] == 17
    shown = stage.reader.findings[BROKER].lag
    assert shown is not None
    assert shown["windowEnd"] == "2026-03-01T12:00:00Z"


@pytest.mark.parametrize(
    "changes",
    [
        {"ownerUid": "another"},
        {"ownerName": "fraud"},
        {"ownerNamespace": "elsewhere"},
        {"queueName": "psub:durable:global:fraud"},
    ],
    ids=lambda changes: next(iter(changes)),
)
async def test_an_entry_has_to_fit_its_subscription(stage: Stage, changes: dict[str, str]) -> None:
    stage.answer = document(entry(stage.uid, **changes))
    await stage.reader.look(BROKER)
    assert stage.lag() is None


@pytest.mark.parametrize(
    "answer",
    [
        document(broker="other"),
        document(namespace="other"),
        {"nothing": "of ours"},
        document({"queueName": "q"}),
        [],
    ],
)
async def test_another_document_changes_nothing(stage: Stage, answer: Any) -> None:
    stage.answer = answer
    await stage.reader.look(BROKER)
    assert (stage.lag(), stage.lagging(), stage.fresh()) == (None, ("", ""), ("Unknown", "Pending"))
    assert stage.reader.findings[BROKER].lag is None


async def test_when_no_run_reports_any_more_it_is_unknown_and_the_last_figure_stays(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.reader.look(BROKER)
    stage.now = NOW + timedelta(minutes=15)
    await stage.reader.look(BROKER)
    await stage.reader.look(BROKER)
    assert (stage.lagging(), stage.fresh()) == (("Unknown", "LagReportStale"), ("False", "LagReportStale"))
    assert (stage.lag()["state"], stage.lag()["messages"]) == ("Unknown", 17)
    assert stage.lag()["observedTime"] == "2026-03-01T12:00:00Z"
    assert stage.api.written == 2


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
async def test_three_hours_of_503_do_not_leave_it_at_ok(stage: Stage, restarted: bool) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.reader.look(BROKER)
    stage.status = 503
    if restarted:
        stage.restart()
    await stage.rounds(14, timedelta(minutes=1))
    assert (stage.lag()["state"], stage.fresh(), stage.api.written) == ("OK", ("True", "Current"), 1)
    await stage.rounds(1, timedelta(minutes=1))
    await stage.rounds(33, timedelta(minutes=5))
    assert (stage.lagging(), stage.fresh()) == (("Unknown", "ObserverUnreachable"), ("False", "ObserverUnreachable"))
    assert (stage.lag()["state"], stage.lag()["messages"]) == ("Unknown", 17)
    assert "the observer answered 503" in stage.lag()["message"]
    assert stage.api.written == 2, "it is said once"
    stage.status = 200
    stage.answer = document(entry(stage.uid, observedTime="2026-03-01T15:00:00Z"), windowEnd="2026-03-01T15:00:00Z")
    await stage.reader.look(BROKER)
    assert (stage.lag()["state"], stage.lagging()) == ("OK", ("False", "WithinThresholds"))
    assert stage.fresh() == ("True", "Current")


async def test_single_failures_change_nothing(stage: Stage) -> None:
    """Every other request fails for an hour; each result is five minutes old at most."""
    for minute in range(0, 60, 5):
        moment = (NOW + timedelta(minutes=minute)).isoformat()
        stage.answer = document(entry(stage.uid, observedTime=moment), windowEnd=moment)
        for stage.status in (200, 503, 200, 503):
            stage.now = NOW + timedelta(minutes=minute)
            await stage.reader.look(BROKER)
            assert (stage.lag()["state"], stage.fresh()) == ("OK", ("True", "Current"))
    assert stage.api.written == 12, "one write for each result"


async def test_a_restarted_operator_asks_before_it_judges(stage: Stage) -> None:
    """The result is old, and the first request fails: nothing is written until a minute of failures."""
    stage.answer = document(entry(stage.uid))
    await stage.reader.look(BROKER)
    stage.status, stage.now = 503, NOW + timedelta(hours=1)
    stage.restart()
    await stage.rounds(1, timedelta())
    await stage.rounds(11, timedelta(seconds=5))
    assert (stage.fresh(), stage.api.written) == (("True", "Current"), 1)
    await stage.rounds(1, timedelta(seconds=5))
    assert (stage.fresh(), stage.api.written) == (("False", "ObserverUnreachable"), 2)
    stage.restart()
    await stage.rounds(30, timedelta(seconds=5))
    assert stage.api.written == 2, "what is said already is not said again"


async def test_an_observer_that_was_never_there_is_named(stage: Stage) -> None:
    stage.status = 503
    await stage.rounds(1, timedelta())
    assert stage.api.written == 0
    await stage.rounds(2, timedelta(seconds=30))
    assert (stage.lag(), stage.lagging(), stage.fresh()) == (None, ("", ""), ("Unknown", "ObserverUnreachable"))


async def test_a_broker_that_is_gone_leaves_no_ok(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.reader.look(BROKER)
    stage.reader.cache.remove(BROKER)
    stage.now = NOW + timedelta(minutes=15)
    await stage.reader.look(BROKER)
    assert (stage.lag()["state"], stage.fresh()) == ("Unknown", ("False", "LagReportStale"))
    assert "there is no Broker main" in stage.lag()["message"]


async def test_before_the_first_list_a_broker_may_only_not_have_been_seen(stage: Stage) -> None:
    stage.reader.cache.remove(BROKER)
    stage.reader.cache.is_complete = False
    await stage.reader.look(BROKER)
    assert stage.api.written == 0


async def test_a_result_that_leaves_out_a_subscription_ends_its_ok(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.reader.look(BROKER)
    stage.now = NOW + timedelta(minutes=5)
    stage.answer = document(windowEnd="2026-03-01T12:05:00Z", missing=["main-0: it does not answer"])
    await stage.reader.look(BROKER)
    assert (stage.lag()["state"], stage.lag()["messages"]) == ("Unknown", 17)
    assert (stage.lagging(), stage.fresh()) == (("Unknown", "LagReportStale"), ("False", "LagReportStale"))


async def test_of_two_entries_with_one_owner_the_newer_one_counts(stage: Stage) -> None:
    """A pod that was scaled away still has a ledger."""
    gone = entry(stage.uid, messages=99, observedTime="2026-03-01T11:50:00Z", state="Unknown")
    for entries in ((entry(stage.uid), gone), (gone, entry(stage.uid))):
        stage.answer = document(*entries)
        stage.restart()
        await stage.reader.look(BROKER)
        assert (stage.lag()["messages"], stage.lag()["state"]) == (17, "OK")


async def test_a_broker_that_is_made_again_begins_anew(stage: Stage) -> None:
    """The result of the Broker that had the name before, with a later window, says nothing about this one."""
    stage.answer = document(entry(stage.uid), windowEnd="2026-03-01T12:30:00Z")
    await stage.reader.look(BROKER)
    broker = copy.deepcopy(stage.api.objects[("Broker", "shop", "main")])
    broker["metadata"] |= {"uid": "another", "resourceVersion": "999"}
    stage.reader.cache.put(broker)
    later = "2026-03-01T12:05:00Z"
    stage.answer = document(entry(stage.uid, messages=99, observedTime=later), windowEnd=later)
    await stage.reader.look(BROKER)
    assert stage.lag()["messages"] == 99


class CountedPace(WritePace):
    """A pace without pauses that counts the writes."""

    writes = 0

    def wait(self, now: float) -> float:
        CountedPace.writes += 1
        return 0.0


async def test_every_write_keeps_the_pace(stage: Stage) -> None:
    CountedPace.writes = 0
    stage.reader.pace = CountedPace(20)
    for number in range(3):
        made = {**GOOD["Subscription"], "metadata": {"name": f"s{number}", "namespace": "shop"}}
        stage.api.user_applies(made)
        stage.reader.cache.put(copy.deepcopy(stage.api.objects[("Subscription", "shop", f"s{number}")]))
    stage.answer = document(entry(stage.uid))
    await stage.rounds(3, timedelta(seconds=5))
    assert (stage.api.written, CountedPace.writes) == (4, 4)


async def test_eight_observers_are_asked_at_once(stage: Stage) -> None:
    """Of ten that do not answer, eight are asked; the others have not even been connected to after another request."""
    held, eighth = asyncio.Event(), asyncio.Event()
    keys = [ResourceKey("Broker", "shop", f"b{number}") for number in range(10)]
    for key in keys:
        stage.api.user_applies({**GOOD["Broker"], "metadata": {"name": key.name, "namespace": "shop"}})
        stage.reader.cache.put(copy.deepcopy(stage.api.objects[(key.kind, key.namespace, key.name)]))
        stage.reader.findings[key] = BrokerFindings(observer=replace(stage.access, token=key.name))
        stage.answers[key.name] = held
    stage.arrivals[8] = eighth
    stage.answer = document()
    async with asyncio.timeout(10):
        looks = asyncio.gather(*(stage.reader.look(key) for key in keys))
        await eighth.wait()
        await fetch_latest(stage.reader.http, stage.access)
        assert len(stage.requests) == 9, "eight, and the one that was just answered"
        held.set()
        await looks
    assert len(stage.requests) == 11


async def test_a_result_is_loaded_once(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.rounds(5, timedelta(seconds=5))
    assert (len(stage.requests), stage.bodies, stage.api.written) == (5, 1, 1)
    stage.answer = document(
        entry(stage.uid, messages=99, observedTime="2026-03-01T12:05:00Z"), windowEnd="2026-03-01T12:05:00Z"
    )
    await stage.rounds(5, timedelta(seconds=5))
    assert (len(stage.requests), stage.bodies, stage.lag()["messages"]) == (10, 2, 99)


async def test_an_observer_that_does_not_answer_delays_no_other(stage: Stage) -> None:
    other = ResourceKey("Broker", "shop", "other")
    held = asyncio.Event()
    stage.answer = held
    seen: asyncio.Queue[ResourceKey] = asyncio.Queue()
    broker = {**GOOD["Broker"], "metadata": {"name": "other", "namespace": "shop"}}
    stage.api.user_applies(broker)
    stage.reader.cache.put(copy.deepcopy(stage.api.objects[("Broker", "shop", "other")]))
    stage.reader.findings[other] = BrokerFindings(observer=replace(stage.access, token="other"))
    stage.reader.enqueue = seen.put_nowait
    stage.answers["other"] = document(broker="other")
    running = asyncio.create_task(stage.reader.run(0.01))
    try:
        async with asyncio.timeout(5):
            assert await seen.get() == other
            stage.answers["other"] = document(broker="other", windowEnd="2026-03-01T12:05:00Z")
            assert await seen.get() == other
    finally:
        running.cancel()
        held.set()
        with suppress(asyncio.CancelledError):
            await running
    assert stage.requests.count("secret") == 1, "it is not asked again while it is waited for"
    assert stage.requests.count("other") >= 2


async def test_no_result_yet_is_none(stage: Stage) -> None:
    stage.status = 404
    assert await fetch_latest(stage.reader.http, stage.access) is NoNewResult.NONE_YET


async def test_unchanged_is_an_answer_only_to_who_has_a_result(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    found = await fetch_latest(stage.reader.http, stage.access)
    assert isinstance(found, TaggedResult)
    assert await fetch_latest(stage.reader.http, stage.access, found.tag) is NoNewResult.UNCHANGED
    stage.status = 304
    with pytest.raises(LagResultUnavailable, match="the observer answered 304"):
        await fetch_latest(stage.reader.http, stage.access)


async def test_a_document_that_is_none_is_told_apart_from_silence(stage: Stage) -> None:
    stage.answer = {"nothing": "of ours"}
    with pytest.raises(LagResultInvalid, match="the result is not valid"):
        await fetch_latest(stage.reader.http, stage.access)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"token": "wrong"}, "the observer answered 401"),
        ({"server_name": "main-observer.other.svc"}, "can't be reached"),
        ({"port": 1}, "can't be reached: "),
    ],
)
async def test_an_observer_that_can_t_be_asked_says_why(stage: Stage, change: dict[str, Any], says: str) -> None:
    with pytest.raises(LagResultUnavailable, match=says):
        await fetch_latest(stage.reader.http, replace(stage.access, **change))
