"""AMQP in WebSocket frames, without I/O: bytes from the socket in, AMQP bytes out, and the other way round.

The library websockets does handshake, frames, pings and close; this module decides which requests are accepted
(subprotocol `amqp`, path `/` or `/amqp`, origins of pages) and how many bytes are buffered. The boundaries of AMQP
frames and WebSocket frames are independent. TLS, if it is used, is the layer below. Compression is not offered: a
client that has not logged in could make the broker expand a few bytes to very many.

Sources: RFC 6455 (4.2.2 and 10.2 for origins); AMQP WebSocket Binding (AMQPWSB) 1.0, sections 2 and 3.
"""

from __future__ import annotations

import http
import logging
from typing import Final

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from penstock_amqp.errors import WireError
from penstock_amqp.transports.origins import is_allowed
from penstock_amqp.transports.tls import Wrapping

__all__ = ["MAX_FRAME", "MAX_REQUEST", "PATHS", "SUBPROTOCOL", "WebSocket", "WebSocketError"]

SUBPROTOCOL: Final = Subprotocol("amqp")
PATHS: Final = frozenset(("/", "/amqp"))

MAX_REQUEST: Final = 16 * 1024
"""Bytes of the HTTP request."""
MAX_UNAUTHENTICATED_FRAME: Final = 64 * 1024
"""Bytes of one WebSocket frame before the client has logged in; the library buffers a frame until it is complete."""
MAX_FRAME: Final = 1024 * 1024
"""Bytes of one WebSocket frame after the client has logged in."""

FRAMES_AT_ONCE: Final = 64
"""Most WebSocket frames that one call of `feed` reads."""
PIECE: Final = 4096
"""Bytes that are parsed at a time, at first and after a piece with many small frames; a piece with few frames doubles
it."""
LARGEST_PIECE: Final = 16 * 1024
FEW_FRAMES: Final = 8

_SILENT: Final = logging.getLogger(f"{__name__}.protocol")
_SILENT.propagate = False
_SILENT.addHandler(logging.NullHandler())
"""The logger for the library's messages, which are dropped: what matters is in the errors."""


_BAD_REQUEST: Final = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class WebSocketError(WireError):
    """The handshake failed, or the peer violated the protocol. `output` holds the last bytes: send them, then close."""


