"""rhea and go-amqp over TLS and over WebSocket, logged in by PLAIN, and a kill -9 of the broker in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from clients.example_clients import Client, declare_examples
from support.broker_process import BrokerProcess
from support.certificates import Authority

pytestmark = pytest.mark.clients

TRANSPORTS = ("amqps", "ws", "wss")


@pytest.fixture
async def transports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BrokerProcess]:
    """A broker with a listener per transport, whose authority Node and Go trust."""
    authority = Authority(tmp_path)
    issued = authority.issue("localhost")
    tls = {"certificate": str(issued.certificate), "key": str(issued.key)}
    settings: dict[str, object] = {
        "authentication": {"users": {"guest": "guest"}},
        "listeners": [
            {"name": "amqps", "address": "127.0.0.1:0", "tls": tls},
            {"name": "ws", "kind": "webSocket", "address": "127.0.0.1:0"},
            {"name": "wss", "kind": "webSocket", "address": "127.0.0.1:0", "tls": tls},
        ],
    }
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", str(authority.ca))
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    with BrokerProcess(tmp_path / "data", dev=False, settings=settings) as process:
        await declare_examples(process)
        yield process


def url(broker: BrokerProcess, transport: str, password: str = "guest") -> str:
    """A new one after each start: the ports change."""
    port = broker.addresses[transport].rpartition(":")[2]
    return f"{transport}://guest:{password}@localhost:{port}"


@pytest.mark.parametrize("client", ["node", "go"], indirect=True)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_was_published_is_consumed_after_a_kill(client: Client, transports: BrokerProcess, transport: str) -> None:
    assert client.lines("publish", url(transports, transport), "20") == ["20 accepted"]
    transports.kill()
    transports.start()
    received = client.lines("consume", url(transports, transport), "20")
    assert sorted(received) == sorted(f"order {number}" for number in range(20))


@pytest.mark.parametrize("client", ["node", "go"], indirect=True)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_wrong_password_is_told_and_nothing_is_published(
    client: Client, transports: BrokerProcess, transport: str
) -> None:
    assert client.lines("publish", url(transports, transport, "wrong"), "1")[0].startswith("refused: ")
    assert client.lines("publish", url(transports, transport), "1") == ["1 accepted"]
    assert client.lines("consume", url(transports, transport), "1") == ["order 0"]
