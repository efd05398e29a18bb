"""The observer process: puts the parts together, serves, and stops in order.

Called by the command line with settings; no decision is made here. Source: docs/decisions/048-observer.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from aiohttp import web

from penstock_api.failure import CannotRun
from penstock_api.listen_failures import listen_failure
from penstock_api.observer_api import PAGE
from penstock_lag_rules.thresholds import Thresholds
from penstock_observer import malformed_requests
from penstock_observer.access_reviews import ApiServerReviews, PageOf
from penstock_observer.audit_fetch import AuditFetcher
from penstock_observer.audit_files import AuditStore
from penstock_observer.broker_client import PolledBroker, over_unix_socket
from penstock_observer.broker_details import BrokerDetails, details_over
from penstock_observer.clock_memory import ClockMemory
from penstock_observer.depth_history import DepthHistory
from penstock_observer.http import Api, make_app
from penstock_observer.kubernetes_login import KubernetesLogin
from penstock_observer.ledger import Ledger, SealLimits
from penstock_observer.live_lag import LiveLag
from penstock_observer.live_view import LiveView
from penstock_observer.page import Page, page_app
from penstock_observer.page_readers import Readers
from penstock_observer.page_sessions import Sessions
from penstock_observer.poller import BrokerSource, Poller
from penstock_observer.results import BrokerPod, ResultStore
from penstock_observer.retention import RetentionLimits
from penstock_observer.rollups import RollupStore
from penstock_observer.rows import RowOrigin
from penstock_observer.secrets import ServerCertificate, TokenFile
from penstock_observer.settings import ObserverSettings
from penstock_observer.volume import ROLLUPS_SHARE, results_limit, room_for, room_for_results, volume_space
from penstock_page.documents import BrokerPlace

__all__ = ["run", "serve"]

log = logging.getLogger(__name__)

Announce = Callable[[str], None]

CERTIFICATE_SECONDS = 60.0
MERGE_SECONDS = 30.0
SHUTDOWN_SECONDS = 5.0


def run(settings: ObserverSettings, announce: Announce | None = None) -> int:
    """Serve until SIGTERM or SIGINT, seal the ledger, return 0. Raises Failure if it can't start.

    ``announce`` gets the base URL once requests are answered.
    """
    asyncio.run(_until_signal(settings, announce))
    return 0


async def _until_signal(settings: ObserverSettings, announce: Announce | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    source = PolledBroker(over_unix_socket(settings.broker_socket), ClockMemory(settings.ledger))
    await serve(settings, source, stop, announce)


async def serve(
    settings: ObserverSettings, source: BrokerSource, stop: asyncio.Event, announce: Announce | None
) -> None:
    """Poll ``source`` and serve until ``stop`` is set. Raises Failure if the settings can't be used."""
    token = TokenFile(settings.token_file)
    certificate = _certificate(settings)
    ledger = open_ledger(settings)
    try:
        history = DepthHistory(time.monotonic)
        live = LiveView(on_answer=history.observe)
        lag = LiveLag(settings.ordinal, round(settings.interval_seconds * 1000), Thresholds())
        place = BrokerPod(settings.broker, settings.namespace, settings.ordinal)
        total = _volume_bytes(settings)
        limit = results_limit(settings.results_bytes, total)
        results = ResultStore(settings.results, place, settings.results_kept, limit)
        rollups = RollupStore(settings.rollups, place, results_limit(settings.rollups_bytes, total, ROLLUPS_SHARE))
        audits = _audits(settings, ledger)
        app = make_app(Api(live, ledger, results, place, token, lambda: datetime.now(UTC), rollups, audits))
        app.add_subapp(PAGE, page_app(_page(settings, live, ledger, token, history, results)))
        malformed_requests.keep_out()
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
        await runner.setup()
        try:
            url = await _listen(runner, settings, certificate)
            log.info("observing %s, serving %s", settings.broker_socket, url)
            if announce is not None:
                announce(url)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(Poller(source, live, lag, ledger, settings.interval_seconds).run(stop))
                tasks.create_task(_merge_old(ledger, stop))
                tasks.create_task(
                    AuditFetcher(live, details_over(settings.broker_socket), audits, settings.interval_seconds).run(
                        stop
                    )
                )
                tasks.create_task(_refresh(certificate, stop))
        finally:
            await runner.cleanup()
    finally:
        ledger.close()


