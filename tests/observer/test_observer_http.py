"""The HTTP interface of a real server on real files."""

from __future__ import annotations

import asyncio
import io
import re
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer
from observer.samples import START_MS, a_poll, a_result, a_subscription
from yarl import URL

from penstock_api.lag_result import LagResult, LagState, SubscriptionLag
from penstock_api.management import Owner
from penstock_api.observer_api import MAX_RESULT_BYTES, SegmentList
from penstock_api.observer_tokens import scale_token
from penstock_lag_rules.thresholds import Thresholds
from penstock_observer.audit_files import AuditStore
from penstock_observer.http import Api, make_app
from penstock_observer.ledger import Ledger, SealLimits
from penstock_observer.live_lag import LiveLag
from penstock_observer.live_view import LiveView
from penstock_observer.results import BrokerPod, ResultStore
from penstock_observer.retention import RetentionLimits
from penstock_observer.rollups import RollupStore
from penstock_observer.rows import RowOrigin
from penstock_observer.secrets import TokenFile

TestServer.__test__ = False  # pytest would collect it by its name

PLACE = BrokerPod("main", "shop", 0)


@dataclass(frozen=True)
class Observer:
    """A running observer without its poll loop."""

    api: Api
    session: aiohttp.ClientSession
    base: str

    async def get(self, path: str, **options: Any) -> tuple[int, Any]:
        """Status and JSON body of a GET."""
        async with self.session.get(f"{self.base}{path}", **options) as answer:
            return answer.status, await answer.json()

    async def put(self, path: str, body: bytes | io.BytesIO) -> tuple[int, Any]:
        """Status and JSON body of a PUT."""
        async with self.session.put(f"{self.base}{path}", data=body) as answer:
            return answer.status, await answer.json()


@pytest.fixture
async def observer(tmp_path: Path) -> AsyncIterator[Observer]:
    """A server, and a client that shows the token."""
    (tmp_path / "token").write_text("s3cret\n")
    rolling, limits = SealLimits(60, 1000, 10**9), RetentionLimits(10**12, 10**12)
    ledger = Ledger(tmp_path / "ledger", RowOrigin("main", 0, 1000), rolling, limits)
    results = ResultStore(tmp_path / "ledger" / "results", PLACE, keep=3)
    token = TokenFile(tmp_path / "token")
    rollups = RollupStore(tmp_path / "ledger" / "rollups", PLACE, 10**6)
    audits = AuditStore(tmp_path / "ledger" / "audit", 10**6, 10**12)
    now = datetime(2026, 1, 1, 13, tzinfo=UTC)
    api = Api(LiveView(), ledger, results, PLACE, token, lambda: now, rollups, audits)
    headers = {"Authorization": "Bearer s3cret"}
    async with TestServer(make_app(api)) as server, aiohttp.ClientSession(headers=headers) as session:
        yield Observer(api, session, str(server.make_url("")).rstrip("/"))
    ledger.close()


@pytest.mark.parametrize("path", ["/metrics", "/v1/lag/live"])
async def test_what_is_told_from_memory_is_told_although_all_threads_wait_for_a_volume(
    observer: Observer, path: str
) -> None:
    """Each result that is stored and each segment that is read may take one, and none comes back."""
    observer.api.live.answered(a_poll())
    answers, loop = threading.Event(), asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    waits = loop.run_in_executor(None, answers.wait)
    try:
        async with asyncio.timeout(30), observer.session.get(f"{observer.base}{path}") as answer:
            assert answer.status == 200
    finally:
        answers.set()
    await waits


PATHS = [
    "/metrics",
    "/v1/subscriptions",
    "/v1/subscriptions/x/scale",
    "/v1/ledger/segments",
    "/v1/ledger/segments/x",
    "/v1/audits",
    "/v1/audits/x",
    "/v1/rollups",
    "/v1/rollups/x",
    "/v1/lag/results/latest",
    "/v1/lag/results/run-1",
    "/nowhere",
]


