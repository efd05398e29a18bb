"""The observer's HTTP interface: routes, the check of the token, and errors as JSON.

Paths and bodies are those of penstock_api.observer_api. Handlers read the live view, list the ledger and hand results
to the store; they decide nothing about brokers or lag. Source: docs/reference/observer.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from penstock_api.lag_result import LagResult
from penstock_api.message_audit import AUDIT_FILE, AUDITS, AuditList
from penstock_api.observer_api import (
    HEALTH,
    LATEST,
    LIVE_LAG,
    LIVE_RUN,
    MAX_RESULT_BYTES,
    METRICS,
    PER_CONSUMER,
    RESULTS,
    SCALE,
    SEGMENT,
    SEGMENTS,
    SUBSCRIPTIONS,
    Problem,
    SegmentList,
)
from penstock_api.observer_tokens import FULL_TOKEN, TOKEN_SCOPES, Scope
from penstock_api.state_documents import SubscriptionState
from penstock_lag_rules.entry import MESSAGE_LENGTH, time_of
from penstock_observer.audit_files import AuditStore
from penstock_observer.ledger import Ledger
from penstock_observer.live_lag import WINDOW_MS
from penstock_observer.live_view import LiveBroker, LiveView
from penstock_observer.metrics import accepts_gzip, exposition
from penstock_observer.page import is_page
from penstock_observer.replies import JSON, allowed, problem, put_reply, reply
from penstock_observer.results import BrokerPod, ResultStore
from penstock_observer.rollup_paths import RollupPaths
from penstock_observer.rollups import RollupStore
from penstock_observer.rows import Poll
from penstock_observer.scale import BadQuestion, per_consumer, scale_of
from penstock_observer.scopes import scope_of
from penstock_observer.secrets import Grant, TokenFile, has_token

__all__ = ["Api", "make_app"]

log = logging.getLogger(__name__)

Body = TypeVar("Body", bytes, str)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

GRANT: Final = web.RequestKey("grant", Grant)
"""Key of a request: what its token is good for."""
LIVE_THREADS: Final = 2
"""What is told to scrapers and to the operator at the same time; the others wait."""
PLACE_OF_TOKENS: Final = (
    "they are in the folder of the observer's own --token-file, in a cluster in the Secret BROKER-observer"
)
NO_TOKEN: Final = Problem(
    error="Unauthorized",
    message=f"no token came: send 'Authorization: Bearer TOKEN' with one of the observer's; {PLACE_OF_TOKENS}",
)
UNKNOWN_TOKEN: Final = Problem(
    error="Unauthorized", message=f"the observer does not know that token: send one of its own; {PLACE_OF_TOKENS}"
)


@dataclass(frozen=True, slots=True)
class Api:
    """Everything that the handlers read or write."""

    live: LiveView
    ledger: Ledger
    results: ResultStore
    place: BrokerPod
    token: TokenFile
    now: Callable[[], datetime]
    rollups: RollupStore | None = None
    """None: this observer keeps none."""
    audits: AuditStore | None = None
    live_threads: Executor = field(default_factory=lambda: ThreadPoolExecutor(LIVE_THREADS, "live"))
    """For what is told from memory: all threads of the loop may wait for a volume that hangs."""

    async def health(self, _: web.Request) -> web.StreamResponse:
        """Answer 200 whatever the broker's state, because restarting the observer would not repair the broker."""
        return web.Response(text="ok\n")

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        """Prometheus exposition."""
        is_compressed = accepts_gzip(request.headers.get("Accept-Encoding", ""))
        make = partial(exposition, self.live, self.ledger, self.results, self.place.namespace)
        body = await self._from_memory(partial(make, is_compressed=is_compressed))
        encoding = {"Content-Encoding": "gzip"} if is_compressed else {}
        return web.Response(
            body=body, headers={"Content-Type": CONTENT_TYPE_LATEST, "Vary": "Accept-Encoding", **encoding}
        )

    async def subscriptions(self, _: web.Request) -> web.StreamResponse:
        """Live states; 503 while the broker does not answer."""
        states = [state.to_wire() for state in self._poll().subscriptions]
        return web.json_response(states)

    async def scale(self, request: web.Request) -> web.StreamResponse:
        """Figures for an autoscaler; 503 while the broker does not answer, which must not look like an empty queue."""
        poll, lags = self._poll(), self.live.known.lags
        queue_name = request.match_info["queue_name"]
        namespace = request[GRANT].namespace
        try:
            wanted = per_consumer(request.query.get(PER_CONSUMER))
        except BadQuestion as error:
            raise problem(web.HTTPBadRequest, "BadQuestion", str(error)) from error
        for state in poll.subscriptions:
            if state.queue_name == queue_name and namespace in (None, self._namespace(state)):
                lag = next((each for each in lags if each.queue_name == queue_name), None)
                return reply(scale_of(state, lag, poll.broker.now_ms, wanted))
        raise problem(
            web.HTTPNotFound, "SubscriptionNotFound", f"the broker has no subscription with queue {queue_name!r}"
        )

    async def live_lag(self, _: web.Request) -> web.StreamResponse:
        """How every subscription stands, judged at the last poll; with the state Unknown and the reason once the
        broker has missed two polls. 503 before the first poll.
        """
        known = self.live.known
        if known.poll is None:
            raise problem(web.HTTPServiceUnavailable, "BrokerAway", known.problem or "the broker has not answered yet")
        body = await self._from_memory(lambda: _live_result(known, self.place).to_json())
        return web.Response(body=body.encode(), content_type=JSON)

    async def segments(self, _: web.Request) -> web.StreamResponse:
        """The sealed segments; served also while the broker does not answer. One missed poll is not told as silence."""
        known = self.live.known
        wrong = known.outage or known.ledger_problem
        return reply(
            SegmentList(
                broker=self.place.broker,
                namespace=self.place.namespace,
                ordinal=self.place.ordinal,
                epoch=None if known.poll is None else known.poll.broker.epoch,
                reachable=known.outage is None,
                polled_ms=None if known.poll is None else known.poll.broker.now_ms,
                problem=None if wrong is None else wrong[:1024],
                segments=self.ledger.segments,
            )
        )

    async def segment(self, request: web.Request) -> web.StreamResponse:
        """One Parquet file."""
        name = request.match_info["name"]
        path = self.ledger.path_of(name)
        if path is None:
            raise problem(
                web.HTTPNotFound,
                "SegmentNotFound",
                f"there is no segment {name!r} now; it may be past its retention, or merged into a larger one: "
                "list the segments again",
            )
        return web.FileResponse(path, headers={"Content-Type": "application/vnd.apache.parquet"})

    async def audit_list(self, _: web.Request) -> web.StreamResponse:
        """The audits, and the names of their files."""
        return reply(AuditList(audits=() if self.audits is None else self.audits.listed()))

    async def audit_file(self, request: web.Request) -> web.StreamResponse:
        """One Parquet file of an audit."""
        name = request.match_info["name"]
        path = None if self.audits is None else self.audits.path_of(name)
        if path is None:
            raise problem(web.HTTPNotFound, "AuditNotFound", f"there is no file {name!r} of an audit now")
        return web.FileResponse(path, headers={"Content-Type": "application/vnd.apache.parquet"})

    async def latest(self, request: web.Request) -> web.StreamResponse:
        """The result with the latest window end; 304 if the reader has these bytes already."""
        run_name = self.results.latest_run()
        if run_name is None:
            raise problem(web.HTTPNotFound, "NoResult", "no lag result has been stored yet")
        return await self._result(run_name, request)

    async def result(self, request: web.Request) -> web.StreamResponse:
        """The result of one run; 304 if the reader has these bytes already."""
        return await self._result(request.match_info["run_name"], request)

    async def put_result(self, request: web.Request) -> web.StreamResponse:
        """Store the result of one run: 201, or 200 if the same bytes are there already."""
        run_name = request.match_info["run_name"]
        body = await request.read()
        storing = asyncio.to_thread(self.results.put, run_name, body, self.now())
        return await put_reply(run_name, "result", f"result of run {run_name}", storing)

    async def _result(self, run_name: str, request: web.Request) -> web.Response:
        tag = self.results.tag(run_name)
        if tag is not None and any(known.value == tag for known in request.if_none_match or ()):
            return _tagged(web.Response(status=304), tag)
        body = await asyncio.to_thread(self.results.get, run_name)
        if body is None:
            raise problem(web.HTTPNotFound, "NoResult", f"there is no result of run {run_name!r}")
        return _tagged(web.Response(body=body, content_type=JSON), tag)

    async def _from_memory(self, make: Callable[[], Body]) -> Body:
        """On a thread, because it takes a second for ten thousand subscriptions."""
        return await asyncio.get_running_loop().run_in_executor(self.live_threads, make)

    def _namespace(self, state: SubscriptionState) -> str:
        return self.place.namespace if state.owner is None else state.owner.namespace

    def _poll(self) -> Poll:
        known = self.live.known
        if known.poll is None or known.problem is not None:
            raise problem(web.HTTPServiceUnavailable, "BrokerAway", known.problem or "the broker has not answered yet")
        return known.poll

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check the token, and give every error a JSON body. The page does both in its own way."""
        if is_page(request.path):
            return await handler(request)
        if request.path != HEALTH:
            grant = self.token.grant(request.headers, request.match_info.get("queue_name"))
            if grant is None:
                wrong = UNKNOWN_TOKEN if has_token(request.headers) else NO_TOKEN
                return reply(wrong, 401, {"WWW-Authenticate": "Bearer"})
            needed = scope_of(request)
            if not grant.allows(needed):
                return reply(_not_enough(needed), 403)
            request[GRANT] = grant
        try:
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400 or error.content_type == JSON:
                raise
            told = Problem(error=type(error).__name__.removeprefix("HTTP"), message=error.reason)
            return reply(told, error.status, allowed(error))


def make_app(api: Api) -> web.Application:
    """The application; the caller serves it."""
    app = web.Application(middlewares=[api.guard], client_max_size=MAX_RESULT_BYTES)
    app.router.add_get(HEALTH, api.health)
    app.router.add_get(METRICS, api.metrics)
    app.router.add_get(SUBSCRIPTIONS, api.subscriptions)
    app.router.add_get(SCALE, api.scale)
    app.router.add_get(SEGMENTS, api.segments)
    app.router.add_get(SEGMENT, api.segment)
    app.router.add_get(AUDITS, api.audit_list)
    app.router.add_get(AUDIT_FILE, api.audit_file)
    app.router.add_get(LIVE_LAG, api.live_lag)
    app.router.add_get(LATEST, api.latest)
    app.router.add_get(RESULTS, api.result)
    app.router.add_put(RESULTS, api.put_result)
    if api.rollups is not None:
        RollupPaths(api.rollups, api.place, api.now).add_to(app)
    return app


def _live_result(known: LiveBroker, place: BrokerPod) -> LagResult:
    assert known.poll is not None, "asked before"
    end_ms = known.poll.broker.now_ms
    outage = known.outage
    missing = () if outage is None else (f"{place.broker}-{place.ordinal}: {outage}"[:MESSAGE_LENGTH],)
    return LagResult(
        broker=place.broker,
        namespace=place.namespace,
        run_name=LIVE_RUN,
        window_start=time_of(end_ms - WINDOW_MS),
        window_end=time_of(end_ms),
        expected_brokers=1,
        reporting_brokers=int(outage is None),
        missing=missing,
        subscriptions=tuple(sorted(known.lags_now(), key=lambda lag: lag.queue_name)),
    )


def _not_enough(needed: Scope | None) -> Problem:
    """The answer to a token that is good, but not for this."""
    scope = "everything" if needed is None else needed.value
    files = [name for name, scopes in TOKEN_SCOPES.items() if needed in scopes and scopes != TOKEN_SCOPES[FULL_TOKEN]]
    good = ", ".join(("that of the observer's own --token-file", *files))
    told = f"this token is for something else; here a token for '{scope}' is needed: {good}"
    return Problem(error="Forbidden", message=told)


def _tagged(response: web.Response, tag: str | None) -> web.Response:
    """The response with the entity tag of its bytes, so that a reader need not load them again."""
    response.etag = tag
    return response