def _page(
    settings: ObserverSettings,
    live: LiveView,
    ledger: Ledger,
    token: TokenFile,
    history: DepthHistory,
    results: ResultStore,
) -> Page:
    return Page(
        live=live,
        ledger=ledger,
        place=BrokerPlace(settings.broker, settings.namespace, settings.ordinal),
        readers=Readers(
            token=token,
            messages_token=None if settings.messages_token_file is None else TokenFile(settings.messages_token_file),
            sessions=Sessions(time.monotonic, secrets.token_urlsafe),
            kubernetes=_kubernetes_login(settings),
        ),
        history=history,
        details=BrokerDetails(details_over(settings.broker_socket), time.monotonic),
        results=results,
        interval_seconds=settings.interval_seconds,
    )


def _kubernetes_login(settings: ObserverSettings) -> KubernetesLogin | None:
    if settings.account is None:
        return None
    return KubernetesLogin(
        ApiServerReviews(settings.api_server, settings.account),
        PageOf(settings.namespace, settings.broker),
        shows_messages=settings.messages_token_file is not None,
        clock=time.monotonic,
    )


def _audits(settings: ObserverSettings, ledger: Ledger) -> AuditStore:
    limit = results_limit(settings.audit_bytes, _volume_bytes(settings))
    return AuditStore(settings.audits, limit, round(settings.retain_seconds * 1000), lambda: ledger.begins_ms)


def _volume_bytes(settings: ObserverSettings) -> int:
    """The size of the ledger's volume; without bounds if it does not say, so that nothing is deleted for that."""
    try:
        return volume_space(settings.ledger).total
    except OSError as error:
        log.error("the size of the ledger volume can't be read: %s; results have the limits of the settings", error)
        return sys.maxsize


def open_ledger(settings: ObserverSettings) -> Ledger:
    """The ledger that the settings describe."""
    return Ledger(
        settings.ledger,
        RowOrigin(settings.broker, settings.ordinal, round(settings.interval_seconds * 1000), settings.namespace),
        SealLimits(settings.segment_seconds, settings.segment_rows, settings.segment_bytes),
        RetentionLimits(age_ms=round(settings.retain_seconds * 1000), bytes=settings.retain_bytes),
        reserve=partial(
            room_for,
            partial(room_for_results, settings.results, settings.results_bytes),
            partial(room_for_results, settings.rollups, settings.rollups_bytes, ROLLUPS_SHARE),
        ),
    )


def _certificate(settings: ObserverSettings) -> ServerCertificate | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return ServerCertificate(settings.tls_cert, settings.tls_key)


def _site(runner: web.AppRunner, settings: ObserverSettings, context: ssl.SSLContext | None) -> web.BaseSite:
    """Where the observer listens; at `::` for IPv4, too, which asyncio by itself leaves out. Raises OSError."""
    if settings.host != "::":
        return web.TCPSite(runner, settings.host, settings.port, ssl_context=context)
    if not socket.has_dualstack_ipv6():
        return web.TCPSite(runner, "0.0.0.0", settings.port, ssl_context=context)
    both = socket.create_server(("::", settings.port), family=socket.AF_INET6, backlog=128, dualstack_ipv6=True)
    return web.SockSite(runner, both, ssl_context=context)


async def _listen(runner: web.AppRunner, settings: ObserverSettings, certificate: ServerCertificate | None) -> str:
    context = None if certificate is None else certificate.context
    try:
        await _site(runner, settings, context).start()
    except OSError as error:
        why, cure = listen_failure(error)
        told = f"the observer can't listen on {settings.host}:{settings.port}: {why}."
        raise CannotRun(told, cure) from error
    port = runner.addresses[0][1]
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{'http' if certificate is None else 'https'}://{host}:{port}"


async def _merge_old(ledger: Ledger, stop: asyncio.Event) -> None:
    """Merge old segments, beside the polls, on a thread of its own."""
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MERGE_SECONDS):
                await stop.wait()
        while not stop.is_set() and await asyncio.to_thread(ledger.merge_old):
            pass


async def _refresh(certificate: ServerCertificate | None, stop: asyncio.Event) -> None:
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CERTIFICATE_SECONDS):
                await stop.wait()
        if certificate is not None:
            certificate.refresh()
