"""Where strangers wait: listening sockets, and connections that have not logged in yet, with a poll of their own.

The loop gives the lobby a slice of each turn and takes from it one at a time, in the order in which they became ready,
so that ten thousand handshakes cost those who work a slice and no more. Strangers are counted, in all and per network
address; while there are too many, new ones wait in the system's queue. Source: design, section 4 ("Bounds").
"""

from __future__ import annotations

import logging
import select
from collections import Counter
from typing import Final

from penstock_api.settings.client_limits import ConnectionLimits
from penstock_broker.access.connection import Connection
from penstock_broker.access.listeners import ListeningPort
from penstock_broker.access.rejections import RejectionReason, Rejections
from penstock_broker.settings.settings import Role
from penstock_broker.warning_throttle import WarningThrottle

__all__ = ["Lobby"]

logger = logging.getLogger(__name__)

PAUSE_MS: Final = 100
"""How long nobody is let in after the system had no descriptor left."""


class Lobby:
    """The connections of one broker that are not known yet."""

    def __init__(self, limits: ConnectionLimits, warnings: WarningThrottle, turned_away: Rejections) -> None:
        self._limits = limits
        self._warnings = warnings
        self._turned_away = turned_away
        self._epoll = select.epoll()
        self._ports: dict[int, ListeningPort] = {}
        self._inside: dict[int, Connection] = {}
        """Clients by descriptor; those of management and the observer are not counted."""
        self._peers: Counter[str] = Counter()
        self._is_open = True
        self._resume_ms = 0

    @property
    def descriptor(self) -> int:
        """Readable when `next` has somebody."""
        return self._epoll.fileno()

    def close(self) -> None:
        """Give the descriptor back."""
        self._epoll.close()

    def watch(self, port: ListeningPort) -> None:
        """Take connections of a port from now on."""
        assert port.sock is not None
        fd = port.sock.fileno()
        self._ports[fd] = port
        self._epoll.register(fd, select.EPOLLIN)

    def unwatch(self, port: ListeningPort) -> None:
        """Take no more."""
        if port.sock is not None and self._ports.pop(port.sock.fileno(), None) is not None:
            self._set(port.sock.fileno(), is_open=False)

    def next(self) -> tuple[ListeningPort | int, int] | None:
        """Who is to be served now: a port with somebody at it, or the descriptor of a connection and its events."""
        for fd, mask in self._epoll.poll(0, 1):
            return self._ports.get(fd, fd), mask
        return None

    def admits(self, port: ListeningPort, peer: str, peer_host: str) -> bool:
        """Whether a stranger may come in; with too many of one address the newest is turned away."""
        most = self._limits.unauthenticated_per_peer
        if port.role is not Role.CLIENT or most is None or peer_host == "unix" or self._peers[peer_host] < most:
            return True
        self._turned_away.count(RejectionReason.TOO_MANY_STRANGERS)
        self._warnings.warn(
            "Turned %s away on listener %s: %d connections of its address have not logged in yet", peer, port.name, most
        )
        return False

    def enter(self, connection: Connection) -> None:
        """A stranger is in."""
        connection.in_lobby = True
        self._epoll.register(connection.fd, connection.events_mask)
        if connection.port.role is Role.CLIENT:
            self._inside[connection.fd] = connection
            self._peers[connection.peer_host] += 1
            if len(self._inside) >= self._limits.unauthenticated and self._is_open:
                self._warnings.warn("%d connections have not logged in yet: new ones wait", len(self._inside))
                self._open(False)

    def leave(self, connection: Connection) -> None:
        """It is known now, or gone."""
        connection.in_lobby = False
        self._epoll.unregister(connection.fd)
        if self._inside.pop(connection.fd, None) is None:
            return
        host = connection.peer_host
        self._peers[host] -= 1
        if not self._peers[host]:
            del self._peers[host]
        if not self._is_open and self._resume_ms == 0 and len(self._inside) < self._limits.unauthenticated:
            self._open(True)

    def modify(self, connection: Connection, mask: int) -> None:
        """Wait for other events of a connection."""
        self._epoll.modify(connection.fd, mask)

    def exhausted(self, now_ms: int) -> None:
        """The system has no descriptor or memory left for a connection: let nobody in for a while."""
        self._warnings.warn("The system has no more room for connections: new ones wait")
        self._resume_ms = now_ms + PAUSE_MS
        self._open(False)

    def look_again(self, now_ms: int) -> None:
        """Let strangers in again if that is long enough ago."""
        if self._resume_ms and now_ms >= self._resume_ms:
            self._resume_ms = 0
            if len(self._inside) < self._limits.unauthenticated:
                self._open(True)

    def _open(self, is_open: bool) -> None:
        self._is_open = is_open
        for fd, port in self._ports.items():
            if port.role is Role.CLIENT:
                self._set(fd, is_open=is_open)

    def _set(self, fd: int, *, is_open: bool) -> None:
        self._epoll.modify(fd, select.EPOLLIN if is_open else 0)
