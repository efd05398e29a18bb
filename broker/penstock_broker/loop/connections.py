"""The connections that the loop serves: taken in, moved out of the lobby, flushed, looked at in between, forgotten.

`loop.Loop` adds the turn to it. An exception while one connection is served closes that connection and is logged.

Written for speed: `_flush` runs for every batch.
"""

from __future__ import annotations

import logging
import select
import socket
from collections import deque
from typing import Final

from penstock_amqp.endpoint.events import AmqpError, Event
from penstock_amqp.sasl.mechanisms import CredentialAnswer
from penstock_amqp.transports.tls import Wrapping
from penstock_broker.access.connection import MAX_BACKLOG, Connection, Phase
from penstock_broker.access.listeners import ListeningPort
from penstock_broker.access.lobby import Lobby
from penstock_broker.access.login_revalidation import LoginRevalidation
from penstock_broker.access.logins import Logins
from penstock_broker.access.rejections import RejectionReason
from penstock_broker.attach import detach, open
from penstock_broker.loop.events import handle
from penstock_broker.messages import dispatch
from penstock_broker.state.broker import Broker

__all__ = ["IDLE_MS", "READ", "SWEEP_MS", "WRITE", "Connections"]

logger = logging.getLogger(__name__)

IDLE_MS: Final = 1000
SWEEP_MS: Final = 250
READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT


