"""The oldest delivery in flight of each queue, found in slices: there may be a million deliveries, and nothing is kept
for this on the forwarding path.

A search looks at the deliveries of each connection as they are when it comes to that connection. What is settled while
it goes on may still be among what it has found; a reader of the result looks at `Queue.in_flight` as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from penstock_amqp.endpoint.events import AVAILABLE, Held
from penstock_broker.access.connection import Connection
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.departures import consumed_queue
from penstock_broker.state.open_transactions import transactions_of

__all__ = ["EXAMINED_PER_STEP", "InFlight", "InFlightSearch", "add_waiting", "connections_of", "in_flight"]

InFlight: TypeAlias = dict[Queue, tuple[int, int]]
"""By queue: when the oldest delivery in flight became available, and when the longest-held one was sent (us)."""

EXAMINED_PER_STEP: Final = 2000
"""Deliveries, or connections, that are looked at in one step: about a millisecond."""


COPIED_AS_ONE: Final = 20
"""So many deliveries are copied in the time in which one is looked at."""


class InFlightSearch:
    """A search over connections: `step` until it says that all are looked at; then `found` is whole."""

    __slots__ = ("_connections", "_held", "found")

    def __init__(self, connections: Iterable[Connection], found: InFlight | None = None) -> None:
        """`found`: what is known before, to be added to."""
        self._connections = deque(connections)
        self._held: Iterator[tuple[Queue, Held]] = iter(())
        self.found: InFlight = {} if found is None else found

    def step(self) -> bool:
        """Look at the next slice; True if nothing is left."""
        left = EXAMINED_PER_STEP
        while left > 0:
            held = next(self._held, None)
            left -= 1
            if held is not None:
                self._add(held[0], held[1])
            elif self._connections:
                connection = self._connections.popleft()
                held_now = connection.endpoint.held_now()
                left -= len(held_now) // COPIED_AS_ONE
                self._held = _queued(connection, held_now)
            else:
                return True
        return False

    def _add(self, queue: Queue, held: Held) -> None:
        _, entry, sent_us = held
        so_far = self.found.get(queue)
        if so_far is None:
            self.found[queue] = (entry[AVAILABLE], sent_us)
        elif entry[AVAILABLE] < so_far[0] or sent_us < so_far[1]:
            self.found[queue] = (min(entry[AVAILABLE], so_far[0]), min(sent_us, so_far[1]))


def _queued(connection: Connection, held_now: list[Held]) -> Iterator[tuple[Queue, Held]]:
    """What the consumers of a connection have in flight now, and what its transactions have settled."""
    for held in held_now:
        queue = consumed_queue(held[0].context)
        if queue is not None:
            yield queue, held
    ledger = transactions_of(connection)
    if ledger is not None:
        for settlement in list(ledger.settlements()):
            yield settlement.consumer.queue, settlement.held


def connections_of(broker: Broker, queues: Iterable[Queue]) -> list[Connection]:
    """The connections that may hold messages of these queues: those of their consumers, and those that have
    transactions, in which a delivery stays when its link goes.
    """
    found = {each.number: each for each in broker.clients.connections.values() if each.transactions is not None}
    found |= {each.connection.number: each.connection for each in broker.work.departures}
    for queue in queues:
        for consumer in queue.links.consumers:
            found[consumer.connection.number] = consumer.connection
    return list(found.values())


def in_flight(connections: Iterable[Connection]) -> InFlight:
    """The whole search at once."""
    search = InFlightSearch(connections)
    while not search.step():
        pass
    return search.found


def add_waiting(held: InFlight, queues: Iterable[Queue], now_us: int) -> None:
    """Add the oldest message that waits in each queue now, so that its age is known when it is sent while a reply is
    made. What comes after that counts as come, and what is sent as sent, at this time.
    """
    for queue in queues:
        available_us, hold_us = held.get(queue, (now_us, now_us))
        held[queue] = (min(available_us, queue.oldest_available_us() or now_us), hold_us)
