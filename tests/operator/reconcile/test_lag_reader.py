"""The lag reader, from an observer's HTTPS server to the status of Subscriptions; and what a result document can't
change.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
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
from support.served_observer import served_observer

from penstock_api.observer_api import LATEST, LIVE_LAG
from penstock_operator.brokers.observer_client import (
    LagResultInvalid,
    LagResultUnavailable,
    NoNewResult,
    ObserverAccess,
    TaggedResult,
    fetch_latest,
)
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.lag_options import LagJobOptions
from penstock_operator.reconcile.broker_findings import BrokerFindings
from penstock_operator.reconcile.lag_reader import LagReader
from penstock_operator.reconcile.write_pace import WritePace

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
        self.reader = LagReader(self.api, cache, old.http, old.findings, old.clock, old.enqueue, JOB)

    async def look(self) -> None:
        """Read and judge once, and write everything that is to be written."""
        await self.reader.look(BROKER)
        await self.reader.writer.write_all()

    async def rounds(self, count: int, apart: timedelta) -> None:
        """Look so often, with a pause on the operator's clock before each look."""
        for _ in range(count):
            self.now += apart
            await self.look()


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
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
        reader = LagReader(api, cache, http, findings, lambda: made.now, lambda _: None, JOB)
        made = Stage(reader, api, access, api.objects[BILLING]["metadata"]["uid"])
        yield made


