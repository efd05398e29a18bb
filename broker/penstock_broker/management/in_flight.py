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
from penstock_amqp.endpoint.freed_parts import EndpointFreed
from penstock_broker.access.connection import Connection
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.leaving_links import consumed_queue
from penstock_broker.state.open_transactions import Settlement, transactions_of
from penstock_broker.state.rollbacks import Rollback

__all__ = ["EXAMINED_PER_STEP", "InFlight", "InFlightSearch", "add_waiting", "connections_of", "in_flight"]

InFlight: TypeAlias = dict[Queue, tuple[int, int]]
"""By queue: when the oldest delivery in flight became available, and when the longest-held one was sent (us)."""

EXAMINED_PER_STEP: Final = 2000
"""Deliveries, or connections, that are looked at in one step: about a millisecond."""

TAKEN_AT_ONCE: Final = 250
"""Of these, so many are taken from a connection together."""


class InFlightSearch:
    """A search over connections: `step` until it says that all are looked at; then `found` is whole."""

    __slots__ = ("_connections", "_parts", "found")

    def __init__(self, connections: Iterable[Connection | Rollback], found: InFlight | None = None) -> None:
        """`found`: what is known before, to be added to."""
        self._connections = deque(connections)
        self._parts: Iterator[list[tuple[Queue, Held] | None]] = iter(())
        self.found: InFlight = {} if found is None else found

    def step(self) -> bool:
        """Look at the next slice; True if nothing is left."""
        left = EXAMINED_PER_STEP
        while left > 0:
            part = next(self._parts, None)
            left -= 1
            if part is not None:
                left -= len(part)
                for queued in part:
                    if queued is not None:
                        self._add(*queued)
            elif self._connections:
                self._parts = _parts(self._connections.popleft())
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


def _parts(source: Connection | Rollback) -> Iterator[list[tuple[Queue, Held] | None]]:
    """What the consumers of a connection have in flight now, and what its transactions have settled, or what a rollback
    has still to return of that; None: something else was looked at. Nothing more of a connection once it has ended,
    which it may do between two parts.
    """
    if isinstance(source, Rollback):
        yield from _settled(each for each in source.settlements if each.unsettled is None)
        return
    connection = source
    try:
        for part in connection.endpoint.unsettled.walk(TAKEN_AT_ONCE):
            yield [_queued(held) for held in part]
    except EndpointFreed:
        return
    ledger = transactions_of(connection)
    if ledger is not None:
        yield from _settled(ledger.settlements())


def _settled(settlements: Iterable[Settlement]) -> Iterator[list[tuple[Queue, Held] | None]]:
    settled = list(settlements)
    for at in range(0, len(settled), TAKEN_AT_ONCE):
        yield [(each.consumer.queue, each.held) for each in settled[at : at + TAKEN_AT_ONCE]]


def _queued(held: Held | None) -> tuple[Queue, Held] | None:
    queue = consumed_queue(held[0].context) if held is not None else None
    return None if queue is None or held is None else (queue, held)


def connections_of(broker: Broker, queues: Iterable[Queue]) -> list[Connection | Rollback]:
    """The connections that may hold messages of these queues: those of their consumers, and those that have
    transactions, in which a delivery stays when its link goes; and the rollbacks that are under way.
    """
    found = {each.number: each for each in broker.clients.connections.values() if each.transactions is not None}
    found |= {each.connection.number: each.connection for each in broker.work.delivery_returns}
    for queue in queues:
        for consumer in queue.links.consumers:
            found[consumer.connection.number] = consumer.connection
    return [*found.values(), *broker.work.rollbacks]


def in_flight(connections: Iterable[Connection | Rollback]) -> InFlight:
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
