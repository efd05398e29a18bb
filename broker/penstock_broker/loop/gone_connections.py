"""Gives back what connections had that are gone: their places, the engine's memory, and their sockets."""

from __future__ import annotations

import logging
import select
from collections.abc import Callable
from functools import partial
from typing import Final

from penstock_broker.access.connection import Connection, Phase
from penstock_broker.access.engine_memory import EngineMemory
from penstock_broker.access.half_closed import HalfClosed
from penstock_broker.access.unauthenticated_connections import UnauthenticatedConnections
from penstock_broker.messages import delivery_returns
from penstock_broker.state.broker import Broker

__all__ = ["GoneConnections"]

logger = logging.getLogger(__name__)

MANY: Final = 1000
"""If so many connections were there at once, the engine's memory of each is freed by a thread: then the C library may
give some hundred megabytes back to the kernel with any of them, which takes milliseconds."""


class GoneConnections:
    """Those of one broker."""

    def __init__(
        self,
        broker: Broker,
        epoll: select.epoll,
        unauthenticated: UnauthenticatedConnections,
        by_fd: dict[int, Connection],
    ) -> None:
        """`epoll`: the loop's, for connections that have logged in. `by_fd`: those that are served."""
        self._broker = broker
        self._epoll = epoll
        self._unauthenticated = unauthenticated
        self._by_fd = by_fd
        self._memory = EngineMemory()
        self.half_closed = HalfClosed()
        self._most = 0
        """So many connections were there at once."""

    def note_count(self, count: int) -> None:
        """So many connections are there now."""
        self._most = max(self._most, count)

    def forget(self, connection: Connection) -> None:
        """Free a connection to which nothing leads any more. Each step is done, whatever becomes of the others."""
        if connection.phase is Phase.GONE:
            return
        transport, fd = connection.transport, connection.transport.fd
        part: Callable[[], None] = transport.close
        if connection.phase is Phase.CLOSING:
            part = partial(self.half_closed.add, transport, self._broker.clock.now_ms)
        self._broker.clients.connections.pop(connection.number, None)
        self._by_fd.pop(fd, None)
        free = partial(connection.free, self._free_endpoint)
        waiting = partial(self._forget_line, connection)
        for step in (waiting, partial(self._unregister, connection, fd), free, part):
            try:
                step()
            except Exception:
                logger.exception("Connection %d was closed, but not everything of it is given back", connection.number)
        connection.phase = Phase.GONE

    def _forget_line(self, connection: Connection) -> None:
        """Look at the queues that waited for its output: others may consume from them."""
        work = self._broker.work
        for queue in work.output_lines.forget(connection):
            work.schedule(queue)

    def _free_endpoint(self, connection: Connection) -> None:
        """Free the engine's side of a connection: not before its deliveries are back in their queues."""
        free = partial(connection.endpoint.free, self._memory.free, always=self._most >= MANY)
        if delivery_returns.is_under_way(self._broker, connection):
            delivery_returns.when_over(self._broker, connection, free)
        else:
            free()

    def _unregister(self, connection: Connection, fd: int) -> None:
        if connection.transport.is_unauthenticated:
            self._unauthenticated.leave(connection)
        else:
            self._epoll.unregister(fd)

    def close(self) -> None:
        """Wait until the memory of the connections that are gone is freed, and close their sockets."""
        self._memory.close()
        self.half_closed.close()
