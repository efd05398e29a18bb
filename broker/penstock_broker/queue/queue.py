"""One queue incarnation: its messages, what was declared of it, its links and its counters.

The tuple of a published message (`Entry`) is shared by all queues that it reaches; a queue holds references. What waits
is in the `backlog`; the two fields of it on which the plain path works are here too. Delivery counts live in dicts that
only redelivered messages enter.

Written for speed: `messages.publish`, `messages.dispatch` and `messages.settle` work on the fields. Must not know why a
link takes messages from it, nor sockets or the log.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal, TypeAlias

from penstock_amqp.endpoint.events import AVAILABLE, FLAGS, NUMBER, AmqpError, Entry, Held
from penstock_api.message_audit import EndedBy
from penstock_broker.access.connection import Connection
from penstock_broker.queue.admission import Admission
from penstock_broker.queue.audit import QueueAudit
from penstock_broker.queue.backlog import Backlog
from penstock_broker.queue.consumer import QueueLinks, ReceivingLink
from penstock_broker.queue.delayed import DelayedMessages, ExpiryState, is_early
from penstock_broker.queue.disposal import Pile
from penstock_broker.queue.flags import LOGGED, SCHEDULED, outlives
from penstock_broker.queue.paged_tail import PagedTail
from penstock_broker.queue.priority_level import PriorityLevel
from penstock_broker.queue.redelivery import Redelivery
from penstock_broker.queue.run import Run
from penstock_broker.queue.totals import QueueTotals
from penstock_core.dead_letters import DeathReason
from penstock_core.terms import Overflow

__all__ = ["ANNOTATED", "LARGE_BYTES", "LOGGED", "SCHEDULED", "UNLIMITED_BYTES", "Queue", "QueuePolicy", "Stranded"]

ANNOTATED: Final = 4
"""Flag of an entry: a consumer has changed its annotations in this queue, so its record in the log says less."""

LARGE_BYTES: Final = 1024 * 1024
"""Messages that are no longer than this together have nothing in the log alone (`LogOptions.inline_bytes`)."""

UNLIMITED_BYTES: Final = sys.maxsize
"""`QueuePolicy.max_bytes` of a queue that nobody has limited; the forwarding path compares with it as with others."""

WaitingState: TypeAlias = Literal["Ready", "Scheduled", "Stranded"]
"""How a message that is not in flight waits."""


@dataclass(frozen=True, slots=True)
class Stranded:
    """A message that could not be sent on: its queue keeps it, and `messages.dead_letters` tries again."""

    entry: Entry
    cause: DeathReason
    error: AmqpError | None
    """What the consumer said when it rejected it."""


class QueuePolicy:
    """What was declared of a queue."""

    __slots__ = (
        "dead_letter",
        "exclusive_consumer",
        "expiry_address",
        "keeps_all",
        "max_bytes",
        "max_deliveries",
        "max_messages",
        "max_ttl_us",
        "overflow",
    )

    def __init__(self) -> None:
        self.keeps_all = False
        """Messages sent as not durable are kept as well."""
        self.max_bytes = UNLIMITED_BYTES
        self.max_messages = 0
        """0: any number."""
        self.overflow = Overflow.DROP_OLDEST
        self.max_deliveries = 0
        """Failed deliveries after which a message is dead-lettered; 0: any number."""
        self.dead_letter: str | None = None
        """Address of what was rejected, or failed too often."""
        self.expiry_address: str | None = None
        """Address of what expired."""
        self.max_ttl_us = 0
        """The longest time to live, and that of messages that say none, microseconds; 0: none."""
        self.exclusive_consumer = False
        """One link at a time gets the messages."""

    @property
    def is_limited(self) -> bool:
        """Somebody has written a limit, so that `overflow` may come to count."""
        return self.max_bytes < UNLIMITED_BYTES or self.max_messages > 0


class Queue:
    """One life of a queue. Fields are public to the forwarding path."""

    __slots__ = (
        "admits",
        "arrivals",
        "audit",
        "awaits_output_of",
        "backlog",
        "changes",
        "delayed",
        "delivered_up_to",
        "depth_bytes",
        "expiry",
        "in_flight",
        "incarnation",
        "is_logged",
        "is_scheduled",
        "links",
        "name",
        "policy",
        "ready",
        "redelivery",
        "returned",
        "staged_bytes",
        "stranded",
        "taken_turn",
        "totals",
    )

    def __init__(self, name: str, incarnation: int, *, is_logged: bool, now_us: int) -> None:
        self.name = name
        self.incarnation = incarnation
        self.is_logged = is_logged
        """Its durable messages outlive the process."""
        self.admits: Admission | None = None
        """What a message has to pass at publish; None takes all."""
        self.policy = QueuePolicy()
        self.links = QueueLinks(now_us)
        self.redelivery = Redelivery()
        self.backlog = Backlog(self.redelivery.excluded)
        self.ready: deque[Entry] = self.backlog.normal.fresh
        """Fresh messages of normal priority, or the first of them."""
        self.arrivals = self.ready
        """Where plain messages can be appended, all others take `put`: the same, or what waits behind its tail."""
        self.returned = self.backlog.normal.back
        """Messages of normal priority that came back, or were looked at; before `ready`."""
        self.delayed = DelayedMessages()
        """Messages to be delivered later."""
        self.expiry = ExpiryState()
        self.stranded: dict[int, Stranded] = {}
        """Messages whose destination does not take them now, by number: they count, but no consumer gets them."""
        self.is_scheduled = False
        """It is in the broker's list of queues that may have something to send."""
        self.awaits_output_of: Connection | None = None
        """Where its only consumer is, if that has got its part of a turn; see `state.output_lines`."""
        self.delivered_up_to = 0
        """Highest message number that was sent to a consumer."""
        self.taken_turn = 0
        """The loop's last turn in which consumers got messages; long turns alone are noted."""
        self.depth_bytes = 0
        self.staged_bytes = 0
        """Of these, those of long messages that are in the log alone."""
        self.in_flight = 0
        """Deliveries that nobody has settled yet."""
        self.totals = QueueTotals()
        self.audit: QueueAudit | None = None
        """What writes down every message while an audit is on."""
        self.changes: dict[Queue, None] | None = None
        """Where the queue enters itself with its next change; None: it has done so, or nobody wants to know."""

    def note_change(self) -> None:
        """Something that management tells of the queue has changed, or is about to in this turn.

        What writes such a field from outside this class calls it. Whether it has to be called stands in `changes`.
        """
        changes, self.changes = self.changes, None
        if changes is not None:
            changes[self] = None

    @property
    def has_work(self) -> bool:
        """It is to be visited, now or once its consumer's connection has sent what it has."""
        return self.is_scheduled or self.awaits_output_of is not None

    @property
    def waiting(self) -> int:
        """Messages that a consumer could take now."""
        if not self.backlog.is_plain:
            return len(self.backlog)
        tail = self.backlog.normal.tail
        return len(self.ready) + len(self.returned) + (len(tail) if tail is not None else 0)

    @property
    def kept_back(self) -> int:
        """Messages that no consumer gets now: delayed, about to leave, or stranded."""
        return len(self.delayed) + len(self.expiry.expired) + len(self.stranded)

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
        self.note_change()
        self.backlog.put(entries)

    def put_back(self, held: Iterable[Held]) -> None:
        """Take deliveries back, to be sent again before all that wait at their priority."""
        self.note_change()
        put_back, repeated = self.backlog.put_back, self.redelivery.repeated
        if self.audit is not None:
            held = tuple(held)
            self.audit.returned(held)
        for delivery in held:
            put_back(delivery[1])
            self.in_flight -= 1
            self.totals.returned += 1
            if repeated:
                repeated.came_back(delivery[1][NUMBER])

    def pick(self, chosen: Mapping[int, Entry], passed: Set[int]) -> list[Entry]:
        """Take waiting messages out; the rest of their end is the caller's. `passed`: see the backlog's."""
        self.note_change()
        return self.backlog.pick(chosen, passed)

    def take_out(self, chosen: Mapping[int, Entry], passed: Set[int]) -> list[Entry]:
        """The same, and of those that are kept back. `chosen`: by number."""
        taken = self.pick(chosen, passed)
        if len(taken) < len(chosen) and self.kept_back:
            taken += [found for each in chosen.values() if (found := self.delayed.remove(each)) is not None]
            taken += [kept.entry for each in chosen if (kept := self.stranded.pop(each, None)) is not None]
        return taken

    def hold_back(self, entry: Entry) -> None:
        """Keep a message until it is available, or has expired before."""
        self.note_change()
        self.delayed.add(entry)

    def keep(self, entry: Entry, now_us: int) -> None:
        """Put a message that was taken out back in its place."""
        self.note_change()
        if is_early(entry, now_us):
            self.hold_back(entry)
        else:
            self.backlog.put_back(entry)

    def everything(self, below: int | None = None) -> Iterator[tuple[WaitingState, Entry]]:
        """What waits, in the order of hand-out, then what is delayed, by time, then what is stranded.

        As it is now, whatever changes while it is gone through. A step may raise OSError, and be tried again. `below`:
        the number of the next message; see `Backlog.snapshot`.
        """
        copied: tuple[tuple[WaitingState, Iterable[Entry]], ...] = (
            ("Ready", self.backlog.snapshot(below=below)),
            ("Scheduled", self.delayed.snapshot(below)),
            ("Stranded", [each.entry for each in self.stranded.values()]),
        )
        return chain.from_iterable(_told(state, entries) for state, entries in copied)

    @property
    def in_log_only(self) -> tuple[int, int]:
        """Of the messages that it holds, those whose bodies are not in memory: how many, and their bytes."""
        tails = [level.tail for level in self.backlog.levels if level.tail is not None]
        return sum(tail.runs_count for tail in tails), sum(tail.bytes for tail in tails)

    @property
    def volatile(self) -> int:
        """How many of the messages that wait end with the process."""
        tails = [level.tail for level in self.backlog.levels if level.tail is not None]
        return sum(not outlives(entry[FLAGS]) for entry in self.everything_in_memory()) + sum(
            min(tail.volatile, tail.runs_count) for tail in tails
        )

    def everything_in_memory(self) -> Iterator[Entry]:
        """What waits, is delayed or stranded, and has its body in memory, in no order; nothing may change meanwhile."""
        yield from self.backlog.in_memory()
        yield from self.delayed
        yield from (each.entry for each in self.stranded.values())

    def begin_tail(self, level: PriorityLevel, tail: PagedTail) -> None:
        """From now on only the first messages of this level of the backlog are in memory."""
        level.begin_tail(tail)
        self.arrivals = self.backlog.normal.arrivals

    def pull(self, level: PriorityLevel, most: int, most_bytes: int) -> None:
        """Read about as many of the messages behind the first ones of a level into memory. Raises OSError."""
        level.pull(most, most_bytes)
        self.arrivals = self.backlog.normal.arrivals

    def take_unread(self) -> list[Run]:
        """Take out all messages that are in no memory, without reading them; the rest of their end is the caller's."""
        self.note_change()
        return [run for level in self.backlog.levels if level.tail is not None for run in level.tail.take_runs()]

    def drop_oldest(self) -> Entry | None:
        """Take out the oldest message of the lowest priority that waits; the rest of its end is the caller's."""
        dropped = self.backlog.drop_oldest()
        self.arrivals = self.backlog.normal.arrivals
        return dropped

    def drop_newest(self) -> Entry | None:
        """Take out the message that came last, if it waits; the rest of its end is the caller's."""
        return self.backlog.drop_newest()

    def join(self, consumer: ReceivingLink) -> None:
        """A consumer more."""
        self.note_change()
        self.links.add(consumer, exclusive=self.policy.exclusive_consumer)
        self.links.unused_since_us = 0

    def leave(self, consumer: ReceivingLink, now_us: int, most: int = 0) -> bool:
        """The consumer is gone; what it had unsettled is given back apart from this. True if messages are still
        reserved for it, because these are more than `most` (0: any number): `Backlog.give_back` gives them back.
        """
        self.note_change()
        self.links.remove(consumer, exclusive=self.policy.exclusive_consumer)
        keeps_reserved = self.backlog.left(consumer, most)
        if not self.links.consumers:
            self.links.unused_since_us = now_us
        return keeps_reserved

    def exclude(self, consumer: ReceivingLink, number: int) -> None:
        """Keep a message from a consumer from now on; one that is gone meanwhile gets nothing anyway."""
        if consumer in self.links.consumers:
            self.backlog.exclude(consumer, number)

    def rank(self) -> None:
        """Find out who comes before whom, after consumers or the policy changed."""
        self.links.rank(exclusive=self.policy.exclusive_consumer)

    def fail(self, entry: Entry) -> int:
        """Count one failed delivery; how many they are now."""
        self.note_change()
        attempts = self.redelivery.attempts
        count = attempts[entry[NUMBER]] = attempts.get(entry[NUMBER], 0) + 1
        if count > self.totals.max_delivery_count:
            self.totals.max_delivery_count = count
        self.redelivery.repeated.failed(entry)
        return count

    def forget(self, number: int) -> None:
        """The message has left for good."""
        self.redelivery.forget(number)
        if self.backlog.groups is not None:
            self.backlog.groups.release(number)

    def end(self) -> list[Pile]:
        """The queue's life is over, and it is empty at once, however much that was.

        The caller frees everything that waited and what was remembered of it, and deliveries in flight as well.
        """
        if self.audit is not None:
            self.audit.end(EndedBy.QUEUE_ENDED)
        expiry, redelivery = self.expiry, self.redelivery
        passing = [expiry.passing.entries] if expiry.passing is not None else []
        piles: list[Pile] = [*self.backlog.take_all(), self.delayed.take_all(), expiry.expired, *passing]
        piles += (self.stranded, *redelivery.take_all())
        self.ready = self.arrivals = self.backlog.normal.fresh
        expiry.expired, self.stranded = deque(), {}
        expiry.next_due = 0
        expiry.passing = None
        self.depth_bytes = self.staged_bytes = 0
        return piles


def _told(state: WaitingState, entries: Iterable[Entry]) -> Iterator[tuple[WaitingState, Entry]]:
    return map(lambda entry: (state, entry), entries)  # noqa: C417 - a generator would end with the first OSError
