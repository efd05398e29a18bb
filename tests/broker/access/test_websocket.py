"""AMQP over WebSocket at a running broker, with and without TLS, by the library's own client."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess
from support.certificates import Authority
from support.logins import ExternalLogin, ScramLogin
from support.proton_client import connected, publish, take
from support.raw_client import RawClient
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from penstock_amqp.frames.performatives import Target, Transfer
from penstock_amqp.messages.message_codec import Message, encode_message
from penstock_amqp.sasl.client import ClientMechanism, Login, NotAuthenticated

AMQP = (Subprotocol("amqp"),)


class OverWebSocket:
    """A WebSocket as a stream of bytes, cut into frames of `piece` bytes."""

    def __init__(self, connection: ClientConnection, piece: int) -> None:
        self.connection = connection
        self._piece = piece

    def sendall(self, data: bytes) -> None:
        for at in range(0, len(data), self._piece):
            self.connection.send(data[at : at + self._piece])

    def recv(self, size: int) -> bytes:
        message = self.connection.recv(timeout=60)
        assert isinstance(message, bytes)
        return message

    def close(self) -> None:
        self.connection.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[BrokerProcess]:
    issued = authority.issue("broker")
    tls: dict[str, object] = {
        "certificate": str(issued.certificate),
        "key": str(issued.key),
        "clientCa": str(authority.ca),
        "clientCertificates": "optional",
    }
    settings: dict[str, object] = {
        "listeners": [
            {"name": "ws", "kind": "webSocket", "address": "127.0.0.1:0"},
            {
                "name": "shop",
                "kind": "webSocket",
                "address": "127.0.0.1:0",
                "allowedOrigins": ["https://Shop.example:443"],
                "idleTimeoutSeconds": 7,
            },
            {"name": "wss", "kind": "webSocket", "address": "127.0.0.1:0", "tls": tls},
        ],
        "authentication": {"anonymous": True, "users": {"ann": "secret"}, "scramIterations": 4096},
        "autoCreate": True,
    }
    with BrokerProcess(tmp_path_factory.mktemp("websocket") / "data", dev=False, settings=settings) as process:
        yield process


@contextmanager
def client(
    broker: BrokerProcess, login: ClientMechanism | None = None, *, path: str = "/amqp", piece: int = 65_536
) -> Generator[RawClient]:
    url = f"ws://{broker.addresses['ws']}{path}"
    with connect(url, subprotocols=AMQP, compression=None) as connection:
        yield RawClient(0, "over-websocket", login=login, stream=OverWebSocket(connection, piece))


def send(raw: RawClient, address: str, body: str) -> None:
    raw.begin()
    raw.attach_sender("s", Target(address=address))
    payload = encode_message(Message(body=body))
    raw.send(Transfer(handle=0, delivery_id=0, delivery_tag=b"1", settled=True), payload=payload)
    raw.close()


@pytest.mark.parametrize("path", ["/", "/amqp"])
@pytest.mark.parametrize("piece", [65_536, 7])
def test_messages_come_through_however_they_are_cut(broker: BrokerProcess, path: str, piece: int) -> None:
    with client(broker, path=path, piece=piece) as raw:
        send(raw, "q", "over a WebSocket")
    with connected(broker.url, allowed_mechs="ANONYMOUS") as connection:
        assert take(connection.create_receiver("q", credit=1), 1) == [("over a WebSocket", 0)]


@pytest.mark.parametrize("login", [ScramLogin("ann", "secret"), Login("ann", "secret")])
def test_sasl_goes_over_it(broker: BrokerProcess, login: ClientMechanism) -> None:
    with client(broker, login) as raw:
        raw.begin()


def test_a_failed_login_is_told_before_the_end(broker: BrokerProcess) -> None:
    with pytest.raises(NotAuthenticated), client(broker, Login("ann", "wrong")):
        pass


def test_over_tls_a_certificate_is_a_login(broker: BrokerProcess, authority: Authority) -> None:
    identity = authority.issue("billing")
    context = ssl.create_default_context(cafile=authority.ca)
    context.load_cert_chain(identity.certificate, identity.key)
    url = f"wss://{broker.addresses['wss']}/amqp"
    with connect(url, subprotocols=AMQP, ssl=context, server_hostname="broker", compression=None) as connection:
        raw = RawClient(0, "c", login=ExternalLogin(), stream=OverWebSocket(connection, 65_536))
        raw.begin()
        raw.close()
        with pytest.raises(Exception, match="1000"):  # the broker closes in order once the AMQP Close is out
            connection.recv(timeout=60)


@pytest.mark.parametrize(("path", "names", "status"), [("/other", AMQP, 404), ("/amqp", (Subprotocol("mqtt"),), 400)])
def test_what_is_not_for_us_is_refused(
    broker: BrokerProcess, path: str, names: tuple[Subprotocol, ...], status: int
) -> None:
    with pytest.raises(InvalidStatus) as refused, connect(f"ws://{broker.addresses['ws']}{path}", subprotocols=names):
        pass
    assert refused.value.response.status_code == status


@pytest.mark.parametrize(
    ("listener", "origin"),
    [("ws", "http://127.0.0.1:3000"), ("ws", None), ("shop", "https://shop.example"), ("shop", None)],
)
def test_pages_of_its_own_host_or_of_named_origins_may_connect(
    broker: BrokerProcess, listener: str, origin: str | None
) -> None:
    url = f"ws://{broker.addresses[listener]}/"
    given = Origin(origin) if origin is not None else None
    with connect(url, subprotocols=AMQP, compression=None, origin=given) as connection:
        RawClient(0, "page", stream=OverWebSocket(connection, 65_536)).begin()


@pytest.mark.parametrize(
    ("listener", "origin"),
    [("ws", "https://evil.example"), ("ws", "null"), ("shop", "https://evil.example"), ("shop", "http://127.0.0.1")],
)
def test_pages_of_others_are_told_why_not(broker: BrokerProcess, listener: str, origin: str) -> None:
    url = f"ws://{broker.addresses[listener]}/"
    with pytest.raises(InvalidStatus) as refused, connect(url, subprotocols=AMQP, origin=Origin(origin)):
        pass
    response = refused.value.response
    assert response.status_code == 403
    assert f"Pages of '{origin}' may not connect here" in (response.body or b"").decode()
    assert "allowedOrigins" in (response.body or b"").decode()
    assert f"no WebSocket: Pages of '{origin}'" in broker.log()


def test_a_listener_may_have_an_idle_time_out_of_its_own(broker: BrokerProcess) -> None:
    with connect(f"ws://{broker.addresses['shop']}/", subprotocols=AMQP, compression=None) as connection:
        raw = RawClient(0, "c", stream=OverWebSocket(connection, 65_536))
        # The half is announced, so that a peer that sends in time is never late (part 2, 2.4.5).
        assert raw.open.idle_time_out == 3500
    with client(broker) as other:
        assert other.open.idle_time_out == 30_000


def test_a_browser_gets_an_answer(broker: BrokerProcess) -> None:
    host, _, port = broker.addresses["ws"].rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.request("GET", "/")
    assert connection.getresponse().status == 426
    connection.close()


def test_plain_amqp_on_a_websocket_listener_gets_a_line_and_the_end(broker: BrokerProcess) -> None:
    host, _, port = broker.addresses["ws"].rpartition(":")
    with socket.create_connection((host, int(port)), 20) as sock:
        sock.sendall(b"AMQP\x03\x01\x00\x00" + b"\r\n\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.1 400")
        assert sock.recv(4096) == b""


def test_a_witness_notices_nothing_of_broken_websockets(broker: BrokerProcess, tmp_path: Path) -> None:
    host, _, port = broker.addresses["ws"].rpartition(":")
    handshake = (
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
    )
    with connected(broker.url, allowed_mechs="ANONYMOUS") as witness:
        sender, receiver = witness.create_sender("witness"), witness.create_receiver("witness", credit=10)
        frames = (
            b"\x82\x05hello",
            b"\x82\xff" + b"\xff" * 12,
            b"\xf2\x80\0\0\0\0",
            b"\x81\x80\0\0\0\0",
            b"\x89\xff" * 9,
        )
        for number, frame in enumerate(frames):
            with socket.create_connection((host, int(port)), 20) as sock:
                sock.sendall(handshake + frame)
                while sock.recv(65_536):
                    pass
            publish(sender, [number])
            assert take(receiver, 1) == [(number, 0)]
    assert "internal error" not in broker.log()
