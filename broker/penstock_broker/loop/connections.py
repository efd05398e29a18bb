"""The connections that the loop serves: read, flushed, looked at in between, and forgotten.

An exception while one connection is served closes that connection and is logged; it never ends the broker. Source:
docs/decisions/024-errors-close-one-connection.md.

Written for speed: `serve` and `flush` run for every batch.
"""

from __future__ import annotations

import logging
import select
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from penstock_amqp.endpoint.events import AmqpError, Event
from penstock_amqp.sasl.mechanisms import CredentialAnswer
from penstock_broker.access.connection import MAX_BACKLOG_BYTES, Connection, Phase
from penstock_broker.access.unauthenticated_connections import UnauthenticatedConnections
from penstock_broker.attach import connection_end, failed_connection
from penstock_broker.loop.events import handle, rescue, serve
from penstock_broker.loop.gone_connections import GoneConnections
from penstock_broker.loop.plain_sockets import FEW, send_plain
from penstock_broker.loop.read_ahead import READ, ReadAhead
from penstock_broker.messages import dispatch
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Consumer, Producer

__all__ = ["DONE", "IDLE_MS", "Connections"]

logger = logging.getLogger(__name__)

IDLE_MS: Final = 1000
RELEASED_PER_TURN: Final = 500
"""Connections that are read again in one turn after they were held: about a millisecond."""
_WRITE: Final = select.EPOLLOUT
DONE: Final = (Phase.LEAVING, Phase.GONE)
"""Nothing is read or sent any more."""
_READ_OR_LOST: Final = READ | select.EPOLLHUP | select.EPOLLERR
_OPEN: Final = Phase.OPEN
_LEAVING: Final = Phase.LEAVING
_CLOSING: Final = Phase.CLOSING
"""An attribute of an enum's class takes long to find."""
INTERNAL_ERROR: Final = AmqpError("amqp:internal-error", "See the broker's log.")


