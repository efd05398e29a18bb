"""Connections that probably bring a message or two, or accepts, are read before any message of the turn is handled:
messages of several connections are stored and answered together.

Written for speed: this runs for every connection of every turn. Source: docs/decisions/118-small-batches-together.md.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping
from typing import Final

from penstock_amqp.endpoint.engine import ENGINE, Line
from penstock_amqp.endpoint.events import Event, EventKind
from penstock_broker.access.connection import Connection, Phase
from penstock_broker.access.read_progress import BULK_BYTES, LONG_READ, READ_BYTES
from penstock_broker.loop.events import accepted, handle, handle_messages, rescue
from penstock_broker.state.broker import Broker

__all__ = ["READ", "ReadAhead"]

READ_TOGETHER: Final = 16
"""Connections that are read by one call at most: the time of the turn is looked at behind it, after some 0.1 ms."""
READ: Final = select.EPOLLIN
_MESSAGES: Final = EventKind.MESSAGES
_ACCEPTED: Final = EventKind.ACCEPTED
_OPEN: Final = Phase.OPEN
"""An attribute of an enum's class takes long to find."""


class ReadAhead:
    """What was read in this turn and is not handled yet."""

    def __init__(
        self,
        broker: Broker,
        by_fd: Mapping[int, Connection],
        was_read: Callable[[Connection, bool], None],
        fail: Callable[[Connection], None],
    ) -> None:
        """`was_read`: called after a read, with whether the connection goes on. `fail`: closes it after an error."""
        self._broker = broker
        self._by_fd = by_fd
        self._was_read = was_read
        self._fail = fail
        self.batches: list[tuple[Connection, list[Event]]] = []
        """What each connection brought."""
        self.beside_bulk = False
        """The loop says so while it reads several connections that send much."""
        self.has_light = False
        """Meanwhile, somebody sent little whose last read had brought little as well. The loop sets it back."""
        self.read_bytes = READ_BYTES
        """What is read at once of a connection whose messages are short."""

    def read_together(self, ready: list[tuple[int, int]], at: int) -> int:
        """Read connections from `ready[at]` on which probably bring a message or two, or accepts, by one call; messages
        are handled by `handle`. Returns the position of the first that was not dealt with: the same if that one
        is not such a connection. Not while publishers wait for room in the log.
        """
        some, lines = _light_ones(ready, at, self._by_fd)
        if not some:
            return at
        came: list[list[Event]] = []
        most = self.read_bytes
        try:
            read = lines[0][ENGINE].read_together(lines, most, BULK_BYTES, came)
        except Exception:
            events = came.pop() if came else []
            self.batches += zip(some, came, strict=False)
            rescue(self._broker, events)
            self._fail(some[len(came)])
            return at + len(came) + 1
        if self.beside_bulk and not self.has_light:
            self.has_light = any(events and events[0][0] is _MESSAGES for events in came)
        if read is None:
            self.batches += zip(some, came, strict=True)
            return at + len(came)
        events = came.pop()
        self.batches += zip(some, came, strict=False)
        self._take_read(some[len(came)], read, most, events)
        return at + len(came) + 1

    def read(self, connection: Connection) -> bool:
        """The same for one connection, of any kind; False if it has to be served as all are."""
        reading, endpoint = connection.reading, connection.endpoint
        if connection.phase is not _OPEN or reading.is_bulk or connection.is_congested:
            return False
        input, sockets = endpoint.input, endpoint.sockets
        if not input.is_quiet or sockets is None or connection.transport.wrapping is not None:
            if reading.is_behind or reading.unread or reading.debt > 0:
                return False
            self._take_read(connection, None, self.read_bytes, [])
            return True
        events: list[Event] = []
        most = self.read_bytes * LONG_READ if reading.has_long else self.read_bytes
        try:
            read = sockets.read_plain(connection.transport.fd, most, input.tap, events)
            if len(events) == 1 and isinstance(read, int) and read < BULK_BYTES:
                # All of it was whole and light: nothing else has to be noted.
                was_light = connection.light_line is not None
                if not (was_light or reading.has_long):
                    connection.light_line = connection.line
                event = events[0]
                if event[0] is _MESSAGES:
                    if was_light and self.beside_bulk:
                        self.has_light = True
                    self.batches.append((connection, events))
                    return True
                if event[0] is _ACCEPTED:
                    accepted(self._broker, event[1].context, event[2])  # which nobody answers
                    return True
        except Exception:
            rescue(self._broker, events)
            self._fail(connection)
            return True
        self._take_read(connection, read, most, events)
        return True

    def _take_read(
        self, connection: Connection, read: int | tuple[int, object] | None, most: int, events: list[Event]
    ) -> None:
        """Go on with a connection of which `SocketEngine.read_plain` returned `read` for at most `most` bytes; None: it
        is to be read.
        """
        reading, endpoint = connection.reading, connection.endpoint
        try:
            try:
                if read is None:
                    alive = connection.receive(events, self.read_bytes)
                else:
                    alive = connection.was_read(read, most, events)
                kind = events[0][0] if alive and len(events) == 1 else None
                if kind is _MESSAGES and not (
                    reading.is_bulk
                    or reading.is_held
                    or connection.has_unread
                    or endpoint.flows.owed
                    or endpoint.changes.are_pending
                ):
                    self.batches.append((connection, events))
                    return
                if kind is not _ACCEPTED:  # what consumers accept concerns no message that waits here
                    self.handle()
                handle(self._broker, connection, events)
            except Exception:
                rescue(self._broker, events)
                raise
            self._was_read(connection, alive)
        except Exception:
            self._fail(connection)

    def handle(self) -> None:
        """Handle what `read` and `read_together` have read, before anything else happens."""
        ahead, self.batches = self.batches, []
        if ahead:
            handle_messages(self._broker, ahead, self._fail)


def _light_ones(
    ready: list[tuple[int, int]], at: int, by_fd: Mapping[int, Connection]
) -> tuple[list[Connection], list[Line]]:
    """Those from `ready[at]` on, up to the first other one, that probably bring a message or two, or accepts; and the
    line of each.
    """
    some: list[Connection] = []
    lines: list[Line] = []
    for fd, mask in ready[at : at + READ_TOGETHER]:
        connection = by_fd.get(fd)
        if connection is None or mask != READ:
            break
        line = connection.light_line
        if line is None or connection.phase is not _OPEN or connection.is_congested:
            break
        some.append(connection)
        lines.append(line)
    return some, lines
