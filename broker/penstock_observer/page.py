"""The page of the observer: its routes, the login, and the documents that it draws.

It is read-only and needs no script. A reader shows a token once and gets a cookie, or sends it with every request as
any other client does; page_readers checks it. Drawing is the business of penstock_page.
Source: docs/reference/observer.md, "The page".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from aiohttp import web

from penstock_api.lag_result import LagResult
from penstock_api.management import EntityType
from penstock_api.message_operations import PeekRequest
from penstock_api.observer_api import PAGE
from penstock_api.state_documents import SubscriptionState
from penstock_observer.broker_details import BrokerDetails, NotKnown, consumers_of
from penstock_observer.depth_history import DepthHistory
from penstock_observer.kubernetes_login import Refusal
from penstock_observer.ledger import Ledger
from penstock_observer.ledger_time_series import time_series
from penstock_observer.live_view import LiveBroker, LiveView
from penstock_observer.page_readers import UNKNOWN, Reader, Readers
from penstock_observer.page_sessions import SESSION_SECONDS
from penstock_observer.replies import allowed
from penstock_observer.results import ResultStore
from penstock_observer.rows import Poll
from penstock_page import render
from penstock_page.bodies import shown_message
from penstock_page.documents import BrokerPlace, Consumer, Freshness, LastRun, MessagesPage, Overview, SubscriptionPage
from penstock_page.subscription_list import listing, number_in, wanted

__all__ = ["Page", "is_page", "page_app"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
OPEN_PATHS: Final = (f"{PAGE}/login", f"{PAGE}/style.css", f"{PAGE}/icon.svg", PAGE)
"""What a stranger may ask for: the form with its style and picture, and the redirect to the overview."""

LOGIN_BYTES: Final = 8192
LEAST_REFRESH_SECONDS: Final = 5
PAST_REFRESH_SECONDS: Final = 60
"""A page that shows hours of the ledger loads itself less often."""
STALE_SECONDS: Final = 60
STALE_POLLS: Final = 4
MOST_HOURS: Final = 48
PEEKED: Final = 10
"""Messages on one page."""
BODY_BYTES: Final = 4096
MOST_OFFSET: Final = 100_000_000
NO_MESSAGES: Final = (
    "Messages are private. They are shown to those who log in with the token for messages, or whose role allows to get "
    "brokers/messages, if the broker allows it: on Kubernetes spec.page.showMessages of the Broker, elsewhere "
    "observerPeek and --messages-token-file."
)


def is_page(path: str) -> bool:
    """Whether a path belongs to the page, which checks for itself who asks."""
    return path == PAGE or path.startswith(f"{PAGE}/")


READER: Final = web.RequestKey("reader", Reader)
"""Key of a request for a page that not everybody may see: who asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Everything that the page reads."""

    live: LiveView
    ledger: Ledger
    place: BrokerPlace
    readers: Readers
    history: DepthHistory
    details: BrokerDetails
    results: ResultStore
    interval_seconds: float

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check who asks, make every error a page, and add the headers that protect the reader."""
        response = await self._answer(request, handler)
        response.headers.update(HEADERS)
        return response

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method == "POST" and request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return _html(render.problem("Not from here", "The form of another site can't be sent to this page."), 403)
        if request.path not in OPEN_PATHS:
            reader = await self.readers.of(request.headers, request.cookies.get(_cookie(request)))
            if not isinstance(reader, Reader):
                return _stranger(request, reader)
            request[READER] = reader
        try:
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                # A response of its own: aiohttp is about to forbid to return an exception.
                return web.Response(status=error.status, headers=error.headers)
            response = _html(render.problem(error.reason, error.text or error.reason), error.status)
            response.headers.update(allowed(error) or {})
            return response

    async def to_overview(self, _: web.Request) -> web.StreamResponse:
        """The addresses of the pages are relative to a folder."""
        raise web.HTTPPermanentRedirect(f"{PAGE}/")

    async def style(self, _: web.Request) -> web.StreamResponse:
        """The style sheet."""
        return web.Response(text=render.style(), content_type="text/css", charset="utf-8")

    async def icon(self, _: web.Request) -> web.StreamResponse:
        """The picture in the browser's tab."""
        return web.Response(text=render.icon(), content_type="image/svg+xml", charset="utf-8")

    async def login_form(self, request: web.Request) -> web.StreamResponse:
        """The form for the token."""
        return _login_form(_way_back(request.query.get("to", "")), None, 200)

    async def login(self, request: web.Request) -> web.StreamResponse:
        """Begin a session, and go where the reader wanted to go."""
        given = await request.clone(client_max_size=LOGIN_BYTES).post()
        token, to = str(given.get("token", "")).strip(), _way_back(str(given.get("to", "")))
        name = await self.readers.begin(token)
        if isinstance(name, Refusal):
            return _login_form(to, name.sentence, name.status)
        response = web.Response(status=303, headers={"Location": to})
        response.set_cookie(
            _cookie(request),
            name,
            max_age=SESSION_SECONDS,
            path=PAGE,
            httponly=True,
            samesite="Strict",
            secure=request.secure,
        )
        return response

    async def logout(self, request: web.Request) -> web.StreamResponse:
        """End the session."""
        self.readers.sessions.end(request.cookies.get(_cookie(request)))
        response = web.Response(status=303, headers={"Location": "login"})
        response.del_cookie(_cookie(request), path=PAGE)
        return response

    async def overview(self, request: web.Request) -> web.StreamResponse:
        """All subscriptions, those in trouble first."""
        known, fresh = self._known()
        asked = wanted(request.query)
        found = listing(known.lags_despite(fresh.problem), asked)
        names = {lag.queue_name for lag in found.rows}
        page = Overview(
            place=self.place,
            broker=None if known.poll is None else known.poll.broker,
            freshness=fresh,
            listing=found,
            exchanges=await self.details.exchanges(),
            states={each.queue_name: each for each in _states(known) if each.queue_name in names},
            depths={name: self.history.of(name) for name in names},
            refresh_seconds=self._refresh_seconds if asked.is_refreshing else None,
        )
        return _html(render.overview(page, can_log_out=request[READER].has_session))

    async def subscription(self, request: web.Request) -> web.StreamResponse:
        """One subscription, with its past."""
        queue_name = request.query.get("queue", "")
        hours = number_in(request.query, "hours", 0, MOST_HOURS)
        known, fresh = self._known()
        lag = next((each for each in known.lags_despite(fresh.problem) if each.queue_name == queue_name), None)
        state = next((each for each in _states(known) if each.queue_name == queue_name), None)
        if known.poll is None or lag is None or state is None:
            raise web.HTTPNotFound(
                text=f"The broker has no subscription with the queue {queue_name!r}, as far as known."
            )
        found, told = await asyncio.to_thread(time_series, self.ledger, queue_name, known.poll.broker.now_ms, hours)
        consumers, consumers_problem = await self._consumers(queue_name, known.poll)
        is_refreshing = request.query.get("refresh") != "off"
        refresh_seconds = PAST_REFRESH_SECONDS if hours else self._refresh_seconds
        page = SubscriptionPage(
            place=self.place,
            freshness=fresh,
            lag=lag,
            state=state,
            time_series=found,
            course_problem=told,
            hours=hours,
            run=_last_run(self.results.latest_result(), queue_name),
            consumers=consumers,
            consumers_problem=consumers_problem,
            is_refreshing=is_refreshing,
            refresh_seconds=refresh_seconds if is_refreshing else None,
            sees_messages=request[READER].sees_messages,
        )
        return _html(render.subscription(page, can_log_out=request[READER].has_session))

    async def messages(self, request: web.Request) -> web.StreamResponse:
        """Messages that wait in a queue or subscription, with headers and decoded bodies."""
        reader = request[READER]
        if not reader.sees_messages:
            raise web.HTTPForbidden(text=NO_MESSAGES)
        name, offset = request.query.get("queue", ""), number_in(request.query, "offset", 0, MOST_OFFSET)
        known, fresh = self._known()
        is_subscription = any(each.queue_name == name and not each.is_queue for each in _states(known))
        kind = EntityType.SUBSCRIPTION if is_subscription else EntityType.QUEUE
        wanted = PeekRequest(offset=offset, count=PEEKED, max_body_bytes=BODY_BYTES)
        try:
            found = await self.details.peek(kind, name, wanted)
        except NotKnown as error:
            raise web.HTTPBadGateway(text=f"The messages can't be shown: {error}.") from error
        page = MessagesPage(
            place=self.place,
            freshness=fresh,
            queue_name=name,
            is_subscription=is_subscription,
            offset=offset,
            count=PEEKED,
            depth=found.depth,
            messages=tuple(shown_message(each) for each in found.messages),
        )
        return _html(render.messages(page, can_log_out=reader.has_session))

    async def _consumers(self, queue_name: str, poll: Poll) -> tuple[Sequence[Consumer], str | None]:
        try:
            return consumers_of(queue_name, await self.details.links(poll.broker.connections)), None
        except NotKnown as error:
            return (), str(error)

    def _known(self) -> tuple[LiveBroker, Freshness]:
        known = self.live.known
        seconds = self.history.seconds_since_answer
        problem = known.outage
        if (
            problem is None
            and seconds is not None
            and seconds > max(STALE_SECONDS, STALE_POLLS * self.interval_seconds)
        ):
            problem = f"the last answer of the broker is {seconds} s old, and no newer one has come"
        return known, Freshness(
            polled_ms=None if known.poll is None else known.poll.broker.now_ms,
            seconds_ago=seconds,
            problem=problem,
            ledger_problem=known.ledger_problem,
        )

    @property
    def _refresh_seconds(self) -> int:
        return max(round(self.interval_seconds), LEAST_REFRESH_SECONDS)


