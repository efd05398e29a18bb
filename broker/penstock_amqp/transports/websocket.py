"""AMQP in WebSocket frames: what came from the socket in, AMQP bytes out, and the other way round. Sans-I/O.

The library websockets does handshake, frames, pings and close; this module says who is let in (subprotocol `amqp`,
path `/` or `/amqp`, pages of which origins) and how much is held. AMQP frames and WebSocket frames have nothing to do
with each other: either may hold parts of the other. TLS, if there is any, lies below. No compression: a stranger could
make much of little.

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
MAX_STRANGER_FRAME: Final = 64 * 1024
"""Bytes of one WebSocket frame of somebody that has not logged in; the library holds a frame until it is whole."""
MAX_FRAME: Final = 1024 * 1024
"""The same of everybody else."""

FRAMES_AT_ONCE: Final = 64
"""WebSocket frames after which a call of `feed` stops."""
PIECE: Final = 4096
"""Bytes that are parsed at a time, at first and behind many small frames; it doubles with each that held few."""
LARGEST_PIECE: Final = 16 * 1024
FEW_FRAMES: Final = 8

_SILENT: Final = logging.getLogger(f"{__name__}.protocol")
_SILENT.propagate = False
_SILENT.addHandler(logging.NullHandler())
"""What the library has to say of each connection; what matters is in the errors."""


_BAD_REQUEST: Final = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class WebSocketError(WireError):
    """There is no WebSocket, or what came breaks its rules. `output` holds the last bytes: send them, then close."""


class WebSocket:
    """The server's side of one connection."""

    __slots__ = ("_answered", "_inner", "_last", "_origins", "_piece", "_protocol", "_raw", "_refused", "_taken")

    def __init__(self, inner: Wrapping | None, origins: tuple[str, ...] | None = None) -> None:
        """`inner`: what lies between the socket and HTTP, if anything.

        `origins`: of which pages in browsers are let in, normal ones or `*`; None: those of the host that is asked.
        """
        self._inner = inner
        self._origins = origins
        self._refused = ""
        self._raw = b""
        """Bytes of frames that wait for their turn."""
        self._piece = PIECE
        self._protocol = ServerProtocol(subprotocols=[SUBPROTOCOL], max_size=(None, MAX_STRANGER_FRAME), logger=_SILENT)
        self._taken = 0
        self._answered = False
        self._last = b""

    def feed(self, ciphertext: bytes | memoryview) -> bytes:
        """Take in what came from the socket; return the AMQP bytes in it. Raises `WireError`."""
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
        """Append the AMQP bytes in `data` to `parts`; say how many frames there were."""
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
        """`feed` left something for the next call, which needs no new bytes: many small frames cost much."""
        return bool(self._raw) or (self._inner is not None and self._inner.has_more)

    def _check_request(self, more: int) -> None:
        """Whether there may still be a WebSocket. A request that is none is answered too, and so is an endless one."""
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
        """Both sides have said that nothing more comes."""
        return self._protocol.eof_sent

    def _answer(self, request: Request) -> None:
        """Let in, or say why not."""
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
        """Status and text, if not even a right handshake would be let in."""
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
        """Put `plaintext` into a frame; what comes behind the end of the WebSocket is dropped. Raises `WireError`."""
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
        """Say that nothing more comes from us; take the last bytes from `output`."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate the peer showed below, in DER; None without one."""
        return self._inner.peer_certificate if self._inner is not None else None