@pytest.mark.parametrize("path", PATHS)
async def test_nothing_is_told_without_the_token(observer: Observer, path: str) -> None:
    """Not even which paths exist."""
    async with aiohttp.ClientSession() as stranger:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            async with stranger.get(f"{observer.base}{path}", headers=headers) as answer:
                assert answer.status == 401
                assert answer.headers["WWW-Authenticate"] == "Bearer"
                assert (await answer.json())["error"] == "Unauthorized"


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({}, "no token came: send 'Authorization: Bearer TOKEN' with one of the observer's; "),
        (
            {"Authorization": "Basic czNjcmV0"},
            "no token came: send 'Authorization: Bearer TOKEN' with one of the obse",
        ),
        ({"Authorization": "Bearer wrong"}, "the observer does not know that token: send one of its own; "),
        ({"X-API-Key": "wrong"}, "the observer does not know that token: send one of its own; "),
    ],
)
async def test_who_is_refused_reads_where_tokens_are(observer: Observer, headers: dict[str, str], told: str) -> None:
    """And not whose observer it is: a stranger asks."""
    async with (
        aiohttp.ClientSession() as stranger,
        stranger.get(f"{observer.base}/metrics", headers=headers) as answer,
    ):
        message = (await answer.json())["message"]
    assert message.startswith(told)
    place = "they are in the folder of the observer's own --token-file, in a cluster in the Secret BROKER-observer"
    assert message.endswith(place)


@pytest.mark.parametrize(
    ("path", "good"),
    [
        ("/v1/subscriptions", "that of the observer's own --token-file, page.token, operator.token"),
        ("/v1/ledger/segments", "that of the observer's own --token-file, ledger.token, lag.token"),
        ("/nowhere", "that of the observer's own --token-file"),
    ],
)
async def test_who_shows_the_wrong_one_of_its_tokens_reads_which_are_good(
    observer: Observer, tmp_path: Path, path: str, good: str
) -> None:
    (tmp_path / "scrape.token").write_text("for-metrics")
    headers = {"Authorization": "Bearer for-metrics"}
    async with observer.session.get(f"{observer.base}{path}", headers=headers) as answer:
        assert answer.status == 403
        assert (await answer.json())["message"].endswith(f"' is needed: {good}")


@pytest.mark.parametrize(
    ("method", "path", "methods"),
    [
        ("POST", "/healthz", {"GET", "HEAD"}),
        ("DELETE", "/metrics", {"GET", "HEAD"}),
        ("POST", "/v1/lag/results/run-1", {"GET", "HEAD", "PUT"}),
    ],
)
async def test_a_method_that_a_path_lacks_is_answered_with_those_that_it_has(
    observer: Observer, method: str, path: str, methods: set[str]
) -> None:
    """RFC 9110, 15.5.6."""
    async with observer.session.request(method, f"{observer.base}{path}") as answer:
        assert (answer.status, (await answer.json())["error"]) == (405, "MethodNotAllowed")
        assert set(answer.headers["Allow"].split(",")) == methods


TOKENS = {
    "token": "for-everything",
    "scrape.token": "for-metrics",
    "ledger.token": "for-the-ledger",
    "results.token": "for-results",
    "lag.token": "for-the-lag-job",
    "page.token": "for-people",
    "operator.token": "for-the-operator",
}
ROUTES = {
    # method and path: the tokens that are let in, besides the one for everything
    ("GET", "/metrics"): {"scrape"},
    ("GET", "/v1/subscriptions"): {"page", "operator"},
    ("GET", "/v1/subscriptions/{queue_name}/scale"): {"scale"},
    ("GET", "/v1/ledger/segments"): {"ledger", "lag"},
    ("GET", "/v1/ledger/segments/{name}"): {"ledger", "lag"},
    ("GET", "/v1/audits"): {"ledger", "lag"},
    ("GET", "/v1/audits/{name}"): {"ledger", "lag"},
    ("GET", "/v1/lag/live"): {"page", "operator"},
    ("GET", "/v1/lag/results/latest"): {"results", "lag", "page", "operator"},
    ("GET", "/v1/lag/results/{run_name}"): {"results", "lag", "page", "operator"},
    ("PUT", "/v1/lag/results/{run_name}"): {"results", "lag"},
    ("GET", "/v1/rollups"): {"lag", "ledger", "page"},
    ("GET", "/v1/rollups/{name}"): {"lag", "ledger", "page"},
    ("PUT", "/v1/rollups/{name}"): {"lag"},
}


