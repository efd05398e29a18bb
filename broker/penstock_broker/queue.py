"""The messages of one queue incarnation: what waits, what came back, what was seen, and the counters.

One tuple per publish is shared by all queues it reaches; a queue holds references. `ready` is in publishing order, and
whatever came back is older than all of it, so `returned` (sorted by number) is served first. Delivery counts live in
dicts that only redelivered messages enter.

Written for speed: `publishing`, `dispatching` and `settling` work on its fields. Must not know links' engines, sockets
or the log.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from penstock_amqp.endpoint_events import Entry, Held
from penstock_amqp.message import Head
from penstock_broker.histogram import Histogram
from penstock_core.terms import Overflow

if TYPE_CHECKING:
    from penstock_broker.connection import Connection
    from penstock_broker.links import Browser, Consumer

__all__ = ["AVAILABLE", "DATA", "EXPIRES", "FLAGS", "LOGGED", "NUMBER", "Queue"]

NUMBER: Final = 0
DATA: Final = 1
AVAILABLE: Final = 2
EXPIRES: Final = 3
FLAGS: Final = 4

LOGGED: Final = 1
"""Flag of an entry: it was put into the log, so its end has to be."""


class Queue:
    """One life of a queue. Fields are public to the forwarding path; totals only grow."""

    __slots__ = (
        "acked",
        "admits",
        "attempts",
        "browsers",
        "consumers",
        "dead_letter",
        "dead_lettered",
        "delivered",
        "depth_bytes",
        "dropped",
        "enqueued",
        "enqueued_bytes",
        "excluded",
        "exclusive_consumer",
        "expired",
        "expiry",
        "has_expiry",
        "hold",
        "in_flight",
        "incarnation",
        "is_logged",
        "is_scheduled",
        "keeps_all",
        "lost_at_restart",
        "mark",
        "max_bytes",
        "max_deliveries",
        "max_delivery_count",
        "max_messages",
        "max_ttl_us",
        "name",
        "overflow",
        "ready",
        "redelivered",
        "returned",
        "returned_total",
        "seen",
        "sojourn",
        "turn",
        "unused_since_us",
        "wait",
    )

    def __init__(self, name: str, incarnation: int, *, is_logged: bool, now_us: int) -> None:
        self.name = name
        self.incarnation = incarnation
        self.is_logged = is_logged
        """Its durable messages outlive the process."""
        self.admits: Callable[[bytes, Head, Connection | None], bool] | None = None
        """Asked at publish about each message; None takes all."""
        self.keeps_all = False
        """Messages sent as not durable are kept as well."""
        self.ready: deque[Entry] = deque()
        self.returned: list[Entry] = []
        self.attempts: dict[int, int] = {}
        """Deliveries that failed and count, by message number."""
        self.seen: set[int] = set()
        """Numbers that a consumer may have seen: their header says delivery-count > 0, but no attempt counts."""
        self.excluded: dict[int, set[Consumer]] = {}
        """Consumers that said undeliverable-here, by message number."""
        self.consumers: list[Consumer] = []
        self.browsers: list[Browser] = []
        self.turn = 0
        """Whose turn it is among the consumers."""
        self.is_scheduled = False
        """It is in the broker's ready list."""
        self.has_expiry = False
        """Some message had a time to live."""
        self.mark = 0
        """Highest message number that was sent to anybody."""
        self.max_bytes = 0
        self.max_messages = 0
        self.overflow = Overflow.DROP_OLDEST
        self.max_deliveries = 0
        """Failed deliveries after which a message is dead-lettered; 0: any number."""
        self.dead_letter: str | None = None
        """Address of what was rejected, or failed too often."""
        self.expiry: str | None = None
        """Address of what expired."""
        self.max_ttl_us = 0
        """The longest time to live, and that of messages that say none; 0: none."""
        self.exclusive_consumer = False
        """One link at a time gets the messages."""
        self.depth_bytes = 0
        self.in_flight = 0
        self.enqueued = 0
        self.enqueued_bytes = 0
        self.delivered = 0
        self.redelivered = 0
        self.acked = 0
        self.returned_total = 0
        self.expired = 0
        self.dead_lettered = 0
        self.dropped = 0
        self.lost_at_restart = 0
        self.max_delivery_count = 0
        self.unused_since_us = now_us
        self.sojourn = Histogram()
        self.wait = Histogram()
        self.hold = Histogram()

    @property
    def waiting(self) -> int:
        """Messages that a consumer could take now."""
        return len(self.ready) + len(self.returned)

    @property
    def depth(self) -> int:
        """Messages that nobody has settled yet."""
        return len(self.ready) + len(self.returned) + self.in_flight

    def put_back(self, held: Iterable[Held]) -> None:
        """Take deliveries back, to be sent again before all that wait."""
        for delivery in held:
            insort(self.returned, delivery[1])
            self.in_flight -= 1
            self.returned_total += 1

    def delivery_count(self, number: int) -> int:
        """What the header of the next delivery says."""
        count = self.attempts.get(number, 0)
        return count or (1 if number in self.seen else 0)

    def fail(self, number: int) -> None:
        """Count one failed delivery."""
        count = self.attempts.get(number, 0) + 1
        self.attempts[number] = count
        if count > self.max_delivery_count:
            self.max_delivery_count = count

    def forget(self, number: int) -> None:
        """The message has left for good."""
        self.attempts.pop(number, None)
        self.seen.discard(number)
        self.excluded.pop(number, None)

    def clear(self) -> int:
        """Drop everything that waits; deliveries in flight are the caller's. Return how many."""
        count = self.waiting
        self.depth_bytes -= sum(len(entry[DATA]) for entry in (*self.ready, *self.returned))
        self.ready.clear()
        self.returned.clear()
        return count
