"""Accepts connections, and serves those that have not logged in within a slice of the turn.

Source: docs/decisions/023-bounded-turns.md.
"""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Callable
from typing import Final

from penstock_amqp.transports.tls import Wrapping
from penstock_broker.access.connection import Authenticator, Connection
from penstock_broker.access.connection_client import ConnectionLogin
from penstock_broker.access.listeners import Listener
from penstock_broker.access.transport import Transport
from penstock_broker.access.unauthenticated_connections import UnauthenticatedConnections
from penstock_broker.loop.connections import Connections
from penstock_broker.loop.read_ahead import READ
from penstock_broker.settings import process_descriptors
from penstock_broker.settings.settings import Role
from penstock_broker.state.broker import Broker

__all__ = ["Acceptor"]

logger = logging.getLogger(__name__)

SLICE_SECONDS: Final = 0.001
"""What connections that have not logged in may take of a turn, beside the step of one of them."""
REST_MS: Final = 2
"""How long they wait after they used up the slice while others have work: they get a third of the time at most."""


class Acceptor:
    """The way into one broker."""

    def __init__(
        self,
        broker: Broker,
        epoll: select.epoll,
        unauthenticated: UnauthenticatedConnections,
        connections: Connections,
        authenticator: Authenticator,
        seconds: Callable[[], float],
    ) -> None:
        """`epoll`: the loop's, which watches that of `unauthenticated`. `seconds`: the clock that bounds a turn."""
        self._broker = broker
        self._epoll = epoll
        self._unauthenticated = unauthenticated
        self._connections = connections
        self._authenticator = authenticator
        self._seconds = seconds
        self.others_have_work = False
        """In this turn there is more to do than to serve unauthenticated connections; the loop says so."""

    def accept(self, listener: Listener) -> None:
        """Accept one connection of a listener, if one waits."""
        if listener.role is Role.CLIENT and process_descriptors.are_short(self._unauthenticated.descriptor):
            self._unauthenticated.pause(self._broker.clock.now_ms, listener)
            return
        try:
            accepted = listener.accept()
        except OSError:  # no descriptor or no memory is left
            self._unauthenticated.pause(self._broker.clock.now_ms, listener)
            return
        if accepted is None:
            return
        sock, peer, peer_host = accepted
        try:
            if self._unauthenticated.admits(listener, peer, peer_host):
                self.add(listener, sock, peer, listener.wrap(sock))
            else:
                sock.close()
        except Exception:
            logger.exception("A connection of %s to listener %s is closed after an internal error", peer, listener.name)
            sock.close()

    def add(self, listener: Listener, sock: socket.socket, peer: str, wrapping: Wrapping | None = None) -> None:
        """Serve a connected, non-blocking socket as one that `listener` accepted."""
        broker = self._broker
        broker.clients.next_connection += 1
        login = ConnectionLogin(deadline_ms=broker.clock.now_ms + broker.settings.limits.login_seconds * 1000)
        transport = Transport(sock, peer, wrapping)
        number, incoming = broker.clients.next_connection, broker.memory.incoming
        connection = Connection(number, transport, listener, self._authenticator, login, incoming)
        self._connections.add(connection)

    def serve_unauthenticated(self) -> None:
        """Serve those that are ready, one step of one connection after the other, until the slice is used up."""
        deadline = self._seconds() + SLICE_SECONDS
        while (ready := self._unauthenticated.next()) is not None:
            who, mask = ready
            if isinstance(who, Listener):
                self.accept(who)
            else:
                self._serve(self._connections.by_fd[who], mask)
            if self._seconds() > deadline:
                if self.others_have_work:
                    self._epoll.modify(self._unauthenticated.descriptor, 0)
                    self._broker.clock.after(REST_MS, self._watch_unauthenticated)
                break

    def _serve(self, connection: Connection, mask: int) -> None:
        self._connections.serve(connection, mask)
        try:
            self._connections.leave_unauthenticated(connection)
        except Exception:
            self._connections.fail(connection)

    def _watch_unauthenticated(self) -> None:
        self._epoll.modify(self._unauthenticated.descriptor, READ)
