"""The lag reader, from an observer's HTTPS server to the status of Subscriptions; and what a result document can't
change.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from support.api_server_in_memory import ApiServerInMemory
from support.resources import GOOD

from penstock_api.observer_api import LATEST
from penstock_operator.brokers.observer_client import LagResultUnavailable, NoNewResult, ObserverAccess, fetch_latest
from penstock_operator.children import certificates
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.reconcile.broker_reconciler import BrokerFindings
from penstock_operator.reconcile.lag_reader import LagReader

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

    def lag(self) -> Any:
        return self.api.objects[BILLING].get("status", {}).get("lag")

    def lagging(self) -> tuple[str, str]:
        conditions = self.api.objects[BILLING].get("status", {}).get("conditions", [])
        return next(((it["status"], it["reason"]) for it in conditions if it["type"] == "Lagging"), ("", ""))


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

    async def latest(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer secret":
            return web.Response(status=401)
        return web.json_response(made.answer, status=made.status)

    app = web.Application()
    app.router.add_get(LATEST, latest)
    runner = web.AppRunner(app)
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
        "observedTime": "2026-03-01T12:00:00Z",
        "runName": "main-lag-1",
        "brokersReporting": "1/1",
    }
    assert stage.lagging() == ("False", "WithinThresholds")
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
    assert (stage.lag(), stage.api.written) == (None, 0)


async def test_when_no_run_reports_any_more_it_is_unknown_and_the_last_figure_stays(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.reader.look(BROKER)
    stage.now = NOW + timedelta(minutes=15)
    await stage.reader.look(BROKER)
    await stage.reader.look(BROKER)
    assert stage.lagging() == ("Unknown", "LagReportStale")
    assert stage.lag()["messages"] == 17
    assert stage.api.written == 2


async def test_no_result_yet_is_none(stage: Stage) -> None:
    stage.status = 404
    assert await fetch_latest(stage.reader.http, stage.access) is NoNewResult.NONE_YET


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
