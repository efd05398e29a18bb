"""The end of a broker that is told to stop: no client is let in any more, and every client gets a Close, in slices.

Source: docs/decisions/023-bounded-turns.md.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Final

from penstock_amqp.endpoint.events import AmqpError
from penstock_broker.access.connection import Connection
from penstock_broker.access.listeners import Listener
from penstock_broker.access.unauthenticated_connections import UnauthenticatedConnections
from penstock_broker.attach import connection_end
from penstock_broker.loop.connections import Connections
from penstock_broker.state.broker import Broker

__all__ = ["Stop"]

CLOSE_MS: Final = 5_000
"""How long clients get to take what we still have for them."""
CLOSED_PER_TURN: Final = 25
"""Clients that are sent a Close in one turn: one to two milliseconds."""


class Stop:
    """That of one broker."""

    def __init__(
        self,
        broker: Broker,
        listeners: list[Listener],
        unauthenticated: UnauthenticatedConnections,
        connections: Connections,
    ) -> None:
        self._broker = broker
        self._listeners = listeners
        self._unauthenticated = unauthenticated
        self._connections = connections
        self._closes_all = False
        """What was published before is accepted."""
        self.is_over = False
        """All clients are gone."""

    def begin(self) -> None:
        """Stop accepting connections, send a Close to every client, and be over when all have closed theirs, or after
        `CLOSE_MS`.
        """
        broker = self._broker
        if broker.is_stopping:
            return
        broker.is_stopping = True
        for listener in self._listeners:
            if listener.sock is not None:
                self._unauthenticated.unwatch(listener)
                listener.close()
        # What was published before is accepted before the Close.
        broker.sync.after_sync(None, self._close_all)
        broker.clock.timers.at(broker.clock.now_ms + CLOSE_MS, self._end)

    def log_failed(self) -> None:
        """No sync will come for which the Close may wait."""
        if self._broker.is_stopping and not self._closes_all:
            self._close_all()

    def _close_all(self) -> None:
        self._closes_all = True
        if self._broker.work.fan_outs:
            self._broker.clock.after(0, self._close_all)  # what is on its way into many queues is accepted before, too
            return
        self._close_some(deque(self._broker.clients.connections.values()))

    def _close_some(self, left: deque[Connection]) -> None:
        """Close the next of these connections; the others are still served."""
        told = AmqpError("amqp:connection:forced", "The broker is stopping; connect again.")
        is_over = self._broker.clock.stint()
        for _ in range(min(CLOSED_PER_TURN, len(left))):
            connection_end.close_connection(self._broker, left.popleft(), told)
            if is_over():  # each may have very many deliveries that go back
                break
        if left:
            self._broker.clock.after(0, partial(self._close_some, left))
        else:
            self._check_end()

    def _check_end(self) -> None:
        broker, half_closed = self._broker, self._connections.half_closed
        half_closed.look(broker.clock.now_ms)
        if not broker.clients.connections and broker.sync.is_idle and not half_closed:
            self._end()
        else:
            broker.clock.timers.at(broker.clock.now_ms + 10, self._check_end)

    def _end(self) -> None:
        self._drop_some(deque(self._broker.clients.connections.values()))

    def _drop_some(self, left: deque[Connection]) -> None:
        """Drop the next of these connections, which have not taken their Close in time; be over behind the last."""
        is_over = self._broker.clock.stint()
        while left:
            self._connections.drop(left.popleft())
            if is_over():
                break
        if left:
            self._broker.clock.after(0, partial(self._drop_some, left))
        else:
            self.is_over = True
