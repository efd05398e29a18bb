"""An observer's HTTP application behind TLS, and how the operator reaches it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from penstock_operator.brokers.observer_client import ObserverAccess
from penstock_operator.children import certificates


@asynccontextmanager
async def served_observer(app: web.Application, folder: Path) -> AsyncGenerator[ObserverAccess]:
    """Serve on a free port of this machine; the token of the access is `secret`. `folder` gets the certificate."""
    now = datetime.now(UTC)
    ca = certificates.make_ca("test", now)
    pair = certificates.make_server(ca, ["*.shop.svc"], now)
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        (address,) = runner.addresses
        yield ObserverAccess(
            host="127.0.0.1", port=address[1], server_name="main-observer.shop.svc", ca=ca.certificate, token="secret"
        )
    finally:
        await runner.cleanup()
