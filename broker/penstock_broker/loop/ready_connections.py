"""Connections whose sockets were ready when a turn's time was over, and the order in which they are served.

They may be thousands, so a turn looks only at those that it serves. Source: docs/decisions/023-bounded-turns.md.
"""

from __future__ import annotations

from collections import OrderedDict

from penstock_broker.access.connection import Connection

__all__ = ["ReadyConnections"]


class ReadyConnections:
    """Those of one loop."""

    __slots__ = ("_bulk", "_light", "count")

    def __init__(self) -> None:
        self._light: OrderedDict[Connection, tuple[int, int]] = OrderedDict()
        """What epoll said last of each, and since which turn it waits."""
        self._bulk: OrderedDict[Connection, tuple[int, int]] = OrderedDict()
        """The same, of those whose last read brought much."""
        self.count = 0
        """How many wait: each turn asks for that more than once."""

    def add(self, connection: Connection, mask: int, turn: int) -> None:
        """A connection is ready as epoll says in `mask`. One that waits already keeps its place."""
        for waiting in (self._light, self._bulk):
            if connection in waiting:
                waiting[connection] = mask, waiting[connection][1]
                return
        self.count += 1
        (self._bulk if connection.reading.is_bulk else self._light)[connection] = mask, turn

    def pop_oldest(self) -> tuple[Connection, int]:
        """Take out the one that has waited longest: else one that asks for much would wait for ever behind others."""
        light, bulk = self._light, self._bulk
        self.count -= 1
        if not bulk or (light and next(iter(light.values()))[1] <= next(iter(bulk.values()))[1]):
            return _first(light)
        return _first(bulk)

    def pop(self) -> tuple[Connection, int]:
        """Take out the next one. Those who sent little come before those who sent much: an ack or credit costs less
        than it makes wait.
        """
        self.count -= 1
        return _first(self._light or self._bulk)


def _first(waiting: OrderedDict[Connection, tuple[int, int]]) -> tuple[Connection, int]:
    connection, (mask, _) = waiting.popitem(last=False)
    return connection, mask
