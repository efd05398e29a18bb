"""A real observer over HTTP in a thread of its own, with a ledger that the observer's own writer made of polls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from penstock_observer.http import Api, make_app
from penstock_observer.ledger import Ledger, SealLimits
from penstock_observer.live_view import LiveView
from penstock_observer.results import BrokerPod, ResultStore
from penstock_observer.retention import RetentionLimits
from penstock_observer.rollups import RollupStore
from penstock_observer.rows import Poll, RowOrigin
from penstock_observer.secrets import TokenFile

KEEP = RetentionLimits(age_ms=10**13, bytes=10**13)
TOKEN = "s3cret"


@dataclass(frozen=True)
class Served:
    """A running observer."""

    url: str
    api: Api


@contextmanager
def serving(
    folder: Path,
    polls: Sequence[Poll],
    ordinal: int = 0,
    rows_per_segment: int = 5,
    broker: str = "main",
    namespace: str = "shop",
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    rollups: bool = True,
) -> Generator[Served]:
    """Serve the polls, sealed, as a broker of `main` in namespace `shop`. It answers; a test may change that."""
    folder.mkdir(parents=True, exist_ok=True)
    token_file(folder)
    ledger = Ledger(
        folder / "ledger", RowOrigin(broker, ordinal, 10_000), SealLimits(3600, rows_per_segment, 10**9), KEEP
    )
    fill(ledger, polls)
    live = LiveView()
    if polls:
        live.answered(polls[-1])
    place = BrokerPod(broker, namespace, ordinal)
    results = ResultStore(folder / "results", place, keep=5)
    kept = RollupStore(folder / "rollups", place, 10**9) if rollups else None
    api = Api(live, ledger, results, place, TokenFile(token_file(folder)), now, kept)
    with _in_thread(make_app(api)) as url:
        yield Served(url, api)
    ledger.close()


def fill(ledger: Ledger, polls: Iterable[Poll]) -> None:
    """Append and seal."""
    now_ms = 0
    for poll in polls:
        ledger.append(poll)
        now_ms = poll.broker.now_ms
    ledger.seal(now_ms)


def token_file(folder: Path) -> Path:
    """A file with the token."""
    path = folder / "token"
    path.write_text(TOKEN)
    return path


@contextmanager
def _in_thread(app: web.Application) -> Generator[str]:
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(app, access_log=None)
    thread = threading.Thread(target=loop.run_forever, name="observer")
    thread.start()
    try:
        port = asyncio.run_coroutine_threadsafe(_start(runner), loop).result(30)
        yield f"http://127.0.0.1:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


async def _start(runner: web.AppRunner) -> int:
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port: int = runner.addresses[0][1]
    return port
