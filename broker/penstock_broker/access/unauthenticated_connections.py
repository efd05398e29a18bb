"""Listening sockets, and connections that have not logged in yet, with an epoll of their own.

The loop gives them a slice of each turn and takes one descriptor at a time, in the order in which they became ready, so
that ten thousand handshakes cost the other connections a slice and no more. They are counted, in all and per network
address; while there are too many, new ones wait in the system's queue. Source: docs/decisions/023-bounded-turns.md.
"""

from __future__ import annotations

import select
from collections import Counter
from typing import Final

from penstock_api.settings.client_limits import ConnectionLimits
from penstock_broker.access.connection import Connection
from penstock_broker.access.listeners import Listener
from penstock_broker.access.rejections import RejectionReason, Rejections
from penstock_broker.settings.settings import Role
from penstock_broker.warning_throttle import WarningThrottle

__all__ = ["UnauthenticatedConnections"]

PAUSE_MS: Final = 100
"""How long no connection is accepted after the system had no descriptor left."""


class UnauthenticatedConnections:
    """The connections of one broker that have not logged in yet."""

    def __init__(self, limits: ConnectionLimits, warnings: WarningThrottle, rejections: Rejections) -> None:
        self._limits = limits
        self._warnings = warnings
        self._rejections = rejections
        self._epoll = select.epoll()
        self._listeners: dict[int, Listener] = {}
        """By descriptor."""
        self._inside: dict[int, Connection] = {}
        """Connections of client listeners by descriptor; those of management and the observer are not counted."""
        self._peers: Counter[str] = Counter()
        """Those of `_inside` by network address."""
        self._is_open = True
        """New connections of client listeners are accepted."""
        self._resume_ms = 0
        """When they are accepted again after the system had no room; 0: it had room."""

    @property
    def descriptor(self) -> int:
        """Readable when `next` returns something."""
        return self._epoll.fileno()

    def close(self) -> None:
        """Give the descriptor back."""
        self._epoll.close()

    def watch(self, listener: Listener) -> None:
        """Take connections of a listener from now on."""
        assert listener.sock is not None
        fd = listener.sock.fileno()
        self._listeners[fd] = listener
        self._epoll.register(fd, select.EPOLLIN)

    def unwatch(self, listener: Listener) -> None:
        """Take no more."""
        if listener.sock is not None and self._listeners.pop(listener.sock.fileno(), None) is not None:
            self._set(listener.sock.fileno(), is_open=False)

    def next(self) -> tuple[Listener | int, int] | None:
        """What is ready: a listener with a new connection, or the descriptor of a connection; with epoll's events."""
        for fd, mask in self._epoll.poll(0, 1):
            return self._listeners.get(fd, fd), mask
        return None

    def admits(self, listener: Listener, peer: str, peer_host: str) -> bool:
        """Whether a new connection may stay; with too many of one address the newest is rejected."""
        most = self._limits.unauthenticated_per_peer
        if listener.role is not Role.CLIENT or most is None or peer_host == "unix" or self._peers[peer_host] < most:
            return True
        self._rejections.warn(
            RejectionReason.TOO_MANY_UNAUTHENTICATED,
            "Rejected %s on listener %s: %d connections of its address have not logged in yet",
            peer,
            listener.name,
            most,
        )
        return False

    def enter(self, connection: Connection) -> None:
        """A connection was accepted."""
        transport = connection.transport
        transport.is_unauthenticated = True
        self._epoll.register(transport.fd, transport.events_mask)
        if connection.listener.role is Role.CLIENT:
            self._inside[transport.fd] = connection
            self._peers[transport.peer_host] += 1
            if len(self._inside) >= self._limits.unauthenticated and self._is_open:
                self._warnings.warn("%d connections have not logged in yet: new ones wait", len(self._inside))
                self._open(False)

    def leave(self, connection: Connection) -> None:
        """A connection has logged in, or is gone."""
        transport = connection.transport
        transport.is_unauthenticated = False
        self._epoll.unregister(transport.fd)
        if self._inside.pop(transport.fd, None) is None:
            return
        host = transport.peer_host
        self._peers[host] -= 1
        if not self._peers[host]:
            del self._peers[host]
        if not self._is_open and self._resume_ms == 0 and len(self._inside) < self._limits.unauthenticated:
            self._open(True)

    def modify(self, connection: Connection, mask: int) -> None:
        """Wait for other events of a connection."""
        self._epoll.modify(connection.transport.fd, mask)

    def pause(self, now_ms: int, listener: Listener) -> None:
        """The system has no descriptor or memory left for a connection of this listener: accept none of it, and none of
        clients, for `PAUSE_MS`.
        """
        if self._warnings.may_warn("room for connections"):
            self._warnings.warn("The system has no more room for connections: new ones wait")
        self._resume_ms = now_ms + PAUSE_MS
        self._open(False)
        if listener.role is not Role.CLIENT and listener.sock is not None:
            self._set(listener.sock.fileno(), is_open=False)

    def resume(self, now_ms: int) -> None:
        """Accept connections again if the pause is over."""
        if self._resume_ms and now_ms >= self._resume_ms:
            self._resume_ms = 0
            for fd, listener in self._listeners.items():
                if listener.role is not Role.CLIENT:
                    self._set(fd, is_open=True)
            if len(self._inside) < self._limits.unauthenticated:
                self._open(True)

    def _open(self, is_open: bool) -> None:
        self._is_open = is_open
        for fd, listener in self._listeners.items():
            if listener.role is Role.CLIENT:
                self._set(fd, is_open=is_open)

    def _set(self, fd: int, *, is_open: bool) -> None:
        self._epoll.modify(fd, select.EPOLLIN if is_open else 0)
