"""A page that is served for a test: its parts, a clock that stands still, and a reader with a cookie jar of his own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from penstock_lag_rules.thresholds import Thresholds
from penstock_observer.access_reviews import PageOf, Reviews
from penstock_observer.broker_details import BrokerDetails, Connect, DetailsConnection
from penstock_observer.depth_history import DepthHistory
from penstock_observer.kubernetes_login import KubernetesLogin
from penstock_observer.ledger import Ledger, SealLimits
from penstock_observer.live_lag import LiveLag
from penstock_observer.live_view import LiveView
from penstock_observer.page import Page, page_app
from penstock_observer.page_readers import Readers
from penstock_observer.page_sessions import Sessions
from penstock_observer.results import BrokerPod, ResultStore
from penstock_observer.retention import RetentionLimits
from penstock_observer.rows import Poll, RowOrigin
from penstock_observer.secrets import TokenFile
from penstock_page.documents import BrokerPlace

TestServer.__test__ = False  # pytest would collect it by its name

TOKEN = "s3cret"
MESSAGES_TOKEN = "m3ssages"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@dataclass
class Clock:
    """Stands still until it is moved."""

    seconds: float = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.seconds


@dataclass
class Site:
    """A page that is served, its parts, and a reader with a cookie jar of his own."""

    page: Page
    clock: Clock
    base: str
    reader: aiohttp.ClientSession
    token: Path
    lag: LiveLag = field(default_factory=lambda: LiveLag(0, 10_000, Thresholds()))

    def answer(self, poll: Poll) -> None:
        """The broker answers."""
        self.lag.observe(poll)
        self.page.live.answered(poll, tuple(self.lag.lags()))
        self.page.ledger.append(poll)

    async def get(self, path: str, **options: Any) -> tuple[int, str]:
        """Status and page."""
        async with self.reader.get(f"{self.base}{path}", **options) as answer:
            return answer.status, await answer.text()

    async def log_in(self, token: str = "s3cret", to: str = "./", **options: Any) -> tuple[int, str, str]:
        """Status, place and page of the answer to the form."""
        form = {"token": token, "to": to}
        async with self.reader.post(f"{self.base}/page/login", data=form, allow_redirects=False, **options) as answer:
            return answer.status, answer.headers.get("Location", ""), await answer.text()


async def no_broker() -> DetailsConnection:
    """A socket that nobody listens on."""
    raise ConnectionRefusedError("refused")


@asynccontextmanager
async def serving(
    folder: Path, connect: Connect = no_broker, reviews: Reviews | None = None
) -> AsyncGenerator[Site, None]:
    """Served below /page, as by the observer; `reviews` answer for Kubernetes tokens."""
    token = folder / "token"
    token.write_text(f"{TOKEN}\n")
    (folder / "messages-token").write_text(f"{MESSAGES_TOKEN}\n")
    clock, names = Clock(), count()
    history = DepthHistory(clock)
    ledger = Ledger(
        folder / "ledger", RowOrigin("main", 0, 10_000), SealLimits(60, 1000, 10**9), RetentionLimits(10**12, 10**12)
    )
    page = Page(
        live=LiveView(on_answer=history.observe),
        ledger=ledger,
        place=BrokerPlace("main", "shop", 0),
        readers=Readers(
            token=TokenFile(token),
            messages_token=TokenFile(folder / "messages-token"),
            sessions=Sessions(clock, lambda: f"session-{next(names)}"),
            kubernetes=None
            if reviews is None
            else KubernetesLogin(reviews, PageOf("shop", "main"), shows_messages=True, clock=clock),
        ),
        history=history,
        details=BrokerDetails(connect, clock),
        results=ResultStore(folder / "results", BrokerPod("main", "shop", 0), 20),
        interval_seconds=10.0,
    )
    app = web.Application()
    app.add_subapp("/page", page_app(page))
    async with TestServer(app) as server, aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as reader:
        yield Site(page, clock, str(server.make_url("")).rstrip("/"), reader, token)
    ledger.close()