def shown_tokens() -> dict[str, str]:
    """Every token by a short name; `scale` is that of the subscription in the paths."""
    short = {name.removesuffix(".token"): text for name, text in TOKENS.items()}
    return {**short, "scale": scale_token(b"a-key", "shop", "psub:durable:global:orders")}


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_every_path_takes_the_tokens_of_its_scope_alone(
    observer: Observer, tmp_path: Path, method: str, path: str
) -> None:
    """All routes x all tokens: 403 for a token of another scope, 401 for one that can't be checked here."""
    for name, text in TOKENS.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "scale.key").write_text("a-key")
    observer.api.live.answered(a_poll(START_MS, a_subscription()))
    concrete = path.format(queue_name="psub:durable:global:orders", name="x", run_name="run-1")
    let_in, refused = set[str](), dict[str, int]()
    for name, token in shown_tokens().items():
        headers = {"Authorization": f"Bearer {token}"}
        async with observer.session.request(method, f"{observer.base}{concrete}", headers=headers) as answer:
            if answer.status in (401, 403):
                refused[name] = answer.status
                assert (await answer.json())["error"] == {401: "Unauthorized", 403: "Forbidden"}[answer.status]
            else:
                let_in.add(name)
    assert let_in == ROUTES[method, path] | {"token"}
    # The token of a subscription is known only together with its queue.
    assert refused.pop("scale", 401) == 401
    assert set(refused.values()) <= {403}


def test_the_table_has_every_path(observer: Observer) -> None:
    """Whoever adds one says here, and on the page of the observer, which tokens it takes."""
    routes = {
        (route.method, route.resource.canonical)
        for route in make_app(observer.api).router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    assert routes - {("GET", "/healthz")} == set(ROUTES)
    page = (Path(__file__).parents[2] / "docs/reference/observer.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z-]+\.token)`", page, re.MULTILINE)) == set(TOKENS) - {"token"}


async def test_a_path_without_scope_is_for_the_token_for_everything(observer: Observer, tmp_path: Path) -> None:
    """So a path that is added without a line in the table gives nothing away."""
    (tmp_path / "scrape.token").write_text("for-metrics")
    headers = {"Authorization": "Bearer for-metrics"}
    assert (await observer.get("/nowhere", headers=headers))[0] == 403
    assert (await observer.get("/nowhere"))[0] == 404


async def test_head_needs_the_token_of_get(observer: Observer, tmp_path: Path) -> None:
    """It tells the length and the tag of what GET gives."""
    (tmp_path / "scrape.token").write_text("for-metrics")
    headers = {"Authorization": "Bearer for-metrics"}
    for path, status in (("/metrics", 200), ("/v1/ledger/segments", 403)):
        async with observer.session.head(f"{observer.base}{path}", headers=headers) as answer:
            assert answer.status == status


async def test_the_token_of_a_subscription_ends_with_its_namespace(observer: Observer, tmp_path: Path) -> None:
    """Another namespace has declared a queue of that name: for the old token it is not there."""
    (tmp_path / "scale.key").write_text("a-key")
    path = "/v1/subscriptions/psub:durable:global:orders/scale"
    observer.api.live.answered(
        a_poll(
            START_MS,
            a_subscription(
                owner=Owner(cluster_id="c", kind="Subscription", namespace="others", name="orders", uid="u")
            ),
        )
    )
    for namespace, status in (("others", 200), ("shop", 404)):
        token = scale_token(b"a-key", namespace, "psub:durable:global:orders")
        assert (await observer.get(path, headers={"Authorization": f"Bearer {token}"}))[0] == status


async def test_health_needs_no_token(observer: Observer) -> None:
    """And does not depend on the broker."""
    async with aiohttp.ClientSession() as stranger, stranger.get(f"{observer.base}/healthz") as answer:
        assert (answer.status, await answer.text()) == (200, "ok\n")