def page_app(page: Page) -> web.Application:
    """The application that serves the page below `PAGE`."""
    app = web.Application(middlewares=[page.guard])
    app.router.add_get("", page.to_overview)
    app.router.add_get("/", page.overview)
    app.router.add_get("/subscription", page.subscription)
    app.router.add_get("/messages", page.messages)
    app.router.add_get("/style.css", page.style)
    app.router.add_get("/icon.svg", page.icon)
    app.router.add_get("/login", page.login_form)
    app.router.add_post("/login", page.login)
    app.router.add_post("/logout", page.logout)
    return app


def _states(known: LiveBroker) -> Sequence[SubscriptionState]:
    return () if known.poll is None else known.poll.subscriptions


def _last_run(result: LagResult | None, queue_name: str) -> LastRun | None:
    if result is None:
        return None
    lag = next((each for each in result.subscriptions if each.queue_name == queue_name), None)
    begin, end = (round(time.timestamp() * 1000) for time in (result.window_start, result.window_end))
    return None if lag is None else LastRun(name=result.run_name, begin_ms=begin, end_ms=end, lag=lag)


def _cookie(request: web.Request) -> str:
    """The name of the cookie. Cookies do not tell the ports of a host apart, but two observers are two logins."""
    return f"penstock-page-{request.url.port}"


