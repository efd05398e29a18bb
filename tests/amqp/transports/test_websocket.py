"""The server's WebSocket against the library's own client side, over memory, and requests that are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from penstock_amqp.errors import WireError
from penstock_amqp.transports.websocket import FRAMES_AT_ONCE, PIECE, WebSocket, WebSocketError

REQUEST = (
    b"GET /amqp HTTP/1.1\r\nHost: broker\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
)
# RFC 6455, section 1.3: the answer to that key.
ACCEPT = b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


class Client:
    """The other side."""

    def __init__(self, path: str = "/amqp", subprotocols: tuple[str, ...] = ("amqp",)) -> None:
        offered = [Subprotocol(name) for name in subprotocols]
        self.protocol = ClientProtocol(parse_uri(f"ws://broker{path}"), subprotocols=offered)
        self.server = WebSocket(None)

    def pass_on(self) -> bytes:
        """What was sent, to the server; AMQP bytes that came out there."""
        return self.server.feed(b"".join(self.protocol.data_to_send()))

    def read(self) -> list[Frame]:
        """The frames that the server sent."""
        if data := self.server.output():
            self.protocol.receive_data(data)
        return [event for event in self.protocol.events_received() if isinstance(event, Frame)]

    def open(self) -> None:
        self.protocol.send_request(self.protocol.connect())
        assert self.pass_on() == b""
        self.protocol.receive_data(self.server.output())
        (response,) = self.protocol.events_received()
        assert isinstance(response, Response)
        assert (response.status_code, self.protocol.subprotocol) == (101, "amqp")


@pytest.fixture
def client() -> Client:
    client = Client()
    client.open()
    return client


def test_the_handshake_of_rfc_6455() -> None:
    server = WebSocket(None)
    assert server.feed(REQUEST) == b""
    output = server.output()
    assert output.startswith(b"HTTP/1.1 101 ")
    assert ACCEPT in output
    assert b"Sec-WebSocket-Protocol: amqp\r\n" in output


def test_bytes_go_both_ways(client: Client) -> None:
    client.protocol.send_binary(b"AMQP\x03\x01\x00\x00")
    assert client.pass_on() == b"AMQP\x03\x01\x00\x00"
    client.server.send(b"answer")
    (frame,) = client.read()
    assert (frame.opcode, bytes(frame.data)) == (Opcode.BINARY, b"answer")


def test_a_message_in_parts_is_passed_on_part_by_part(client: Client) -> None:
    client.protocol.send_binary(b"one ", fin=False)
    assert client.pass_on() == b"one "
    client.protocol.send_continuation(b"two", fin=True)
    assert client.pass_on() == b"two"


def test_a_ping_is_answered(client: Client) -> None:
    client.protocol.send_ping(b"there?")
    assert client.pass_on() == b""
    (frame,) = client.read()
    assert (frame.opcode, bytes(frame.data)) == (Opcode.PONG, b"there?")


def test_text_is_refused_and_says_why(client: Client) -> None:
    client.protocol.send_text(b"AMQP")
    with pytest.raises(WebSocketError):
        client.pass_on()
    client.read()
    assert client.protocol.close_rcvd is not None
    assert client.protocol.close_rcvd.code == 1003


def test_a_close_ends_it_behind_what_came_before(client: Client) -> None:
    client.protocol.send_binary(b"last words")
    client.protocol.send_close(1000)
    assert not client.server.has_ended
    assert client.pass_on() == b"last words"
    assert client.server.has_ended
    client.server.send(b"too late")
    client.read()
    assert client.protocol.close_rcvd is not None
    assert client.protocol.close_rcvd.code == 1000


def test_we_can_close(client: Client) -> None:
    client.server.close()
    client.read()
    assert client.protocol.close_rcvd is not None
    assert client.protocol.close_rcvd.code == 1000


def test_a_stranger_s_frame_is_bounded_and_another_s_may_be_larger(client: Client) -> None:
    client.server.known()
    client.protocol.send_binary(bytes(1024 * 1024))
    assert len(client.pass_on()) == 1024 * 1024
    stranger = Client()
    stranger.open()
    stranger.protocol.send_binary(bytes(64 * 1024 + 1))
    with pytest.raises(WebSocketError):
        stranger.pass_on()
    stranger.read()
    assert stranger.protocol.close_rcvd is not None
    assert stranger.protocol.close_rcvd.code == 1009


def test_of_many_small_frames_each_call_takes_some(client: Client) -> None:
    """A frame of one byte costs as much as one of a kilobyte: whoever sends them waits, and nobody else."""
    sent = bytes(range(250)) * 4
    for byte in sent:
        client.protocol.send_binary(bytes((byte,)))
        client.protocol.send_ping(b"")
    got = [client.pass_on()]
    while client.server.has_more:
        got.append(client.server.feed(b""))
    assert b"".join(got) == sent
    assert max(map(len, got)) <= FRAMES_AT_ONCE + PIECE // 14, "of a piece that was begun all are taken"
    assert not client.server.has_more


@pytest.mark.parametrize("path", ["/", "/amqp", "/amqp?x=1"])
def test_amqp_is_at_two_paths(path: str) -> None:
    Client(path).open()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        pytest.param(REQUEST.replace(b"/amqp", b"/other"), b"404", id="another-path"),
        pytest.param(REQUEST.replace(b"Protocol: amqp", b"Protocol: mqtt"), b"400", id="another-subprotocol"),
        pytest.param(REQUEST.replace(b"Sec-WebSocket-Protocol: amqp\r\n", b""), b"400", id="no-subprotocol"),
        pytest.param(REQUEST.replace(b"Version: 13", b"Version: 8"), b"400", id="another-version"),
        pytest.param(REQUEST.replace(b"Upgrade: websocket\r\n", b""), b"426", id="no-upgrade"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", b"426", id="a-browser"),
        pytest.param(b"AMQP\x03\x01\x00\x00\r\n\r\n", b"400", id="amqp-without-http"),
        pytest.param(b"POST / HTTP/1.1\r\n\r\n", b"4", id="post"),
        pytest.param(b"GET / HTTP/1.1\r\nX: " + b"x" * 9000 + b"\r\n\r\n", b"4", id="a-long-line"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"X: xxxxx\r\n" * 2000, b"4", id="many-lines"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"X: " + b"x" * 5000 + b"\r\n" + b"Y: " * 6000, b"4", id="no-end"),
    ],
)
def test_a_bad_request_is_answered_by_an_http_error(request_bytes: bytes, status: bytes) -> None:
    server = WebSocket(None)
    with pytest.raises(WebSocketError):
        server.feed(request_bytes)
    assert server.output().startswith(b"HTTP/1.1 " + status)


def test_a_request_is_bounded_also_in_small_pieces() -> None:
    server = WebSocket(None)
    server.feed(b"GET / HTTP/1.1\r\n")
    with pytest.raises(WebSocketError):
        for number in range(1000):
            server.feed(b"X-%d: x\r\n" % number * 10)


@given(st.lists(st.binary(max_size=60), max_size=6), st.booleans())
def test_bytes_make_it_raise_nothing_else(pieces: list[bytes], after_handshake: bool) -> None:
    server = WebSocket(None)
    try:
        for piece in [REQUEST, *pieces] if after_handshake else pieces:
            server.feed(piece)
            server.output()
    except WireError:
        server.output()
