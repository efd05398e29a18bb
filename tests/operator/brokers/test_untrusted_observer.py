"""An observer whose image somebody else has chosen: what it answers ends nothing but the reading of its own lag."""

from __future__ import annotations

import asyncio
import json
import ssl
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
from support.lag_stage import document

from penstock_operator.brokers.observer_client import ObserverAccess, TaggedResult, fetch_latest
from penstock_operator.children import certificates


@pytest.mark.parametrize("tag", [b'"a\x01b"', b'"a\x7fb"', b'"\xff"', b'"' + 300 * b"a" + b'"'])
async def test_a_tag_that_can_t_be_sent_back_is_none(tmp_path: Path, tag: bytes) -> None:
    now = datetime.now(UTC)
    ca = certificates.make_ca("test", now)
    pair = certificates.make_server(ca, ["*.shop.svc"], now)
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    body = json.dumps(document()).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nETag: %b\r\nContent-Length: %d\r\n\r\n" % (tag, len(body))
        )
        writer.write(body)
        await writer.drain()
        writer.close()

    async with (
        await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server,
        aiohttp.ClientSession() as http,
    ):
        access = ObserverAccess(
            host="127.0.0.1",
            port=server.sockets[0].getsockname()[1],
            server_name="main-observer.shop.svc",
            ca=ca.certificate,
            token="secret",
        )
        known: str | None = None
        for _ in range(2):
            found = await fetch_latest(http, access, known)
            assert isinstance(found, TaggedResult)
            known = found.tag
        assert known is None
