"""Queues that wait for one connection to send what it has got.

A connection gets a bounded part of each turn. Where very many queues have their only consumer on the same connection,
visiting each of them in each turn, to find that the part is used up, costs more than sending does. So they stand in a
line, in the order in which they came: a flush of the connection calls the first of them to be visited, and while there
is room the visit of one calls the next. A queue that is visited for another reason keeps its place as long as its only
consumer is there and has got its part.

A blocked connection calls nobody; its line goes on once its socket takes bytes. Source:
docs/decisions/093-lines-for-output.md.
"""

from __future__ import annotations

from collections import OrderedDict

from penstock_broker.access.connection import Connection
from penstock_broker.queue.queue import Queue

__all__ = ["OutputLines"]


class Line:
    """The queues that wait for one connection."""

    __slots__ = ("is_called", "queues")

    def __init__(self) -> None:
        self.queues: OrderedDict[Queue, None] = OrderedDict()
        self.is_called = False
        """One that stood first is about to be visited."""


class OutputLines:
    """The lines of all connections. A queue stands in one at most: that of its `Queue.awaits_output_of`."""

    __slots__ = ("_blocked", "called", "lines")

    def __init__(self) -> None:
        self.lines: dict[Connection, Line] = {}
        """None of them is over."""
        self._blocked: set[Connection] = set()
        """Those of them whose socket took nothing more at the last flush."""
        self.called: dict[Queue, Connection] = {}
        """Queues that are about to be visited, and who called them; one for each connection."""

    @property
    def are_moving(self) -> bool:
        """A queue waits for a connection whose socket takes bytes."""
        return len(self.lines) > len(self._blocked)

    def wait(self, queue: Queue, connection: Connection, *, first: bool) -> None:
        """The queue waits for the connection, behind all others or before them; one that waits keeps its place."""
        if queue.awaits_output_of is not None:
            if queue.awaits_output_of is connection:
                return
            self.leave(queue)
        line = self.lines.get(connection)
        if line is None:
            line = self.lines[connection] = Line()
        line.queues[queue] = None
        if first:
            line.queues.move_to_end(queue, last=False)
        queue.awaits_output_of = connection

    def leave(self, queue: Queue) -> None:
        """The queue waits for no connection any more."""
        connection = queue.awaits_output_of
        if connection is not None:
            queue.awaits_output_of = None
            line = self.lines[connection]
            del line.queues[queue]
            self._end_if_over(connection, line)

    def call(self, connection: Connection) -> Queue | None:
        """The first that waits for the connection, which is to be visited now; None: nobody, or one is called."""
        line = self.lines.get(connection)
        return None if line is None or line.is_called else self._call_first(connection, line)

    def _call_first(self, connection: Connection, line: Line) -> Queue:
        queue, _ = line.queues.popitem(last=False)
        queue.awaits_output_of = None
        line.is_called = True
        self.called[queue] = connection
        return queue

    def answered(self, queue: Queue, *, has_room: bool) -> Queue | None:
        """The visit of a called queue is over: who is to be visited now, as of `call`, if its caller has room."""
        connection = self.called.pop(queue)
        line = self.lines.get(connection)
        if line is None:
            return None
        line.is_called = False
        if not line.queues:
            self._end_if_over(connection, line)
            return None
        return self._call_first(connection, line) if has_room else None

    def flushed(self, connection: Connection) -> Queue | None:
        """The connection has sent what it had, or what its socket took of it: who is to be visited, as of `call`."""
        if connection not in self.lines:
            return None
        if connection.is_blocked:
            self._blocked.add(connection)
            return None
        self._blocked.discard(connection)
        return self.call(connection)

    def forget(self, connection: Connection) -> list[Queue]:
        """The connection is gone: those that waited for it."""
        line = self.lines.pop(connection, None)
        self._blocked.discard(connection)
        left = list(line.queues) if line is not None else []
        for queue in left:
            queue.awaits_output_of = None
        return left

    def _end_if_over(self, connection: Connection, line: Line) -> None:
        if not line.queues and not line.is_called:
            del self.lines[connection]
            self._blocked.discard(connection)