async def test_the_figure_reaches_the_subscription_and_the_run_the_broker(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.look()
    assert stage.lag() == {
        "messages": 17,
        "state": "OK",
        "message": "It is so.",
        "source": "Run",
        "observedTime": "2026-03-01T12:00:00Z",
        "runName": "main-lag-1",
        "runTime": "2026-03-01T12:00:00Z",
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
        await stage.look()
    assert stage.api.written == 1


async def test_an_older_window_is_passed_over(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.look()
    stage.answer = document(
        entry(stage.uid, messages=99, observedTime="2026-03-01T11:50:00Z"), windowEnd="2026-03-01T11:50:00Z"
    )
    await stage.look()
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
    await stage.look()
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
    await stage.look()
    assert (stage.lag(), stage.lagging(), stage.fresh()) == (None, ("", ""), ("Unknown", "Pending"))
    assert stage.reader.findings[BROKER].lag is None


async def test_when_no_run_reports_any_more_it_is_unknown_and_the_last_figure_stays(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.look()
    stage.now = NOW + timedelta(minutes=15)
    await stage.look()
    await stage.look()
    assert (stage.lagging(), stage.fresh()) == (("Unknown", "LagReportStale"), ("False", "LagReportStale"))
    assert (stage.lag()["state"], stage.lag()["messages"]) == ("Unknown", 17)
    assert stage.lag()["observedTime"] == "2026-03-01T12:00:00Z"
    assert stage.api.written == 2


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
async def test_three_hours_of_503_do_not_leave_it_at_ok(stage: Stage, restarted: bool) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.look()
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
    await stage.look()
    assert (stage.lag()["state"], stage.lagging()) == ("OK", ("False", "WithinThresholds"))
    assert stage.fresh() == ("True", "Current")


async def test_single_failures_change_nothing(stage: Stage) -> None:
    """Every other request fails for an hour; each result is five minutes old at most."""
    for minute in range(0, 60, 5):
        moment = (NOW + timedelta(minutes=minute)).isoformat()
        stage.answer = document(entry(stage.uid, observedTime=moment), windowEnd=moment)
        for stage.status in (200, 503, 200, 503):
            stage.now = NOW + timedelta(minutes=minute)
            await stage.look()
            assert (stage.lag()["state"], stage.fresh()) == ("OK", ("True", "Current"))
    assert stage.api.written == 1, "the figures of the other results are the same"


async def test_a_restarted_operator_asks_before_it_judges(stage: Stage) -> None:
    """The result is old, and the first request fails: nothing is written until a minute of failures."""
    stage.answer = document(entry(stage.uid))
    await stage.look()
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
    await stage.look()
    stage.reader.cache.remove(BROKER)
    stage.now = NOW + timedelta(minutes=15)
    await stage.look()
    assert (stage.lag()["state"], stage.fresh()) == ("Unknown", ("False", "LagReportStale"))
    assert "there is no Broker main" in stage.lag()["message"]


async def test_before_the_first_list_a_broker_may_only_not_have_been_seen(stage: Stage) -> None:
    stage.reader.cache.remove(BROKER)
    stage.reader.cache.is_complete = False
    await stage.look()
    assert stage.api.written == 0


async def test_a_result_that_leaves_out_a_subscription_ends_its_ok(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.look()
    stage.now = NOW + timedelta(minutes=5)
    stage.answer = document(windowEnd="2026-03-01T12:05:00Z", missing=["main-0: it does not answer"])
    await stage.look()
    assert (stage.lag()["state"], stage.lag()["messages"]) == ("Unknown", 17)
    assert (stage.lagging(), stage.fresh()) == (("Unknown", "LagReportStale"), ("False", "LagReportStale"))


async def test_of_two_entries_with_one_owner_the_newer_one_counts(stage: Stage) -> None:
    """A pod that was scaled away still has a ledger."""
    gone = entry(stage.uid, messages=99, observedTime="2026-03-01T11:50:00Z", state="Unknown")
    for entries in ((entry(stage.uid), gone), (gone, entry(stage.uid))):
        stage.answer = document(*entries)
        stage.restart()
        await stage.look()
        assert (stage.lag()["messages"], stage.lag()["state"]) == (17, "OK")


async def test_a_broker_that_is_made_again_begins_anew(stage: Stage) -> None:
    """The result of the Broker that had the name before, with a later window, says nothing about this one."""
    stage.answer = document(entry(stage.uid), windowEnd="2026-03-01T12:30:00Z")
    await stage.look()
    broker = copy.deepcopy(stage.api.objects[("Broker", "shop", "main")])
    broker["metadata"] |= {"uid": "another", "resourceVersion": "999"}
    stage.reader.cache.put(broker)
    later = "2026-03-01T12:05:00Z"
    stage.answer = document(entry(stage.uid, messages=99, observedTime=later), windowEnd=later)
    await stage.look()
    assert stage.lag()["messages"] == 99


class CountedPace(WritePace):
    """A pace without pauses that counts the writes."""

    writes = 0

    def wait(self, now: float) -> float:
        CountedPace.writes += 1
        return 0.0


async def test_every_write_keeps_the_pace(stage: Stage) -> None:
    CountedPace.writes = 0
    stage.reader.writer.pace = CountedPace(20)
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
    async with asyncio.timeout(60):
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
        async with asyncio.timeout(60):
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


async def test_live_state_with_the_percentiles_of_the_run(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid, state="OK", messages=3, sojournP95Millis=900, consumers=5))
    repeated = [{"id": "m-1", "deliveryCount": 6, "ageSeconds": 50}]
    stage.polled(70, state="Poison", messages=21, consumers=2, redeliveryPercent=95, repeated=repeated)
    await stage.look()
    assert stage.lag() == {
        "messages": 21,
        "sojournP95Millis": 900,
        "redeliveryPercent": 95,
        "consumers": 2,
        "repeated": repeated,
        "state": "Poison",
        "message": "It is so.",
        "source": "Live",
        "observedTime": "2026-03-01T12:01:10Z",
        "runName": "main-lag-1",
        "runTime": "2026-03-01T12:00:00Z",
        "brokersReporting": "1/1",
    }
    assert (stage.lagging(), stage.fresh()) == (("True", "Poison"), ("True", "Current"))
    shown = stage.reader.findings[BROKER].lag
    assert shown is not None
    assert shown["lastRunName"] == "main-lag-1", "the Broker's status is about runs"


async def test_a_state_is_shown_with_the_next_poll(stage: Stage) -> None:
    stage.answer = document()
    for seconds, state in ((0, "OK"), (10, "Unconsumed"), (20, "OK")):
        stage.polled(seconds, state=state)
        await stage.look()
        assert (stage.lag()["state"], stage.lag()["observedTime"][14:19]) == (state, f"00:{seconds:02}")


async def test_an_idle_subscription_costs_one_write_a_day(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid, state="Idle", messages=0))
    for seconds in range(0, 86_400, 600):
        stage.polled(seconds, state="Idle", messages=0, arrivalPerMinute=0)
        await stage.look()
    assert (stage.api.written, stage.fresh()) == (1, ("True", "Current"))


async def test_an_observer_without_a_live_result_is_asked_for_it_once_a_minute(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.look()
    await stage.rounds(11, timedelta(seconds=5))
    assert (stage.live_requests, len(stage.requests), stage.lag()["source"]) == (1, 12, "Run")
    stage.polled(60)
    await stage.look()
    assert (stage.live_requests, stage.lag()["source"]) == (2, "Live"), "the observer was updated"


async def test_a_clock_that_is_set_back_does_not_put_off_the_question(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.rounds(1, timedelta())
    await stage.rounds(1, timedelta(hours=-1))
    assert stage.live_requests == 2


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize(
    ("live", "says"),
    [
        ({"nothing": "of ours"}, "the lag of Broker shop/main is not known (Live): the result is not valid: version"),
        (document(broker="other"), "the lag of Broker shop/main is not known (Live): its live lag is about another"),
    ],
    ids=["invalid", "of another Broker"],
)
async def test_a_live_result_that_cannot_be_used_is_loaded_once_a_minute_and_logged_once(
    stage: Stage, caplog: pytest.LogCaptureFixture, live: Any, says: str
) -> None:
    stage.answer = document(entry(stage.uid))
    stage.live = live
    for _ in range(5):
        await stage.look()
        await stage.rounds(5, timedelta(seconds=10))
        stage.now += timedelta(seconds=10)
    assert (stage.live_requests, len(lines(caplog)), stage.lag()["source"]) == (5, 1, "Run")
    assert lines(caplog)[0].startswith(says.removesuffix(": version"))
    stage.polled(600, messages=40)
    await stage.look()
    assert stage.lag()["source"] == "Live"


@pytest.mark.parametrize("answer", [{"nothing": "of ours"}, document(broker="other")])
async def test_a_run_s_result_that_cannot_be_used_is_loaded_once_and_logged_once(
    stage: Stage, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    stage.answer = answer
    await stage.rounds(10, timedelta(seconds=10))
    assert (len(stage.requests), stage.bodies, len(lines(caplog))) == (10, 1, 1)
    said = next(it for it in stage.api.objects[BILLING]["status"]["conditions"] if it["type"] == "LagFresh")
    assert "result is" in said["message"], "it is still known what is wrong with it"
    stage.answer = document(entry(stage.uid))
    await stage.look()
    assert (stage.bodies, stage.fresh()) == (2, ("True", "Current"))


async def test_a_live_result_that_is_refused_does_not_keep_from_reading_the_run_s(stage: Stage) -> None:
    stage.answer, stage.live = document(entry(stage.uid)), 503
    await stage.rounds(12, timedelta(seconds=10))
    assert (stage.live_requests, len(stage.requests)) == (12, 12)
    assert (stage.lag()["source"], stage.fresh()) == ("Run", ("True", "Current"))


async def test_an_observer_that_is_gone_is_tried_once_a_round_and_unknown_after_ninety_seconds(stage: Stage) -> None:
    stage.answer = document()
    for seconds in (0, 10):
        stage.polled(seconds)
        await stage.look()
    stage.reader.findings[BROKER].observer = replace(stage.access, port=1)
    await stage.rounds(8, timedelta(seconds=10))
    assert (stage.lag()["state"], stage.fresh(), len(stage.requests)) == ("OK", ("True", "Current"), 2)
    await stage.rounds(1, timedelta(seconds=10))
    assert (stage.lag()["state"], stage.fresh()) == ("Unknown", ("False", "ObserverUnreachable"))
    assert (stage.lag()["observedTime"], stage.api.written) == ("2026-03-01T12:00:10Z", 2)
    stage.restart()
    await stage.rounds(30, timedelta(seconds=10))
    assert stage.api.written == 2, "it is said once"
    stage.reader.findings[BROKER].observer = stage.access
    stage.polled(600)
    await stage.look()
    assert (stage.lag()["state"], stage.fresh()) == ("OK", ("True", "Current"))


async def test_an_observer_that_is_restarted_costs_no_write(stage: Stage) -> None:
    """It can't judge for three polls."""
    stage.answer = document()
    for seconds, state in ((0, "OK"), (10, "OK"), (40, "Unknown"), (50, "Unknown"), (60, "OK")):
        stage.polled(seconds, state=state)
        await stage.look()
        if seconds == 10:
            stage.live = 503
            await stage.rounds(2, timedelta(seconds=10))
    assert (stage.lag()["state"], stage.api.written) == ("OK", 1)


async def test_a_broker_that_does_not_answer_its_observer_is_unknown_at_once(stage: Stage) -> None:
    stage.answer = document()
    stage.polled(0)
    await stage.look()
    stage.live["reportingBrokers"] = 0
    stage.live["subscriptions"][0] |= {"state": "Unknown", "message": "the broker does not answer"}
    await stage.rounds(1, timedelta(seconds=10))
    assert (stage.lag()["state"], stage.lag()["message"]) == ("Unknown", "the broker does not answer")
    assert (stage.lagging(), stage.fresh()) == (("Unknown", "Unknown"), ("Unknown", "Unknown"))
    stage.polled(20)
    await stage.look()
    assert (stage.lag()["state"], stage.fresh()) == ("OK", ("True", "Current"))


class HeldPace(WritePace):
    """A pace that lets no write happen before the test says so."""

    def __init__(self) -> None:
        super().__init__(20)
        self.is_held = True

    def wait(self, now: float) -> float:
        return 3600.0 if self.is_held else 0.0


async def test_reading_does_not_wait_for_writing_and_the_newest_verdict_is_written(stage: Stage) -> None:
    stage.answer = document()
    pace = stage.reader.writer.pace = HeldPace()
    stage.polled(0, state="OK")
    await stage.reader.look(BROKER)
    writing = asyncio.create_task(stage.reader.writer.run())
    stage.polled(10, state="Stalled")
    await stage.reader.look(BROKER)
    assert stage.lag() is None, "the first write has not happened yet"
    writing.cancel()
    with suppress(asyncio.CancelledError):
        await writing
    pace.is_held = False
    await stage.reader.writer.write_all()
    assert (stage.lag()["state"], stage.api.written) == ("Stalled", 1)


async def test_states_are_written_before_figures(stage: Stage) -> None:
    names = [f"s{number}" for number in range(4)]
    uids: dict[str, str] = {}
    for name in names:
        stage.api.user_applies(
            {
                **GOOD["Subscription"],
                "metadata": {"name": name, "namespace": "shop"},
            }
        )
        stage.reader.cache.put(copy.deepcopy(stage.api.objects[("Subscription", "shop", name)]))
        uids[name] = stage.api.objects[("Subscription", "shop", name)]["metadata"]["uid"]

    def polled(seconds: int, **messages: tuple[int, str]) -> None:
        stage.now = NOW + timedelta(seconds=seconds)
        moment = stage.now.isoformat()
        found = [
            entry(
                uids[name],
                ownerName=name,
                queueName=f"psub:durable:global:{name}",
                observedTime=moment,
                messages=count,
                state=state,
            )
            for name, (count, state) in messages.items()
        ]
        stage.live = document(*found, runName="live", windowEnd=moment)

    stage.answer = document()
    polled(0, s0=(1, "OK"), s1=(1, "OK"), s2=(1, "OK"), s3=(1, "OK"))
    await stage.look()
    order: list[str] = []
    stage.reader.writer.cache = Watched(stage.reader.cache, order)  # type: ignore[assignment]
    polled(10, s0=(99, "OK"), s1=(1, "OK"), s2=(99, "Stalled"), s3=(1, "Unconsumed"))
    await stage.look()
    assert (sorted(order[:2]), order[2:]) == (["s2", "s3"], ["s0"])


class Watched:
    """A cache that notes the names of what is put into it."""

    def __init__(self, cache: Cache, order: list[str]) -> None:
        self.get = cache.get
        self._cache, self._order = cache, order

    def put(self, manifest: Any) -> None:
        self._order.append(manifest["metadata"]["name"])
        self._cache.put(manifest)


async def test_observers_that_do_not_answer_take_no_turn_of_others(stage: Stage) -> None:
    """Eight that failed before do not answer; another Broker is read nevertheless."""
    held, arrived = asyncio.Event(), asyncio.Event()
    keys = [ResourceKey("Broker", "shop", f"b{number}") for number in range(8)]
    for key in keys:
        stage.api.user_applies({**GOOD["Broker"], "metadata": {"name": key.name, "namespace": "shop"}})
        stage.reader.cache.put(copy.deepcopy(stage.api.objects[(key.kind, key.namespace, key.name)]))
        stage.reader.findings[key] = BrokerFindings(observer=replace(stage.access, token=key.name, port=1))
    await asyncio.gather(*(stage.reader.look(key) for key in keys))
    for key in keys:
        stage.reader.findings[key] = BrokerFindings(observer=replace(stage.access, token=key.name))
        stage.answers[key.name] = held
    stage.arrivals[8] = arrived
    stage.answer = document(entry(stage.uid))
    async with asyncio.timeout(60):
        looks = asyncio.gather(*(stage.reader.look(key) for key in keys))
        await arrived.wait()
        await stage.look()
        assert stage.lag()["messages"] == 17
        held.set()
        await looks
