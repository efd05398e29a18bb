"""Numbers, logs, queues and accepts batches of messages that take the same route, each of one producer.

Written for speed: on the plain path a message costs one `startswith` (does it begin like the one before?), a look at
some bytes (no group, no expiry) and one tuple. Batches of several producers go into the queues together, which takes a
fraction of the time where each is a message or two. Must not route: that is `publish`.

Source: docs/decisions/037-answer-after-sync.md and 118-small-batches-together.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import penstock_native
from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.events import Arrival, Entry
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages import message_head
from penstock_broker.access.connection import Connection
from penstock_broker.messages import accepts, dead_letter_origin, store
from penstock_broker.messages.accepts import Unanswered
from penstock_broker.messages.due_times import requested_times_of
from penstock_broker.messages.refuse import refuse, refuse_unreadable, unreadable
from penstock_broker.queue.message_prefix import NO_TIMES, MessagePrefix
from penstock_broker.queue.queue import LOGGED, SCHEDULED
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Producer
from penstock_broker.state.routes import ExchangeTarget, Route
from penstock_broker.topology.records import Exchange
from penstock_core.message_times import available_at, expires_at

__all__ = ["Batch", "learn_prefix", "publish_batches"]

_take_plain: Any = penstock_native.messages and penstock_native.messages.take_plain
_take_batches: Any = penstock_native.messages and penstock_native.messages.take_batches

KNOWN_BEGINNINGS: Final = 16
"""Prefixes that are remembered per producer: one that uses several priorities has several."""

Batch: TypeAlias = tuple[Producer, list[Arrival]]
"""Messages of one producer, in their order."""


class _Taken:
    """What a run of batches brought."""

    __slots__ = (
        "delayed",
        "entries",
        "first_expiry",
        "is_ordered",
        "presettled",
        "size",
        "told",
        "unlogged",
        "unsynced",
    )

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.delayed: list[Entry] = []
        self.size = 0
        """Bytes of them all."""
        self.first_expiry = 0
        """When the first of `entries` expires; 0: none does."""
        self.is_ordered = False
        """Some have a priority or a group."""
        self.unsynced: list[Unanswered] = []
        """What is to be accepted once it is synced."""
        self.unlogged: list[Unanswered] = []
        """What is to be accepted, and is not in the log."""
        self.presettled: list[Unanswered] = []
        """What its senders settled already."""
        self.told: list[Producer] = []
        """To whom there may be something to send now."""

    def answer(
        self, producer: Producer, batch: list[Arrival], deliveries: list[Ptr], presettled: list[Ptr], *, is_logged: bool
    ) -> None:
        """Note how a batch is to be answered of which these were taken."""
        (self.unsynced if is_logged else self.unlogged).append((producer, deliveries))
        if presettled:
            self.presettled.append((producer, presettled))
        if not is_logged or len(deliveries) != len(batch):
            self.told.append(producer)

    def expire(self, when: int) -> None:
        """A message expires at `when`; 0: never."""
        if when and (not self.first_expiry or when < self.first_expiry):
            self.first_expiry = when


def publish_batches(
    broker: Broker,
    route: Route,
    sources: list[Batch],
    exchange: Exchange | None,
    failed: Callable[[Connection], None] | None,
) -> list[Producer]:
    """Every message goes to every queue of `route`, which is not asked any more. Returns the producers to which there
    may be something to send now: all that the others sent waits for a sync.

    `exchange`: to which all of them came; None: that of each producer is asked for, if it has one. `failed` is called,
    while the exception is handled, for a connection whose batch could not be dealt with; None: the exception goes on.
    """
    if _refuse_all(broker, route, sources):
        return [producer for producer, _ in sources]
    taken = _Taken()
    lost: list[tuple[Connection, Exception]] = []
    at = 0
    while True:
        at += _take_alike(broker, route, sources, at, exchange, taken)
        if at == len(sources):
            break
        producer, batch = sources[at]
        at += 1
        now_wait = len(taken.entries), len(taken.delayed)
        try:
            _take(broker, producer, route, batch, taken)
        except Exception as error:
            if failed is None:
                raise
            del taken.entries[now_wait[0] :], taken.delayed[now_wait[1] :]
            lost.append((producer.connection, error))
        if at == len(sources):
            break
    broker.memory.came += taken.size
    store.put_numbered(
        broker, route, taken.entries, taken.delayed, taken.size, taken.first_expiry, ordered=taken.is_ordered
    )
    for producer, presettled in taken.presettled:
        producer.connection.endpoint.settle(presettled)
        producer.owed_credit += len(presettled)
    hold = sources[0][0].hold
    if hold.behind:
        for producer, _ in (*taken.unsynced, *taken.unlogged):
            hold.note(producer, route.queues)
    accepts.accept_stored(broker, taken.unsynced, taken.unlogged)
    for connection, raised in lost:  # now that the messages of the others are in their queues: this may bring more
        try:
            raise raised
        except Exception:
            assert failed is not None
            failed(connection)
    return taken.told


def _take_alike(
    broker: Broker, route: Route, sources: list[Batch], first: int, exchange: Exchange | None, taken: _Taken
) -> int:
    """Number, log and take together the batches from `sources[first]` on whose messages all begin like those that its
    producer sent before, whoever sent them. Returns how many batches that were.
    """
    beginning = sources[first][0].message_prefix
    if _take_batches is None or beginning.delays:
        return 0
    now, log = broker.clock.now_us, broker.log
    route_set = route.logged_set and (route.logged_set if beginning.durable else route.kept_set)
    expires, flags = now + beginning.ttl_us if beginning.ttl_us else 0, beginning.flags
    entries, presettled = taken.entries, taken.presettled
    entries_before, presettled_before = len(entries), len(presettled)
    payloads: list[bytes] | None = [] if route_set else None
    batches: int
    size: int
    batches, size = _take_batches(
        sources,
        first,
        beginning.prefix,
        beginning.count_at,
        beginning.is_narrow,
        log.longest_plain,
        log.numbers.message,
        now,
        expires,
        LOGGED | flags if route_set else flags,
        entries,
        taken.unsynced if route_set else taken.unlogged,
        presettled,
        payloads,
    )
    if not batches:
        return 0
    if payloads:
        log.put_many(route_set, payloads, now)
    else:
        log.next_messages(len(entries) - entries_before)
    if exchange is not None:
        exchange.received_bytes += size
    else:
        _count_bytes(sources[first : first + batches])
    if not route_set:
        taken.told += [producer for producer, _ in sources[first : first + batches]]
    elif len(presettled) != presettled_before:
        taken.told += [producer for producer, _ in presettled[presettled_before:]]
    taken.size += size
    if expires:
        taken.expire(expires)
    if flags:
        taken.is_ordered = True
    return batches


def _count_bytes(sources: list[Batch]) -> None:
    for producer, batch in sources:
        destination = producer.destination
        if isinstance(destination, ExchangeTarget):
            destination.exchange.received_bytes += sum([len(data) for _, data, _ in batch])


def _refuse_all(broker: Broker, route: Route, sources: list[Batch]) -> bool:
    """Refuse every message if memory or the volume is full; True if that is so."""
    is_full = broker.memory.is_full
    if not is_full and not (route.logged_set and not broker.log.accepts_publishing()):
        return False
    for producer, batch in sources:
        if is_full:
            told = broker.memory.refuse(len(batch))
        else:
            told = broker.storage_refusal()
            producer.stores = True
            broker.storage.refused += len(batch)
        for delivery, _, settled in batch:
            refuse(producer, delivery, settled, told)
    return True


def _take(
    broker: Broker,
    producer: Producer,
    route: Route,
    batch: list[Arrival],
    taken: _Taken,
) -> None:
    """Number a batch, log what is to last, and append it to `taken`."""
    now, log = broker.clock.now_us, broker.log
    entries, delayed = taken.entries, taken.delayed
    logged_set, kept_set = route.logged_set, route.kept_set
    number = 0 if logged_set else log.next_messages(len(batch))
    beginning = producer.message_prefix
    prefix, count_at = beginning.prefix, beginning.count_at
    ordered = False
    deliveries: list[Ptr] = []
    presettled: list[Ptr] = []
    size = first_expiry = 0
    any_logged = False
    at, end = 0, len(batch)
    while at < end:
        if _take_plain is not None and not beginning.delays:
            route_set = logged_set and (logged_set if beginning.durable else kept_set)
            payloads: list[bytes] | None = [] if route_set else None
            expires, flags = now + beginning.ttl_us if beginning.ttl_us else 0, beginning.flags
            count, came = _take_plain(
                batch,
                at,
                prefix,
                count_at,
                beginning.is_narrow,
                log.longest_plain,
                log.numbers.message if logged_set else number,
                now,
                expires,
                LOGGED | flags if route_set else flags,
                entries,
                deliveries,
                presettled,
                payloads,
            )
            if count:
                at += count
                size += came
                if payloads:
                    any_logged = True
                    log.put_many(route_set, payloads, now)
                elif logged_set:
                    log.next_messages(count)
                else:
                    number += count
                if flags:
                    ordered = True
                if expires and (not first_expiry or expires < first_expiry):
                    first_expiry = expires
                if at == end:
                    break
        delivery, data, settled = batch[at]
        at += 1
        try:
            if not data.startswith(prefix):
                data = learn_prefix(producer, data)
                beginning = producer.message_prefix
                prefix, count_at = beginning.prefix, beginning.count_at
            flags = beginning.flags
            absolute = 0
            if data[count_at] > NO_TIMES:
                absolute, flags = beginning.look(data)
            if flags:
                ordered = True
        except (DecodeError, IndexError) as error:
            refuse_unreadable(producer, delivery, settled, unreadable(error))
            if producer.broken is not None:
                break
            continue
        expires = now + beginning.ttl_us if beginning.ttl_us else 0
        if absolute:
            expires = expires_at(now, beginning.ttl_us // 1000, absolute)
        size += len(data)
        if beginning.delays and (available := available_at(now, requested_times_of(data, beginning.head))) > now:
            route_set = logged_set if beginning.durable else kept_set
            flags |= SCHEDULED
            if route_set:
                any_logged = True
                numbered = log.put(route_set, data, now, SCHEDULED)
                flags |= LOGGED
            else:
                numbered = log.next_message()
            delayed.append((numbered, data, available, expires, flags))
            (presettled if settled else deliveries).append(delivery)
            continue
        if expires and (not first_expiry or expires < first_expiry):
            first_expiry = expires
        if logged_set and (beginning.durable or kept_set):
            any_logged = True
            entries.append(
                (log.put(logged_set if beginning.durable else kept_set, data, now), data, now, expires, LOGGED | flags)
            )
        elif logged_set:
            entries.append((log.next_message(), data, now, expires, flags))
        else:
            entries.append((number, data, now, expires, flags))
            number += 1
        if settled:
            presettled.append(delivery)
        else:
            deliveries.append(delivery)
    destination = producer.destination
    if isinstance(destination, ExchangeTarget):
        destination.exchange.received_bytes += size
    taken.size += size
    taken.expire(first_expiry)
    taken.is_ordered = taken.is_ordered or ordered
    taken.answer(producer, batch, deliveries, presettled, is_logged=any_logged)


def learn_prefix(producer: Producer, data: bytes) -> bytes:
    """See how a message begins (`producer.message_prefix`); return it as it is forwarded. Raises DecodeError."""
    known = producer.known_prefixes
    head = message_head.read_head(data)
    beginning = known.get(head)
    if beginning is not None and data.startswith(beginning.prefix):
        producer.message_prefix = beginning
        return data
    data = dead_letter_origin.without_origin(data)
    head = message_head.read_head(data)
    beginning = producer.message_prefix = MessagePrefix(data, head)
    if len(known) >= KNOWN_BEGINNINGS:
        known.clear()
    known[head] = beginning
    return message_head.forwarded(data, head)
