"""The messages of one queue incarnation: what waits, what came back, what was seen, and the counters.

One tuple per publish is shared by all queues it reaches; a queue holds references. What waits is in its `backlog`, and
the fields of that which the plain path works on are here too. Delivery counts live in dicts that only redelivered
messages enter.

Written for speed: `publish`, `dispatch` and `settle` work on its fields. Must not know why a link reads
from it, sockets or the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from penstock_amqp.endpoint.events import Entry, Held
from penstock_broker.queue.admission import Admission
from penstock_broker.queue.backlog import Backlog
from penstock_broker.queue.consumer import ReceivingLink
from penstock_broker.queue.cursor import MessageTaker
from penstock_broker.queue.delayed import DelayedMessages
from penstock_broker.queue.disposal import Pile
from penstock_broker.queue.histogram import Histogram
from penstock_broker.queue.stranded import Stranded
from penstock_core.handing_out import tiers
from penstock_core.terms import Overflow

__all__ = ["AVAILABLE", "DATA", "EXPIRES", "FLAGS", "LOGGED", "NUMBER", "SCHEDULED", "ExpiryPass", "Queue"]

NUMBER: Final = 0
DATA: Final = 1
AVAILABLE: Final = 2
EXPIRES: Final = 3
FLAGS: Final = 4

LOGGED: Final = 1
"""Flag of an entry: it was put into the log, so its end has to be."""

SCHEDULED: Final = 2
"""Flag of an entry, and of its record in the log: the message says when it may be delivered at the earliest."""

WaitingState: TypeAlias = Literal["Ready", "Scheduled", "Stranded"]
"""How a message that is not in flight waits."""


@dataclass(slots=True)
class ExpiryPass:
    """What is looked through for messages that have expired, a slice after the other."""

    entries: Iterator[Entry]
    seen: int = 0
    next_expiry: int = 0
    """When the first of those seen expires that have not yet; 0: none does."""


class Queue:
    """One life of a queue. Fields are public to the forwarding path; totals only grow."""

    __slots__ = (
        "acked",
        "active",
        "admits",
        "attempts",
        "backlog",
        "browsers",
        "consumers",
        "dead_letter",
        "dead_lettered",
        "delivered",
        "depth_bytes",
        "doomed",
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
        "is_retimed",
        "is_scheduled",
        "keeps_all",
        "lost_at_restart",
        "mark",
        "max_bytes",
        "max_deliveries",
        "max_delivery_count",
        "max_messages",
        "max_ttl_us",
        "moved",
        "name",
        "next_expiry",
        "next_pass",
        "overflow",
        "passing",
        "ready",
        "redelivered",
        "returned",
        "returned_total",
        "scheduled",
        "seen",
        "sojourn",
        "stranded",
        "tiers",
        "turn",
        "unused_since_us",
        "wait",
        "wakes_ms",
    )

    def __init__(self, name: str, incarnation: int, *, is_logged: bool, now_us: int) -> None:
        self.name = name
        self.incarnation = incarnation
        self.is_logged = is_logged
        """Its durable messages outlive the process."""
        self.admits: Admission | None = None
        """What a message has to pass at publish; None takes all."""
        self.keeps_all = False
        """Messages sent as not durable are kept as well."""
        self.attempts: dict[int, int] = {}
        """Deliveries that failed and count, by message number."""
        self.seen: set[int] = set()
        """Numbers that a consumer may have seen: their header says delivery-count > 0, but no attempt counts."""
        self.excluded: dict[int, set[MessageTaker]] = {}
        """Consumers that said undeliverable-here, by message number."""
        self.backlog = Backlog(self.excluded)
        self.ready: deque[Entry] = self.backlog.normal.fresh
        """Fresh messages of normal priority: plain ones can be appended here, all others take `put`."""
        self.returned = self.backlog.normal.back
        """Messages of normal priority that came back, or were looked at; before `ready`."""
        self.stranded: dict[int, Stranded] = {}
        """Messages whose destination does not take them now, by number: they count, but nobody gets them."""
        self.consumers: list[ReceivingLink] = []
        self.browsers: list[ReceivingLink] = []
        self.turn = 0
        """Whose turn it is among the consumers."""
        self.tiers: tuple[list[ReceivingLink], ...] | None = None
        """The consumers that may get something, those before whom others come last; None: all, in turn."""
        self.active: ReceivingLink | None = None
        """The one consumer that gets messages, if only one may."""
        self.is_scheduled = False
        """It is in the broker's ready list."""
        self.has_expiry = False
        """Some message had a time to live."""
        self.next_expiry = 0
        """When the first message that waits expires, or before; 0: none does."""
        self.next_pass = 0
        """When what waits may be looked through again for messages that have expired."""
        self.passing: ExpiryPass | None = None
        """The look for messages that have expired, while it is going on."""
        self.scheduled = DelayedMessages()
        """Messages to be delivered later."""
        self.doomed: deque[Entry] = deque()
        """Messages that have expired and are about to leave."""
        self.wakes_ms: int | None = None
        """When the timer runs that looks at these; None: there is none."""
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
        self.is_retimed = False
        """That has changed since messages came which may be here: what their entries say of it does not hold."""
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
        self.moved = 0
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
        return len(self.ready) + len(self.returned) if self.backlog.is_plain else len(self.backlog)

    @property
    def kept_back(self) -> int:
        """Messages that no consumer gets now: delayed, about to leave, or stranded."""
        return len(self.scheduled) + len(self.doomed) + len(self.stranded)

    @property
    def depth(self) -> int:
        """Messages that nobody has settled yet."""
        return self.waiting + self.in_flight + self.kept_back

    def __iter__(self) -> Iterator[Entry]:
        """All that waits, in the order of hand-out; nothing may change meanwhile."""
        return iter(self.backlog)

    def oldest_available_us(self) -> int:
        """Since when the longest waiting message has been available; 0 if none waits."""
        return min((entry[AVAILABLE] for entry in self.backlog.oldest()), default=0)

    def put(self, entries: Iterable[Entry]) -> None:
        """Put messages of any kind behind those of their priority; the counters are the caller's."""
        self.backlog.put(entries)

    def put_back(self, held: Iterable[Held]) -> None:
        """Take deliveries back, to be sent again before all that wait at their priority."""
        put_back = self.backlog.put_back
        for delivery in held:
            put_back(delivery[1])
            self.in_flight -= 1
            self.returned_total += 1

    def pick(self, chosen: Set[int], passed: Set[int]) -> list[Entry]:
        """Take waiting messages out; the rest of their end is the caller's. `passed`: see the backlog's."""
        return self.backlog.pick(chosen, passed)

    def take_out(self, chosen: Mapping[int, Entry], passed: Set[int]) -> list[Entry]:
        """The same, and of those that are kept back. `chosen`: by number."""
        taken = self.pick(chosen.keys(), passed)
        if len(taken) < len(chosen) and self.kept_back:
            taken += [found for each in chosen.values() if (found := self.scheduled.remove(each)) is not None]
            taken += [kept.entry for each in chosen if (kept := self.stranded.pop(each, None)) is not None]
        return taken

    def hold_back(self, entry: Entry) -> None:
        """Keep a message until it is available, or has expired before."""
        self.scheduled.add(entry)

    def keep(self, entry: Entry, now_us: int) -> None:
        """Put a message that was taken out back in its place."""
        if entry[AVAILABLE] > now_us:
            self.hold_back(entry)
        else:
            self.backlog.put_back(entry)

    def everything(self) -> Iterator[tuple[WaitingState, Entry]]:
        """What waits, in the order of hand-out, then what is delayed, by time, then what is stranded.

        As it is now, whatever changes while it is gone through.
        """
        copied: tuple[tuple[WaitingState, Iterable[Entry]], ...] = (
            ("Ready", self.backlog.snapshot()),
            ("Scheduled", list(self.scheduled)),
            ("Stranded", [each.entry for each in self.stranded.values()]),
        )
        return ((state, entry) for state, entries in copied for entry in entries)

    def drop_oldest(self) -> Entry | None:
        """Take out the oldest message of the lowest priority that waits; the rest of its end is the caller's."""
        return self.backlog.drop_oldest()

    def drop_newest(self) -> Entry | None:
        """Take out the message that came last, if it waits; the rest of its end is the caller's."""
        return self.backlog.drop_newest()

    def join(self, consumer: ReceivingLink) -> None:
        """A consumer more."""
        self.consumers.append(consumer)
        self.unused_since_us = 0
        self.rank()

    def leave(self, consumer: ReceivingLink, now_us: int) -> None:
        """The consumer is gone; what it had unsettled is given back apart from this."""
        self.consumers.remove(consumer)
        self.backlog.left(consumer)
        if not self.consumers:
            self.unused_since_us = now_us
        self.rank()

    def exclude(self, consumer: ReceivingLink, number: int) -> None:
        """Keep a message from a consumer from now on; one that is gone meanwhile gets nothing anyway."""
        if consumer in self.consumers:
            self.backlog.exclude(consumer, number)

    def rank(self) -> None:
        """Find out who comes before whom, after consumers or the policy changed."""
        consumers = self.consumers
        ranked = tiers([consumer.priority for consumer in consumers])
        if self.exclusive_consumer:
            if self.active not in consumers:
                self.active = consumers[ranked[0][0]] if ranked else None
            self.tiers = ([self.active],) if self.active is not None else ()
        else:
            self.active = None
            self.tiers = tuple([consumers[at] for at in tier] for tier in ranked) if len(ranked) > 1 else None

    def delivery_count(self, number: int) -> int:
        """What the header of the next delivery says."""
        count = self.attempts.get(number, 0)
        return count or (1 if number in self.seen else 0)

    @property
    def remembers(self) -> bool:
        """Something is known of single messages that `forget` is to be told of."""
        return bool(self.attempts or self.seen or self.excluded or self.backlog.groups is not None)

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
        if self.backlog.groups is not None:
            self.backlog.groups.release(number)

    def end(self) -> list[Pile]:
        """The queue's life is over, and it is empty at once, however much that was.

        Everything that waited, and what was remembered of it, is the caller's to let go; so are deliveries in flight.
        """
        passing = [self.passing.entries] if self.passing is not None else []
        piles: list[Pile] = [*self.backlog.take_all(), self.scheduled.take_all(), self.doomed, *passing]
        piles += (self.stranded, self.seen, self.attempts, self.excluded)
        self.ready = self.backlog.normal.fresh
        self.doomed, self.stranded = deque(), {}
        self.seen, self.attempts = set(), {}
        self.next_expiry = 0
        self.passing = None
        self.depth_bytes = 0
        return piles
