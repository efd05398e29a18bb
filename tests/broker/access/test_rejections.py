"""Who is turned away at the door is counted by reason, and nobody else is."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess
from support.certificates import Authority
from support.raw_client import RawClient
from support.waiting import wait_until

from penstock_amqp.client.management import ManagementClient
from penstock_amqp.frames.frames import SASL_HEADER
from penstock_amqp.frames.performatives import Close
from penstock_amqp.sasl.client import Login, NotAuthenticated
from penstock_api.state_documents import BrokerState

NOBODY = {
    "LoginFailed": 0,
    "LoginUnavailable": 0,
    "LoginTimedOut": 0,
    "ProtocolError": 0,
    "TlsFailed": 0,
    "WebSocketRefused": 0,
    "TooManyUnauthenticated": 0,
    "TooManyConnections": 0,
    "ContainerInUse": 0,
}


LOGIN_SECONDS = 10
"""For who is to be late: all that happens before takes much less."""


@pytest.fixture
def login_seconds() -> int:
    return 60


@pytest.fixture
def broker(tmp_path: Path, login_seconds: int) -> Iterator[BrokerProcess]:
    issued = Authority(tmp_path).issue("broker")
    tls = {"certificate": str(issued.certificate), "key": str(issued.key), "minimumVersion": "1.3"}
    settings: dict[str, object] = {
        "listeners": [
            {"name": "tls", "address": "127.0.0.1:0", "tls": tls},
            {"name": "ws", "kind": "webSocket", "address": "127.0.0.1:0"},
        ],
        "limits": {"unauthenticatedPerPeer": 3, "connections": 2, "loginSeconds": login_seconds},
        "authentication": {"anonymous": True, "users": {"ann": "secret"}, "scramIterations": 4096},
    }
    with BrokerProcess(tmp_path / "data", dev=False, settings=settings) as process:
        yield process


def dial(broker: BrokerProcess, listener: str) -> socket.socket:
    host, _, port = broker.addresses[listener].rpartition(":")
    return socket.create_connection((host, int(port)), 60)


def at_end(sock: socket.socket, sent: bytes) -> None:
    """Send, and read until the broker closes."""
    with sock, contextlib.suppress(ConnectionError):
        sock.sendall(sent)
        while sock.recv(4096):
            pass


async def refusals(broker: BrokerProcess) -> dict[str, int]:
    client = await ManagementClient.connect(broker.management)
    state = await client.read_state(BrokerState)
    await client.close()
    return state.refusals


async def test_each_refusal_is_counted_under_its_reason(broker: BrokerProcess) -> None:
    with RawClient(broker.port, "fine", login=Login("ann", "secret")):
        pass
    assert await refusals(broker) == NOBODY, "whoever gets in, and leaves, is no refusal"
    for password in ("wrong", "worse"):
        with pytest.raises(NotAuthenticated):
            RawClient(broker.port, "c", login=Login("ann", password))
    at_end(dial(broker, "amqp"), b"GET / HTTP/1.1\r\n\r\n")
    at_end(dial(broker, "ws"), b"GET /other HTTP/1.1\r\nHost: x\r\n\r\n")
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode, old.maximum_version = False, ssl.CERT_NONE, ssl.TLSVersion.TLSv1_2
    with dial(broker, "tls") as sock, pytest.raises((ssl.SSLError, ConnectionError)):
        old.wrap_socket(sock)
    counted = {"LoginFailed": 2, "ProtocolError": 1, "WebSocketRefused": 1, "TlsFailed": 1}
    assert await refusals(broker) == NOBODY | counted


@pytest.mark.parametrize("login_seconds", [LOGIN_SECONDS])
async def test_limits_count_whom_they_turn_away(broker: BrokerProcess) -> None:
    with RawClient(broker.port, "a") as first, RawClient(broker.port, "b"):
        with RawClient(broker.port, "c") as third:
            third.expect(Close)
        assert await refusals(broker) == NOBODY | {"TooManyConnections": 1}
        first.close()
    # Who is inside is dropped for being late, however many are turned away meanwhile.
    with ExitStack() as stack:
        for _ in range(3):
            sock = stack.enter_context(dial(broker, "amqp"))
            sock.sendall(SASL_HEADER)
            assert sock.recv(8) == SASL_HEADER
        at_end(dial(broker, "amqp"), SASL_HEADER)

        async def all_were_late() -> bool:
            return (await refusals(broker))["LoginTimedOut"] == 3

        await wait_until(all_were_late)
    assert await refusals(broker) == NOBODY | {"TooManyConnections": 1, "TooManyUnauthenticated": 1, "LoginTimedOut": 3}
