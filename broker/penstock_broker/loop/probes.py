"""Answers GET and HEAD of `/livez` and `/readyz`, one small request per connection, no keep-alive. Another method gets
405, another path 404.

Whoever watches sockets serves them: the loop, or, while the log is read, the thread of `start_probes`. Must not know
what is alive or ready: it asks. Source: docs/decisions/026-probes.md.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

__all__ = ["ProbeState", "Probes", "Watcher"]

logger = logging.getLogger(__name__)

MAX_REQUEST: Final = 4096
REQUEST_MS: Final = 5_000
PAUSE_MS: Final = 100
"""How long no request is accepted after the system had no descriptor left."""
NOT_ALLOWED: Final = "405 Method Not Allowed"


class ProbeState(NamedTuple):
    """What the probes answer now; the texts are for people."""

    is_live: bool
    live: str
    is_ready: bool
    ready: str


class Watcher(Protocol):
    """What calls back when a descriptor is readable, or a time has passed."""

    def watch(self, fd: int, action: Callable[[], None], failed: Callable[[], None] | None = None) -> None:
        """Call `action` whenever `fd` is readable, and `failed` if that raises an exception."""
        ...

    def unwatch(self, fd: int) -> None:
        """Forget a descriptor."""
        ...

    def after(self, milliseconds: int, action: Callable[[], None]) -> None:
        """Call `action` once, so much later."""
        ...


class Probes:
    """The probe port of one broker."""

    def __init__(self, sock: socket.socket, watcher: Watcher, state: Callable[[], ProbeState]) -> None:
        """`sock` listens and is non-blocking; `state` is asked for each request."""
        self._sock, self._watcher, self._state = sock, watcher, state
        self._requests: dict[int, tuple[socket.socket, bytes]] = {}
        self._is_closed = False
        self._listen()

    def close(self) -> None:
        """Drop the requests under way. The port stays open for whoever answers next."""
        self._is_closed = True
        self._watcher.unwatch(self._sock.fileno())
        for fd, (sock, _) in list(self._requests.items()):
            self._forget(fd, sock)

    def _listen(self) -> None:
        if not self._is_closed:
            self._watcher.watch(self._sock.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            sock, _ = self._sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError:  # no descriptor or no memory is left, and the request goes on waiting
            self._watcher.unwatch(self._sock.fileno())
            self._watcher.after(PAUSE_MS, self._listen)
            return
        sock.setblocking(False)
        fd = sock.fileno()
        self._requests[fd] = (sock, b"")
        self._watcher.watch(fd, lambda: self._read(fd), failed=lambda: self._failed(fd, sock))
        self._watcher.after(REQUEST_MS, lambda: self._forget(fd, sock))

    def _read(self, fd: int) -> None:
        sock, so_far = self._requests[fd]
        try:
            data = sock.recv(MAX_REQUEST)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        so_far += data
        self._requests[fd] = (sock, so_far)
        if data and b"\r\n\r\n" not in so_far and len(so_far) < MAX_REQUEST:
            return
        if data:
            self._respond(sock, so_far)
        self._forget(fd, sock)

    def _respond(self, sock: socket.socket, request: bytes) -> None:
        method, _, rest = request.split(b"\r\n", 1)[0].partition(b" ")
        status, text = self._answer(method, rest.split(b" ", 1)[0].split(b"?", 1)[0])
        body = text.encode() + b"\n"
        # "The origin server MUST generate an Allow header field in a 405 response" (RFC 9110, 15.5.6).
        allow = "Allow: GET, HEAD\r\n" if status == NOT_ALLOWED else ""
        head = (
            f"HTTP/1.1 {status}\r\n{allow}Content-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        try:
            sock.send(head.encode() + (b"" if method == b"HEAD" else body))
        except OSError:
            return  # the client is gone

    def _answer(self, method: bytes, path: bytes) -> tuple[str, str]:
        state = self._state()
        match path:
            case b"/livez":
                good, text = state.is_live, state.live
            case b"/readyz":
                good, text = state.is_ready, state.ready
            case _:
                return "404 Not Found", "GET /livez or /readyz"
        if method not in (b"GET", b"HEAD"):
            return NOT_ALLOWED, f"GET {path.decode()}"
        return ("200 OK" if good else "503 Service Unavailable"), text

    def _failed(self, fd: int, sock: socket.socket) -> None:
        logger.exception("A request to the probe port failed, and is closed")
        self._forget(fd, sock)

    def _forget(self, fd: int, sock: socket.socket) -> None:
        if self._requests.get(fd, (None, b""))[0] is sock:
            del self._requests[fd]
            self._watcher.unwatch(fd)
            sock.close()