class Connections:
    """What of the loop is about connections, and not about its turn."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._epoll = select.epoll()
        self._by_fd: dict[int, Connection] = {}
        self._behind: deque[Connection] = deque()
        """Connections that have more to say, which was read already."""
        self.standing = LoginRevalidation(broker, lambda work, failed: self._logins.run(work, failed))
        self._logins = Logins(broker, self._answered, self.standing.begun)
        self._lobby = Lobby(broker.settings.limits, broker.clients.warnings, broker.clients.rejections)

    def _accept(self, port: ListeningPort) -> None:
        try:
            accepted = port.accept()
        except OSError:  # no descriptor or no memory is left
            self._lobby.exhausted(self.broker.clock.now_ms)
            return
        if accepted is None:
            return
        sock, peer, peer_host = accepted
        if self._lobby.admits(port, peer, peer_host):
            self.add(port, sock, peer, port.begin(sock))
        else:
            sock.close()

    def add(self, port: ListeningPort, sock: socket.socket, peer: str, tls: Wrapping | None = None) -> None:
        """Serve a connected, non-blocking socket by the rules of `port`."""
        broker = self.broker
        broker.clients.next_connection += 1
        connection = Connection(broker.clients.next_connection, sock, peer, port, self._logins, tls)
        connection.events_mask = READ
        self._lobby.enter(connection)
        broker.clients.connections[connection.number] = connection
        self._by_fd[connection.fd] = connection
        connection.due_ms = broker.clock.now_ms
        connection.login_ms = broker.clock.now_ms + broker.settings.limits.login_seconds * 1000

    def _note_behind(self, connection: Connection) -> None:
        """Serve it again in the next turn, or, if it is held or does not read what we answer, once that is over."""
        if connection.is_held:
            self._set_mask(connection)
        elif connection.has_unread and not connection.is_behind and len(connection.backlog) <= MAX_BACKLOG:
            connection.is_behind = True
            self._behind.append(connection)

    def _release_held(self) -> None:
        """Read again from connections that were held until the log had synced more."""
        held, self.broker.work.held = self.broker.work.held, []
        for connection in held:
            connection.is_held = False
            if connection.phase is Phase.GONE:
                continue
            connection.due_ms = max(connection.due_ms, self.broker.clock.now_ms + IDLE_MS)  # it could not be heard
            self._set_mask(connection)
            self._note_behind(connection)

    def _answered(self, connection: Connection, answer: CredentialAnswer) -> None:
        """A question of a connection's dialogue was answered."""
        events: list[Event] = []
        try:
            alive = connection.answered(answer, events)
            handle(self.broker, connection, events)
        except Exception:
            self._failed(connection)
            return
        if alive:
            self._let_in(connection)
            self._note_behind(connection)
        else:
            self._drop(connection)

    def _sweep(self) -> None:
        """Heartbeats, idle time-outs and slow log-ins. A look at each connection is cheaper than a timer for each, and
        a connection that is gone leaves nothing behind.
        """
        self.broker.clock.after(SWEEP_MS, self._sweep)
        now_ms = self.broker.clock.now_ms
        self._lobby.look_again(now_ms)
        for connection in [each for each in self.broker.clients.connections.values() if each.due_ms <= now_ms]:
            if connection.phase in (Phase.SASL, Phase.OPENING) and connection.login_ms <= now_ms:
                self._too_slow(connection)
            else:
                self._tick(connection)

    def _too_slow(self, connection: Connection) -> None:
        seconds = self.broker.settings.limits.login_seconds
        told = (connection.peer, connection.port.name, seconds)
        self.broker.clients.rejections.count(RejectionReason.LOGIN_TIMED_OUT)
        self.broker.clients.warnings.warn("Dropped %s on listener %s: it has not opened within %d s", *told)
        self._drop(connection)

    def _tick(self, connection: Connection) -> None:
        if connection.is_held:
            # It lives as far as we can know, and is to know that we do.
            connection.send_heartbeat()
            self.broker.work.touch(connection)
            connection.due_ms = self.broker.clock.now_ms + IDLE_MS
            return
        events: list[Event] = []
        now_ms = self.broker.clock.now_ms
        try:
            due_ms = connection.endpoint.tick(now_ms, events)
            if events:
                handle(self.broker, connection, events)
        except Exception:
            self._failed(connection)
            return
        self.broker.work.touch(connection)
        # 0: no time-out is known yet.
        connection.due_ms = due_ms if due_ms > 0 and connection.phase is Phase.OPEN else now_ms + IDLE_MS

    def _failed(self, connection: Connection) -> None:
        """An exception: a bug of ours. It costs this connection and no other."""
        logger.exception("Connection %d of %s is closed after an internal error", connection.number, connection.peer)
        try:
            open.close(self.broker, connection, AmqpError("amqp:internal-error", "See the broker's log."))
            connection.flush()
        except Exception:
            logger.exception("Connection %d could not be told", connection.number)
        self._forget(connection)

    def _drop(self, connection: Connection) -> None:
        """Forget a connection: its peer is gone, or has been told."""
        if connection.phase is Phase.GONE:
            return
        try:
            detach.connection_gone(self.broker, connection)
        except Exception:
            logger.exception("Connection %d left something behind", connection.number)
        self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        if connection.phase is Phase.GONE:
            return
        del self.broker.clients.connections[connection.number]
        del self._by_fd[connection.fd]
        if connection.in_lobby:
            self._lobby.leave(connection)
        else:
            self._epoll.unregister(connection.fd)
        connection.free()

    def _let_in(self, connection: Connection) -> None:
        """Serve with all the others who has logged in."""
        if connection.in_lobby and connection.is_known:
            self._lobby.leave(connection)
            self._epoll.register(connection.fd, connection.events_mask)

    def _flush(self, connection: Connection) -> None:
        if connection.phase is Phase.GONE:
            return
        if not connection.flush():
            self._drop(connection)
            return
        if connection.is_blocked or connection.events_mask & WRITE:
            self._set_mask(connection)
        if connection.endpoint.streams and not connection.is_blocked:
            self.broker.work.streaming.append(connection)
        if connection.unread:
            self._note_behind(connection)  # its Open may be answered now
        if connection.is_congested:
            # The peer said something: its window may be open again, and what it held back is out.
            connection.is_congested = False
            for link in connection.endpoint.all_links():
                dispatch.link_unblocked(self.broker, link)
        if connection.phase is Phase.CLOSING and not connection.backlog:
            self._drop(connection)

    def _unblocked(self, connection: Connection) -> None:
        if not connection.flush():
            self._drop(connection)
            return
        if not connection.is_blocked:
            if connection.endpoint.streams:
                self.broker.work.streaming.append(connection)
            for link in connection.endpoint.all_links():
                dispatch.link_unblocked(self.broker, link)
        self._set_mask(connection)
        if connection.phase is Phase.CLOSING and not connection.backlog:
            self._drop(connection)

    def _set_mask(self, connection: Connection) -> None:
        mask = 0 if connection.is_held or len(connection.backlog) > MAX_BACKLOG else READ
        if connection.is_blocked:
            mask |= WRITE
        if mask != connection.events_mask:
            connection.events_mask = mask
            if connection.in_lobby:
                self._lobby.modify(connection, mask)
            else:
                self._epoll.modify(connection.fd, mask)