def _way_back(to: str) -> str:
    """Where a reader goes after the login: one of our own pages, whatever the form says."""
    page, _, query = to.partition("?")
    own = page if page in (render.SUBSCRIPTION, render.MESSAGES) else render.OVERVIEW
    safe = "".join(letter for letter in query if letter.isascii() and letter.isprintable() and letter != " ")
    return f"{own}?{safe}" if safe else own


def _stranger(request: web.Request, refusal: Refusal | None) -> web.Response:
    """A person is led to the form, a program with a wrong token is told so; who has to wait is told that."""
    if refusal is not None and not refusal.is_final:
        return _html(render.problem("Not now", refusal.sentence), refusal.status)
    here = _way_back(request.path_qs.removeprefix(f"{PAGE}/") if request.method == "GET" else "")
    is_person = "Authorization" not in request.headers and request.method == "GET"
    if not is_person or refusal not in (None, UNKNOWN):
        told = refusal or Refusal(401, "")
        return _login_form(here, told.sentence or None, told.status)
    return web.Response(status=303, headers={"Location": f"{PAGE}/login?{urlencode({'to': here})}"})


def _login_form(to: str, refused: str | None, status: int) -> web.Response:
    body = render.login(to=to, minutes=SESSION_SECONDS // 60, refused=refused)
    return _html(body, status)


def _html(body: str, status: int = 200) -> web.Response:
    return web.Response(text=body, status=status, content_type="text/html", charset="utf-8")
