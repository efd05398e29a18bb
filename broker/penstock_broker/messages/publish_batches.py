"""Numbers, logs, queues and accepts batches of messages that take the same route, each of one producer.

Written for speed: on the plain path a message costs one `startswith` (does it begin like the one before?), a look at
some bytes (no group, no expiry) and one tuple. Batches of several producers go into the queues together, which takes a
fraction of the time where each is a message or two. Must not route: that is `publish`.

Source: docs/decisions/037-answer-after-sync.md and 118-small-batches-together.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import penstock_native
from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.events import Arrival, Entry
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages import message_head
from penstock_broker.access.connection import Connection
from penstock_broker.messages import dead_letter_origin, store
from penstock_broker.messages.due_times import wishes_of
from penstock_broker.messages.refuse import refuse, refuse_unreadable, top_up, unreadable
from penstock_broker.queue.message_prefix import NO_TIMES, MessagePrefix
from penstock_broker.queue.queue import LOGGED, SCHEDULED
from penstock_broker.state.broker import Broker
from penstock_broker.state.fan_outs import FanOut
from penstock_broker.state.links import Producer
from penstock_broker.state.routes import ExchangeTarget, Route
from penstock_core.message_times import available_at, expires_at

__all__ = ["Batch", "learn_prefix", "publish_batches"]

_take_plain: Any = penstock_native.messages and penstock_native.messages.take_plain

KNOWN_BEGINNINGS: Final = 16
"""Prefixes that are remembered per producer: one that uses several priorities has several."""

Batch: TypeAlias = tuple[Producer, list[Arrival]]
"""Messages of one producer, in their order."""

_Taken: TypeAlias = tuple[int, int, bool, bool, list[Ptr], list[Ptr]]
"""What became of a batch: its bytes; when the first of its messages expires (0: none does); whether some have a
priority or a group; whether some are logged; the deliveries to be accepted, and those that are settled."""


def publish_batches(
    broker: Broker,
    route: Route,
    sources: list[Batch],
    failed: Callable[[Connection], None] | None,
) -> list[bool]:
    """Every message goes to every queue of `route`, which is not asked any more. Returns for each batch whether all of
    it waits for a sync, so that there is nothing to send to its producer now.

    `failed` is called, while the exception is handled, for a connection whose batch could not be dealt with; None: the
    exception goes on.
    """
    if _refuse_all(broker, route, sources):
        return [False] * len(sources)
    entries: list[Entry] = []
    delayed: list[Entry] = []
    taken: list[_Taken | None] = []
    lost: list[tuple[Connection, Exception]] = []
    size = first_expiry = 0
    ordered = False
    for producer, batch in sources:
        now_wait = len(entries), len(delayed)
        try:
            came = _take(broker, producer, route, batch, entries, delayed)
        except Exception as error:
            if failed is None:
                raise
            del entries[now_wait[0] :], delayed[now_wait[1] :]
            taken.append(None)
            lost.append((producer.connection, error))
            continue
        taken.append(came)
        size += came[0]
        if came[1] and (not first_expiry or came[1] < first_expiry):
            first_expiry = came[1]
        ordered = ordered or came[2]
    broker.memory.came += size
    store.put_numbered(broker, route, entries, delayed, size, first_expiry, ordered=ordered)
    waits: list[bool] = []
    for (producer, batch), counted in zip(sources, taken, strict=True):
        if counted is None:
            waits.append(True)
            continue
        came_bytes, _, _, is_logged, deliveries, presettled = counted
        if producer.hold.behind:
            producer.hold.note(producer, route.queues)
        destination = producer.destination
        if isinstance(destination, ExchangeTarget):
            destination.exchange.received_bytes += came_bytes
        if presettled:
            producer.connection.endpoint.settle(presettled)
            producer.owed_credit += len(presettled)
        _accept(broker, producer, deliveries, is_logged)
        waits.append(is_logged and len(deliveries) == len(batch))
    for connection, raised in lost:  # now that the messages of the others are in their queues: this may bring more
        try:
            raise raised
        except Exception:
            assert failed is not None
            failed(connection)
    return waits


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
    entries: list[Entry],
    delayed: list[Entry],
) -> _Taken:
    """Number a batch, log what is to last, and append it to `entries` and `delayed`."""
    now, log = broker.clock.now_us, broker.log
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
            taken, came = _take_plain(
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
            if taken:
                at += taken
                size += came
                if payloads:
                    any_logged = True
                    log.put_many(route_set, payloads, now)
                elif logged_set:
                    log.next_messages(taken)
                else:
                    number += taken
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
        if beginning.delays and (available := available_at(now, wishes_of(data, beginning.head))) > now:
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
    return size, first_expiry, ordered, any_logged, deliveries, presettled


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


def _accept(broker: Broker, producer: Producer, deliveries: list[Ptr], logged: bool) -> None:
    fan_outs = broker.work.fan_outs
    fan_out = fan_outs[-1] if fan_outs else None
    if logged:
        producer.stores = True
        broker.sync.after_sync(producer.connection, partial(_accept_synced, broker, producer, deliveries, fan_out))
    elif fan_out is not None:
        _accept_synced(broker, producer, deliveries, fan_out)
    else:
        _accept_now(producer, deliveries)


def _accept_synced(broker: Broker, producer: Producer, deliveries: list[Ptr], fan_out: FanOut | None) -> None:
    """Accept what the log has, once it is in all of its queues, too."""
    if fan_out is not None and not fan_out.is_over:
        fan_out.after.append(lambda: _accept_synced(broker, producer, deliveries, None))
    elif producer.link.is_open:
        _accept_now(producer, deliveries)
        broker.work.touch(producer.connection)


def _accept_now(producer: Producer, deliveries: list[Ptr]) -> None:
    producer.connection.endpoint.accept(deliveries)
    producer.owed_credit = owed = producer.owed_credit + len(deliveries)
    if owed * 2 >= producer.window:
        top_up(producer)