class WebSocket:
    """The server's side of one connection."""

    __slots__ = ("_answered", "_inner", "_last", "_origins", "_piece", "_protocol", "_raw", "_refused", "_taken")

    def __init__(self, inner: Wrapping | None, origins: tuple[str, ...] | None = None) -> None:
        """`inner`: the layer below HTTP (TLS), None if HTTP is directly on the socket.

        `origins`: of the pages that may connect, as `normal_origin` returns them, or `*`; None: those with the host of
        the request.
        """
        self._inner = inner
        self._origins = origins
        self._refused = ""
        self._raw = b""
        """Received bytes that were not parsed yet."""
        self._piece = PIECE
        self._protocol = ServerProtocol(
            subprotocols=[SUBPROTOCOL], max_size=(None, MAX_UNAUTHENTICATED_FRAME), logger=_SILENT
        )
        self._taken = 0
        self._answered = False
        self._last = b""

    def feed(self, ciphertext: bytes | memoryview) -> bytes:
        """Process bytes from the socket; return the AMQP bytes in them. Raises `WireError`."""
        data = (
            bytes(ciphertext)
            if self._inner is None
            else self._inner.feed(ciphertext)
            if ciphertext or self._inner.has_more
            else b""
        )
        self._raw += data
        parts: list[bytes] = []
        frames = 0
        while self._raw and frames < FRAMES_AT_ONCE:
            piece, self._raw = self._raw[: self._piece], self._raw[self._piece :]
            held = self._parse(piece, parts)
            if held > FEW_FRAMES:
                self._piece = PIECE
            elif len(piece) == self._piece:
                self._piece = min(2 * self._piece, LARGEST_PIECE)
            frames += held
        return b"".join(parts)

    def _parse(self, data: bytes, parts: list[bytes]) -> int:
        """Append the AMQP bytes in `data` to `parts`; return the number of frames."""
        protocol = self._protocol
        protocol.receive_data(data)
        events = protocol.events_received()
        for event in events:
            if isinstance(event, Request):
                self._answer(event)
            elif isinstance(event, Frame):
                self._take(event, parts)
        if protocol.state is State.CONNECTING:
            self._check_request(len(data))
        elif protocol.parser_exc is not None or (protocol.eof_sent and protocol.close_rcvd is None):
            raise WebSocketError(f"the WebSocket breaks its rules: {protocol.parser_exc or protocol.close_sent}")
        return len(events)

    @property
    def has_more(self) -> bool:
        """`feed` left bytes for the next call, because parsing many small frames takes long."""
        return bool(self._raw) or (self._inner is not None and self._inner.has_more)

    def _check_request(self, more: int) -> None:
        """Check a request that is not complete or was refused. A request that is malformed or too long gets a 400
        response."""
        self._taken += more
        is_refused = self._protocol.eof_sent
        if not is_refused and self._taken <= MAX_REQUEST:
            return
        if not self._answered:
            self._last = _BAD_REQUEST
        cause = "the request is too long" if not is_refused else self._protocol.handshake_exc or self._refused
        raise WebSocketError(f"no WebSocket: {cause}")

    @property
    def has_ended(self) -> bool:
        """The WebSocket was closed by both sides."""
        return self._protocol.eof_sent

    def _answer(self, request: Request) -> None:
        """Answer the request: accept it, or reject it with the reason."""
        protocol = self._protocol
        self._answered = True
        refused = self._refusal(request)
        response = protocol.accept(request) if refused is None else protocol.reject(*refused)
        if response.status_code == http.HTTPStatus.SWITCHING_PROTOCOLS and protocol.subprotocol != SUBPROTOCOL:
            refused = (
                http.HTTPStatus.BAD_REQUEST,
                "Ask for the WebSocket subprotocol `amqp` (Sec-WebSocket-Protocol).\n",
            )
            response = protocol.reject(*refused)
        if refused is not None:
            self._refused = refused[1].strip()
        protocol.send_response(response)

    def _refusal(self, request: Request) -> tuple[http.HTTPStatus, str] | None:
        """Status and text if the path or the origin is refused; None if they are right."""
        path = request.path.partition("?")[0]
        if path not in PATHS:
            return http.HTTPStatus.NOT_FOUND, f"There is nothing at {path[:100]!r}: AMQP is at / and /amqp.\n"
        given, hosts = request.headers.get_all("Origin"), request.headers.get_all("Host")
        if not given or (len(given) == 1 and is_allowed(given[0], hosts, self._origins)):
            return None
        told = f"Pages of {given[0][:100]!r} may not connect here: add their origin to the listener's allowedOrigins.\n"
        return http.HTTPStatus.FORBIDDEN, told

    def _take(self, frame: Frame, parts: list[bytes]) -> None:
        if frame.opcode is Opcode.BINARY or frame.opcode is Opcode.CONT:
            parts.append(bytes(frame.data))
        elif frame.opcode is Opcode.TEXT:
            self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "AMQP comes in binary frames")

    def known(self) -> None:
        """The peer has logged in: larger frames are taken from it."""
        self._protocol.max_fragment_size = MAX_FRAME

    def send(self, plaintext: bytes | memoryview) -> None:
        """Put `plaintext` into a frame; after the WebSocket was closed it is dropped. Raises `WireError`."""
        if plaintext and self._protocol.state is State.OPEN:
            self._protocol.send_binary(bytes(plaintext))

    def output(self) -> bytes:
        """Take the bytes for the socket."""
        data = b"".join(self._protocol.data_to_send()) + self._last
        self._last = b""
        if self._inner is None:
            return data
        self._inner.send(data)
        return self._inner.output()

    def close(self) -> None:
        """Send a WebSocket close frame; take the last bytes from `output`."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate that the peer sent in TLS, in DER; None without one."""
        return self._inner.peer_certificate if self._inner is not None else None
