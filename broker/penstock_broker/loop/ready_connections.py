"""Connections whose sockets were ready when a turn's time was over, and the order in which they are served.

They may be thousands, so a turn looks only at those that it serves. Source: docs/decisions/023-bounded-turns.md.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from penstock_broker.access.connection import Connection

__all__ = ["MAX_EVENTS", "ReadyConnections"]

MAX_EVENTS: Final = 64
"""Descriptors that one poll names, beside those that it names again."""
MOST_AGAIN: Final = 448
"""Of those that it names again, which costs a turn some 0.15 us each."""


class ReadyConnections:
    """Those of one loop."""

    __slots__ = ("_bulk", "_light", "count", "descriptors")

    def __init__(self) -> None:
        self._light: OrderedDict[Connection, tuple[int, int, int]] = OrderedDict()
        """Of each its descriptor, what epoll said last, and since which turn it waits."""
        self._bulk: OrderedDict[Connection, tuple[int, int, int]] = OrderedDict()
        """The same, of those whose last read brought much."""
        self.descriptors: set[int] = set()
        """Those of the connections that wait. One that was closed stays until its connection's turn comes."""
        self.count = 0
        """How many wait: each turn asks for that more than once."""

    @property
    def most_events(self) -> int:
        """For how many descriptors to ask epoll. It names those that wait again in each turn. Many that sent much wait
        for long, and without room for them a consumer's credit would be seen only every few turns.
        """
        return MAX_EVENTS + min(len(self._bulk), MOST_AGAIN)

    @property
    def has_light(self) -> bool:
        """Whether some wait whose last read brought little: `pop` takes these first."""
        return bool(self._light)

    def new_among(self, ready: list[tuple[int, int]], expected: int) -> list[tuple[int, int]]:
        """What epoll says that was not known: `ready` without those that wait already and are only still readable."""
        waiting = self.descriptors
        return [each for each in ready if each[1] != expected or each[0] not in waiting]

    def add(self, connection: Connection, fd: int, mask: int, turn: int) -> None:
        """A connection is ready as epoll says in `mask`. One that waits already keeps its place."""
        for waiting in (self._light, self._bulk):
            if connection in waiting:
                waiting[connection] = fd, mask, waiting[connection][2]
                return
        self.count += 1
        self.descriptors.add(fd)
        (self._bulk if connection.reading.is_bulk else self._light)[connection] = fd, mask, turn

    def pop_oldest(self) -> tuple[Connection, int]:
        """Take out the one that has waited longest: else one that asks for much would wait for ever behind others."""
        light, bulk = self._light, self._bulk
        if not bulk or (light and next(iter(light.values()))[2] <= next(iter(bulk.values()))[2]):
            return self._first(light)
        return self._first(bulk)

    def pop(self) -> tuple[Connection, int]:
        """Take out the next one. Those who sent little come before those who sent much: an ack or credit costs less
        than it makes wait.
        """
        return self._first(self._light or self._bulk)

    def _first(self, waiting: OrderedDict[Connection, tuple[int, int, int]]) -> tuple[Connection, int]:
        connection, (fd, mask, _) = waiting.popitem(last=False)
        self.count -= 1
        self.descriptors.discard(fd)
        return connection, mask