class Connections:
    """The connections of one broker."""

    def __init__(
        self,
        broker: Broker,
        epoll: select.epoll,
        unauthenticated: UnauthenticatedConnections,
        seconds: Callable[[], float],
    ) -> None:
        """`epoll`: the loop's, for connections that have logged in. `seconds`: the clock that bounds a turn."""
        self._broker = broker
        self._epoll = epoll
        self._unauthenticated = unauthenticated
        self._seconds = seconds
        self._events: list[Event] = []
        """Of the connection that is being read; one list for all, since it is empty again after each."""
        self.by_fd: dict[int, Connection] = {}
        self.ahead = ReadAhead(broker, self.by_fd, self._was_read, self.fail)
        self.behind: deque[Connection] = deque()
        """Connections with something unread, which the next turns go on with."""
        self._gone = GoneConnections(broker, epoll, unauthenticated, self.by_fd)
        self.half_closed = self._gone.half_closed

    def add(self, connection: Connection) -> None:
        """Serve a connection that was accepted, among the unauthenticated ones at first."""
        broker = self._broker
        connection.transport.events_mask = READ
        self._unauthenticated.enter(connection)
        broker.clients.connections[connection.number] = connection
        self._gone.note_count(len(broker.clients.connections))
        self.by_fd[connection.transport.fd] = connection
        connection.due_ms = broker.clock.now_ms

    # -- input --------------------------------------------------------------------------------------------------------

    def serve(self, connection: Connection, mask: int) -> None:
        """Read or write as epoll says in `mask`."""
        if connection.phase is _LEAVING:
            return
        try:
            if mask & _WRITE:
                self._unblocked(connection)
                self._note_behind(connection)
            if mask & _READ_OR_LOST:
                self._read(connection)
        except Exception:
            self.fail(connection)

    def _read(self, connection: Connection) -> None:
        phase, reading = connection.phase, connection.reading
        if reading.is_behind:
            return
        if phase is not _OPEN:
            if phase in DONE:
                return
            if phase is _CLOSING:
                # What the peer sends does not matter any more, only whether it closes the connection.
                if not connection.transport.discard():
                    self.drop(connection)
                return
        if self._broker.log.makes_room() and _stores(connection):
            self._broker.hold(connection)
            self._set_mask(connection)
            return
        events = self._events
        try:
            alive = connection.receive(events, self.ahead.read_bytes)
            handle(self._broker, connection, events)
        except Exception:
            rescue(self._broker, events)
            raise
        finally:
            events.clear()
        self._was_read(connection, alive)

    def _was_read(self, connection: Connection, alive: bool) -> None:
        reading = connection.reading
        if not alive:
            self.drop(connection)
        elif reading.is_held or reading.unread or connection.transport.wrapping is not None:
            if connection.is_blocked and connection.phase not in DONE:
                self._set_mask(connection)  # by what TLS or WebSocket say themselves, which no flush has to follow
            self._note_behind(connection)

    def catch_up(self, deadline: float) -> None:
        """Go on with connections that sent much at once: one step each, behind those that sent little."""
        behind = self.behind
        for _ in range(len(behind)):  # those that are behind again have their turn in the next one
            connection = behind.popleft()
            connection.reading.is_behind = False
            try:
                self._read(connection)
                self.leave_unauthenticated(connection)
            except Exception:
                self.fail(connection)
            if self._seconds() > deadline:
                break

    def _note_behind(self, connection: Connection) -> None:
        """Serve it again in the next turn, or, if it is held or does not read what we answer, once that is over."""
        if connection.phase is Phase.GONE:
            return  # it was closed after an internal error, while its events were handled
        reading = connection.reading
        if reading.is_held:
            self._set_mask(connection)
        elif connection.has_unread and not reading.is_behind and len(connection.transport.backlog) <= MAX_BACKLOG_BYTES:
            reading.is_behind = True
            self.behind.append(connection)

    def release_held(self) -> None:
        """Read again from connections that were held until the log had synced more; if they are very many, from those
        that were held first."""
        held = self._broker.work.held
        self._broker.work.held = held[RELEASED_PER_TURN:]
        for connection in held[:RELEASED_PER_TURN]:
            connection.reading.is_held = False
            if connection.phase is Phase.GONE:
                continue
            connection.reading.spared_until_ms = self._broker.clock.now_ms + IDLE_MS
            try:
                self._set_mask(connection)
                self._note_behind(connection)
            except Exception:
                self.fail(connection)

    def answered(self, connection: Connection, answer: CredentialAnswer) -> None:
        """A question of a connection's SASL dialogue was answered."""
        events: list[Event] = []
        try:
            alive = connection.answered(answer, events)
            serve(self._broker, connection, events)
            if not alive:
                self.drop(connection)
                return
            self.leave_unauthenticated(connection)
            self._note_behind(connection)
        except Exception:
            self.fail(connection)

    def leave_unauthenticated(self, connection: Connection) -> None:
        """Serve a connection with all the others if it has logged in."""
        if connection.phase is Phase.GONE:
            return
        if connection.transport.is_unauthenticated and connection.login.is_authenticated:
            self._unauthenticated.leave(connection)
            self._epoll.register(connection.transport.fd, connection.transport.events_mask)

    # -- output -------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what there is to send, on every connection that has something."""
        work = self._broker.work
        while work.dirty:
            if len(work.dirty) == 1:
                self._flush(work.dirty.pop(), None)
                continue
            dirty = work.dirty.copy()
            work.dirty.clear()
            others, stuck = (dirty, None) if len(dirty) < FEW or work.output_lines.lines else send_plain(dirty)
            if stuck is not None:
                self._flush(*stuck)
            for connection in others:
                self._flush(connection, None)

    def _flush(self, connection: Connection, left: tuple[int, int] | None) -> None:
        """Send what a connection has to say; `left`: what `SocketEngine.send_output` has just returned for it."""
        work = self._broker.work
        try:
            if connection.phase is not _OPEN and connection.phase in DONE:
                connection.is_dirty = False
                return
            if not (connection.flush() if left is None else connection.keep(left)):
                self.drop(connection)
                return
            if (
                connection.is_blocked
                or connection.is_congested
                or connection.phase is not _OPEN
                or connection.reading.unread
                or connection.endpoint.streams
                or connection.transport.events_mask & _WRITE
            ):
                self._resume(connection)
            elif connection.line is None and connection.transport.wrapping is None:
                sockets = connection.endpoint.sockets
                connection.line = None if sockets is None else sockets.line(connection.transport.fd)
            if work.output_lines.lines:
                work.visit(work.output_lines.flushed(connection))
        except Exception:
            self.fail(connection)

    def _resume(self, connection: Connection) -> None:
        """More than sending is to be done: it is blocked or was so, or something waits that can go on now."""
        work = self._broker.work
        is_blocked = connection.is_blocked
        was_blocked = connection.transport.events_mask & _WRITE
        if is_blocked or was_blocked:
            self._set_mask(connection)
        if connection.endpoint.streams and not is_blocked:
            work.streaming[connection] = None
        # Its Open may be answered now, or its peer has read what was too much. (The last term is a property, and dear.)
        if (connection.reading.unread or connection.transport.wrapping is not None) and connection.has_unread:
            self._note_behind(connection)
        if connection.is_congested or (was_blocked and not is_blocked):
            # The peer sent something: its session window may be open again, and what waited for it was just sent. Or
            # its socket takes bytes again, of which epoll tells nothing any more.
            connection.is_congested = False
            for link in connection.endpoint.all_links():
                dispatch.link_unblocked(self._broker, link)
        if connection.phase is _CLOSING and not is_blocked:
            self.drop(connection)

    def _unblocked(self, connection: Connection) -> None:
        if not connection.flush():
            self.drop(connection)
            return
        if not connection.is_blocked:
            if connection.endpoint.streams:
                self._broker.work.streaming[connection] = None
            for link in connection.endpoint.all_links():
                dispatch.link_unblocked(self._broker, link)
            work = self._broker.work
            work.visit(work.output_lines.flushed(connection))
        self._set_mask(connection)
        if connection.phase is Phase.CLOSING and not connection.is_blocked:
            self.drop(connection)

    def advance_streams(self, deadline: float) -> None:
        """Go on with long messages that are sent in pieces; connections that are left are the first next time."""
        streaming = self._broker.work.streaming
        for _ in range(len(streaming)):
            if not streaming:  # one that was served took others down with it
                break
            connection, _ = streaming.popitem(last=False)
            try:
                if connection.phase is Phase.OPEN:
                    dispatch.advance_streams(self._broker, connection)
            except Exception:
                self.fail(connection)
            if self._seconds() > deadline:
                break

    def _set_mask(self, connection: Connection) -> None:
        transport = connection.transport
        mask = 0 if connection.reading.is_held or len(transport.backlog) > MAX_BACKLOG_BYTES else READ
        if connection.is_blocked:
            mask |= _WRITE
        if mask != transport.events_mask:
            transport.events_mask = mask
            if transport.is_unauthenticated:
                self._unauthenticated.modify(connection, mask)
            else:
                self._epoll.modify(transport.fd, mask)

    # -- the end ------------------------------------------------------------------------------------------------------

    def fail(self, connection: Connection) -> None:
        """An exception was raised, which is a bug of ours: it is being handled. It costs this connection and no other.

        Also for a connection that is gone already: then something still led to it, and is removed. Raises nothing.
        """
        number = connection.number
        logger.exception("Connection %d of %s is closed after an internal error", number, connection.transport.peer)
        if connection.phase is not Phase.GONE:
            try:
                connection.endpoint.keep_unheard()
                connection_end.close_connection(self._broker, connection, INTERNAL_ERROR)
                connection.flush()
            except Exception:
                logger.exception("Connection %d could not be told of the internal error", number)
        failed_connection.remove(self._broker, connection)
        self._gone.forget(connection)

    def drop(self, connection: Connection) -> None:
        """Forget a connection: its peer is gone, or our Close is sent."""
        if connection.phase not in DONE:
            connection_end.leave(self._broker, connection, partial(self._gone.forget, connection), orderly=False)

    def drop_unsent(self) -> None:
        """What was delivered in this turn can't be written down, and no file says so to the next start: it must not
        leave.
        """
        for connection in self._broker.work.dirty.copy():
            links = connection.endpoint.all_links()
            if any(isinstance(link.context, Consumer) and link.context.queue.is_logged for link in links):
                self.drop(connection)

    def close(self) -> None:
        """Give back what is left of the connections that are gone."""
        self._gone.close()


def _stores(connection: Connection) -> bool:
    """Whether something may come from it that the log has to store."""
    return any(isinstance(link.context, Producer) for link in connection.endpoint.all_links())
