"""Answers `GET /livez` (the loop turns) and `GET /readyz` (AMQP connections are accepted), on the loop itself.

One small request per connection, no keep-alive; anything else gets 404. Source: docs/decisions/026-probes.md.
"""

from __future__ import annotations

import logging
import socket
from typing import Final

from penstock_broker.access import sockets
from penstock_broker.loop.loop import Loop

__all__ = ["Probes"]

logger = logging.getLogger(__name__)

MAX_REQUEST: Final = 4096
REQUEST_MS: Final = 5_000


class Probes:
    """The probe port of one broker."""

    def __init__(self, loop: Loop, address: str) -> None:
        """Listen. Raises `CannotRun`."""
        self._loop = loop
        self.is_ready = False
        self._sock = sockets.bind(address)
        self._requests: dict[int, tuple[socket.socket, bytes]] = {}
        loop.watch(self._sock.fileno(), self._accept)

    @property
    def bound(self) -> str:
        """HOST:PORT."""
        return sockets.bound(self._sock)

    def _accept(self) -> None:
        try:
            sock, _ = self._sock.accept()
        except OSError:
            return
        sock.setblocking(False)
        fd = sock.fileno()
        self._requests[fd] = (sock, b"")
        self._loop.watch(fd, lambda: self._read(fd), failed=lambda: self._failed(fd, sock))
        self._loop.broker.clock.after(REQUEST_MS, lambda: self._forget(fd, sock))

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
        status, text = self._status(request.split(b"\r\n", 1)[0])
        body = text.encode() + b"\n"
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        try:
            sock.send(head.encode() + body)
        except OSError:
            return  # the client is gone

    def _status(self, line: bytes) -> tuple[str, str]:
        match line.split(b" "):
            case [b"GET", b"/livez", *_]:
                return "200 OK", "turning"
            case [b"GET", b"/readyz", *_] if self.is_ready and not self._loop.broker.is_stopping:
                failed = self._loop.broker.log.failed
                return "200 OK", "open" if failed is None else f"open; durable work has stopped: {failed}"
            case [b"GET", b"/readyz", *_]:
                return "503 Service Unavailable", "AMQP is not open"
            case _:
                return "404 Not Found", "GET /livez or /readyz"

    def _failed(self, fd: int, sock: socket.socket) -> None:
        logger.exception("A request to the probe port failed, and is closed")
        self._forget(fd, sock)

    def _forget(self, fd: int, sock: socket.socket) -> None:
        if self._requests.get(fd, (None, b""))[0] is sock:
            del self._requests[fd]
            self._loop.unwatch(fd)
            sock.close()