async def test_metrics_are_text_for_prometheus(observer: Observer) -> None:
    """With the content type that tells the format."""
    observer.api.live.answered(a_poll(START_MS, a_subscription(depth=3)))
    async with observer.session.get(f"{observer.base}/metrics") as answer:
        text = await answer.text()
        assert answer.headers["Content-Type"].startswith("text/plain")
    labels = 'exchange="events",namespace="shop",subscription="psub:durable:global:orders"'
    assert f"penstock_subscription_depth_messages{{{labels}}} 3\n" in text
    async with observer.session.get(f"{observer.base}/metrics", headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert await answer.text() == text
    async with observer.session.get(f"{observer.base}/metrics", headers={"Accept-Encoding": "identity"}) as answer:
        assert "Content-Encoding" not in answer.headers
        assert await answer.text() == text
    assert "penstock_broker_reachable 1.0" in text


async def test_live_state_is_the_brokers(observer: Observer) -> None:
    """The documents of `$management`."""
    state = a_subscription(depth=3, ready=3)
    observer.api.live.answered(a_poll(START_MS, state))
    assert await observer.get("/v1/subscriptions") == (200, [state.to_wire()])


async def test_live_state_is_unavailable_while_the_broker_is_away(observer: Observer) -> None:
    """Before the first answer and after the last; a gap is not an empty queue."""
    for path in ("/v1/subscriptions", "/v1/lag/live", "/v1/subscriptions/psub:durable:global:orders/scale"):
        assert (await observer.get(path))[0] == 503
    observer.api.live.answered(a_poll(START_MS, a_subscription()))
    observer.api.live.away("the broker does not answer: refused")
    status, body = await observer.get("/v1/subscriptions/psub:durable:global:orders/scale")
    assert (status, body) == (503, {"error": "BrokerAway", "message": "the broker does not answer: refused"})


async def test_live_lag_is_a_result_of_the_last_poll(observer: Observer) -> None:
    """As the lag job's, under the name `live`; Unknown with the reason while the broker is away, 503 before."""
    status, body = await observer.get("/v1/lag/live")
    assert (status, body["error"]) == (503, "BrokerAway")
    live = LiveLag(0, 10_000, Thresholds())
    poll = a_poll(START_MS)
    for step in range(3):
        poll = a_poll(START_MS + 10_000 * step, a_subscription())
        live.observe(poll)
    observer.api.live.answered(poll, tuple(live.lags()))
    status, body = await observer.get("/v1/lag/live")
    result = LagResult.model_validate(body)
    assert (status, result.broker, result.namespace, result.run_name) == (200, "main", "shop", "live")
    assert body["windowEnd"] == "2023-11-14T22:20:20Z"
    assert (result.expected_brokers, result.reporting_brokers, result.missing) == (1, 1, ())
    assert [(each.queue_name, each.state) for each in result.subscriptions] == [
        ("psub:durable:global:orders", LagState.IDLE)
    ]
    observer.api.live.away("the broker does not answer: refused")
    missed_once = LagResult.model_validate((await observer.get("/v1/lag/live"))[1])
    assert missed_once == result, "with the time of the poll that was answered"
    observer.api.live.away("the broker does not answer: refused")
    status, body = await observer.get("/v1/lag/live")
    result = LagResult.model_validate(body)
    assert (status, result.reporting_brokers, result.missing) == (
        200,
        0,
        ("main-0: the broker does not answer: refused",),
    )
    assert result.subscriptions[0].state is LagState.UNKNOWN


async def test_scale_counts_what_is_in_flight(observer: Observer) -> None:
    """Ready and in flight, not what is scheduled for later; whole seconds."""
    state = a_subscription(
        depth=9, ready=4, in_flight=3, scheduled=2, consumers=2, oldest_available_ms=START_MS - 61_900
    )
    observer.api.live.answered(a_poll(START_MS, state))
    assert await observer.get("/v1/subscriptions/psub:durable:global:orders/scale") == (
        200,
        {
            "queueName": "psub:durable:global:orders",
            "lag": 7,
            "ready": 4,
            "inFlight": 3,
            "oldestSeconds": 61,
            "consumers": 2,
            "consumerCap": 20,
        },
    )


@pytest.mark.parametrize(
    ("said", "cap", "capped"),
    [
        ({"state": "Lagging", "suggested_consumers": 5}, 5, 500),
        ({"state": "Lagging", "suggested_consumers": 9}, 9, 700),
        ({"state": "Stalled"}, 2, 200),
        ({"state": "Poison"}, 2, 200),
        ({"state": "OK"}, 20, 700),
        ({"state": "Losing"}, 20, 700),
        (None, 20, 700),
    ],
)
async def test_scale_caps_the_lag_where_more_consumers_are_not_known_to_help(
    observer: Observer, said: dict[str, Any] | None, cap: int, capped: int
) -> None:
    """Two consumers and 700 messages, 100 for each consumer."""
    state = a_subscription(depth=700, ready=600, in_flight=100, consumers=2)
    told = {"queueName": state.queue_name, "observedTime": "2026-03-01T12:00:00Z", "message": "It is so."}
    lags = () if said is None else (SubscriptionLag.model_validate({**told, **said}),)
    observer.api.live.answered(a_poll(START_MS, state), lags)
    status, body = await observer.get("/v1/subscriptions/psub:durable:global:orders/scale?perConsumer=100")
    assert (status, body["lag"], body["consumerCap"], body["cappedLag"]) == (200, 700, cap, capped)
    assert body.get("suggestedConsumers") == (said or {}).get("suggested_consumers")


@pytest.mark.parametrize("number", ["0", "-1", "1.5", "x", "", "1000000001", "\u0663"])
async def test_scale_refuses_a_number_of_messages_that_is_none(observer: Observer, number: str) -> None:
    observer.api.live.answered(a_poll(START_MS, a_subscription()))
    path = f"/v1/subscriptions/psub:durable:global:orders/scale?perConsumer={number}"
    status, body = await observer.get(path)
    assert (status, body["error"]) == (400, "BadQuestion")
    assert "perConsumer is the number of messages for each consumer, 1 to 1000000000" in body["message"]


async def test_scale_says_no_age_that_is_not_known(observer: Observer) -> None:
    """A scaler takes that for an error and not for zero. The other figures are known."""
    observer.api.live.answered(a_poll(START_MS, a_subscription(depth=1, ready=1, scheduled=1)))
    status, body = await observer.get("/v1/subscriptions/psub:durable:global:orders/scale")
    assert (status, body["lag"], "oldestSeconds" in body) == (200, 1, False)
    observer.api.live.answered(a_poll(START_MS, a_subscription(depth=1, scheduled=1)))
    _, body = await observer.get("/v1/subscriptions/psub:durable:global:orders/scale")
    assert (body["lag"], body["oldestSeconds"]) == (0, 0)


async def test_scale_of_a_name_with_percent_signs(observer: Observer) -> None:
    """Queue names are percent-encoded themselves, so the address encodes them once more."""
    state = a_subscription(queue_name="psub:durable:global:a%2Fb", ready=1, depth=1)
    observer.api.live.answered(a_poll(START_MS, state))
    async with observer.session.get(
        URL(f"{observer.base}/v1/subscriptions/psub:durable:global:a%252Fb/scale", encoded=True)
    ) as answer:
        assert (answer.status, (await answer.json())["lag"]) == (200, 1)


async def test_scale_of_an_unknown_subscription(observer: Observer) -> None:
    """Not found, which a scaler takes for an error and not for zero."""
    observer.api.live.answered(a_poll())
    status, body = await observer.get("/v1/subscriptions/nobody/scale")
    assert (status, body["error"]) == (404, "SubscriptionNotFound")


async def test_segments_are_listed_and_served(observer: Observer) -> None:
    """Also while the broker is away, with the reason; the file is the file."""
    observer.api.live.answered(a_poll())
    observer.api.ledger.append(a_poll())
    observer.api.ledger.seal(START_MS)
    observer.api.live.away("the broker does not answer: refused")
    listing = SegmentList.model_validate((await observer.get("/v1/ledger/segments"))[1])
    assert (listing.reachable, listing.problem, listing.polled_ms) == (True, None, START_MS), "one missed poll"
    observer.api.live.away("the broker does not answer: refused")
    status, body = await observer.get("/v1/ledger/segments")
    listing = SegmentList.model_validate(body)
    assert status == 200
    assert (listing.broker, listing.namespace, listing.ordinal, listing.epoch) == ("main", "shop", 0, 3)
    assert (listing.reachable, listing.polled_ms) == (False, START_MS)
    assert listing.problem == "the broker does not answer: refused"
    (segment,) = listing.segments
    assert (segment.name, segment.rows) == ("0000000003-000000000001-000000000001.parquet", 1)
    async with observer.session.get(f"{observer.base}/v1/ledger/segments/{segment.name}") as answer:
        assert await answer.read() == (observer.api.ledger.folder / segment.name).read_bytes()


@pytest.mark.parametrize("name", ["x", "..%2Ftoken", ".lock", "0000000003-000000000001-000000000001.parquet"])
async def test_what_is_no_segment_is_not_found(observer: Observer, name: str) -> None:
    """No name leads out of the ledger."""
    url = URL(f"{observer.base}/v1/ledger/segments/{name}", encoded=True)
    async with observer.session.get(url) as answer:
        assert (answer.status, (await answer.json())["error"]) == (404, "SegmentNotFound")


async def test_results_are_stored_and_given_back(observer: Observer) -> None:
    """201, then 200 for the same bytes; latest and by name."""
    body = a_result()
    assert await observer.get("/v1/lag/results/latest") == (
        404,
        {"error": "NoResult", "message": "no lag result has been stored yet"},
    )
    assert await observer.put("/v1/lag/results/run-1", body) == (201, {"runName": "run-1", "outcome": "Stored"})
    assert await observer.put("/v1/lag/results/run-1", body) == (200, {"runName": "run-1", "outcome": "Unchanged"})
    for name in ("latest", "run-1"):
        async with observer.session.get(f"{observer.base}/v1/lag/results/{name}") as answer:
            assert await answer.read() == body


async def test_a_reader_that_has_the_newest_result_does_not_load_it_again(observer: Observer) -> None:
    """304 for the tag of the stored bytes, 200 with another tag as soon as they differ, also under the same name."""
    latest = f"{observer.base}/v1/lag/results/latest"
    await observer.put("/v1/lag/results/run-1", a_result())
    async with observer.session.get(latest) as answer:
        tag = answer.headers["ETag"]
    async with observer.session.get(latest, headers={"If-None-Match": tag}) as answer:
        assert (answer.status, answer.headers["ETag"], await answer.read()) == (304, tag, b"")
    changed = a_result(segments=["0/0000000003-000000000001-000000000021.parquet"])
    await observer.put("/v1/lag/results/run-1", changed)
    async with observer.session.get(latest, headers={"If-None-Match": tag}) as answer:
        assert (answer.status, await answer.read()) == (200, changed)
        assert answer.headers["ETag"] != tag


async def test_a_restarted_observer_gives_a_result_the_same_tag(observer: Observer, tmp_path: Path) -> None:
    """So a reader need not load it again."""
    await observer.put("/v1/lag/results/run-1", a_result())
    again = ResultStore(tmp_path / "ledger" / "results", PLACE, keep=3)
    assert again.tag("run-1") is not None
    assert again.tag("run-1") == observer.api.results.tag("run-1")
    assert again.tag("run-2") is None


async def test_bad_results_are_refused_with_reason(observer: Observer) -> None:
    """400 for what is none, 409 for what is in the way."""
    status, body = await observer.put("/v1/lag/results/run-1", b"{}")
    assert (status, body["error"]) == (400, "NotAResult")
    status, body = await observer.put("/v1/lag/results/run-1", a_result(broker="other"))
    assert (status, body["error"]) == (409, "OtherBroker")


async def test_a_result_that_is_too_large_is_refused(observer: Observer) -> None:
    """By its length; the observer's memory is its broker pod's."""
    status, body = await observer.put("/v1/lag/results/run-1", io.BytesIO(b"x" * (MAX_RESULT_BYTES + 1)))
    assert (status, body["error"]) == (413, "RequestEntityTooLarge")


async def test_errors_of_the_router_are_json_too(observer: Observer) -> None:
    """Unknown path, wrong method."""
    assert await observer.get("/nowhere") == (404, {"error": "NotFound", "message": "Not Found"})
    status, body = await observer.put("/v1/subscriptions", b"")
    assert (status, body["error"]) == (405, "MethodNotAllowed")
