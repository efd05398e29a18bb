"""Sends messages from queues to the links that have credit: fair among the links of one queue, bounded per visit.

Written for speed: `serve` runs for every visit of a queue and moves up to 64 messages. A queue is in the list
`PendingWork.ready` while it may have something to send; a visit that finds nothing takes it out, and new messages,
credit, a returned delivery or an unblocked socket put it back. The links of a queue take turns; each gets at most an
even share of what waits, so that one link with much credit does not empty the queue alone.

A message that is longer than a link takes (`max-message-size` of its attach) is not sent there and not lost: it stays
in its place for a consumer that takes it, and no delivery counts. Long messages go out in pieces, a bounded part of
each per turn, so that the other links of their connection go on. A connection is asked again after each flush: its
socket takes more, or it comes back when it does; a peer whose session window is shut does when it says something.

Source: docs/decisions/023-bounded-turns.md; AMQP 1.0 part 2, 2.7.3 (max-message-size).
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import Final

from penstock_amqp.endpoint.events import AVAILABLE, DATA, FLAGS, NUMBER, Entry, Event
from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_amqp.messages.message_head import read_head
from penstock_broker.access.connection import Connection
from penstock_broker.log import EndReason
from penstock_broker.messages import acquisition_limits
from penstock_broker.messages.dead_letters import expired
from penstock_broker.messages.due_times import deadline
from penstock_broker.messages.queue_limits import remove
from penstock_broker.messages.runs import sent_runs
from penstock_broker.messages.sent_header import as_sent
from penstock_broker.queue.backlog import EXAMINED_PER_VISIT
from penstock_broker.queue.consumer import ReceivingLink
from penstock_broker.queue.queue import SCHEDULED, Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Browser, Consumer

__all__ = [
    "HELD_BACK_BYTES",
    "TURN_BYTES",
    "VISIT_MESSAGES",
    "Visit",
    "advance_streams",
    "entries_that_fit",
    "header_room",
    "link_unblocked",
    "serve",
]

logger = logging.getLogger(__name__)

HEADER_BYTES: Final = 24
"""What a delivery-count and a time to live add to a message, at most."""


def header_room(queue: Queue) -> int:
    """By how many bytes at most a message of the queue becomes longer when it is sent."""
    return HEADER_BYTES if queue.expiry.may_expire or queue.redelivery.seen or queue.redelivery.attempts else 0


def entries_that_fit(broker: Broker, queue: Queue, consumer: ReceivingLink, entries: list[Entry]) -> list[Entry]:
    """Those of `entries`, taken for a consumer whose link has a limit, that it takes. The others are put back, and what
    is longer is kept from the consumer from then on.
    """
    link = consumer.link
    header = header_room(queue)
    too_long = [entry for entry in entries if len(entry[DATA]) + header > link.max_bytes]
    if not too_long:
        return entries
    queue.backlog.limit(consumer, link.max_bytes)
    for entry in too_long:
        if len(entry[DATA]) <= link.max_bytes:
            queue.exclude(consumer, entry[NUMBER])
        queue.backlog.put_back(entry)
    broker.work.schedule(queue)  # what lies behind may be for this consumer
    if broker.warnings.may_warn(f"too long {queue.name}"):
        logger.warning(
            "Queue %r holds a message of %d bytes, which waits for another consumer: link %r of %s takes at most %d "
            "(max-message-size of its attach)",
            queue.name,
            len(too_long[0][DATA]),
            link.name,
            consumer.connection.transport.peer,
            link.max_bytes,
        )
    put_back = {entry[NUMBER] for entry in too_long}
    return [entry for entry in entries if entry[NUMBER] not in put_back]


VISIT_MESSAGES: Final = 64
"""Messages of one queue before it is the next one's turn."""

TURN_BYTES: Final = 131_072
"""Output of one connection before its socket gets it."""

HELD_BACK_BYTES: Final = 262_144
"""What the engine may hold for a peer whose session window is shut."""

_BURST: Final = 16
"""Messages for one of several links before it is the next one's turn."""


class Visit(Enum):
    """How a visit of a queue ended."""

    DONE = auto()
    """Nothing more can be sent until something happens."""
    FULL = auto()
    """`VISIT_MESSAGES` were sent, and more wait."""
    OUTPUT_FULL = auto()
    """Connections that would take more have got what they may in a turn."""
    SEARCHING = auto()
    """Not all that waits was looked at for those who would take some of it."""


_DONE: Final = Visit.DONE
"""An attribute of an enum's class takes long to find."""


def serve(broker: Broker, queue: Queue) -> Visit:
    """Send up to `VISIT_MESSAGES`."""
    links = queue.links
    if len(links.consumers) != 1 or links.tiers is not None or not queue.backlog.is_plain:
        return _serve_several(broker, queue)
    consumer = links.consumers[0]
    link, connection = consumer.link, consumer.connection
    credit = link.credit
    if credit <= 0 or not (queue.ready or queue.returned.blocks) or not consumer.is_active or connection.is_blocked:
        return _DONE
    if connection.turn_bytes > TURN_BYTES:
        return Visit.OUTPUT_FULL
    try:
        if connection.endpoint.is_congested(link, HELD_BACK_BYTES):
            connection.is_congested = True
            return _DONE
        sent = _send(broker, queue, consumer, credit if credit < VISIT_MESSAGES else VISIT_MESSAGES)
    except Exception:
        broker.fail_connection(connection)
        return Visit.SEARCHING  # the consumers are others now
    return Visit.FULL if sent >= VISIT_MESSAGES and queue.waiting > 0 else _DONE


def _serve_several(broker: Broker, queue: Queue) -> Visit:
    """The same where consumers take turns, or not all that waits is for them in order."""
    backlog, links = queue.backlog, queue.links
    is_plain = backlog.is_plain
    left = VISIT_MESSAGES
    over_budget = False
    if not is_plain:
        backlog.examination.budget = EXAMINED_PER_VISIT
    with_credit = links.find_with_credit() if links.is_many else None
    for consumers in (links.consumers,) if with_credit is not None else links.tiers or (links.consumers,):
        idle = 0
        count = len(consumers) if with_credit is None else len(with_credit)
        while left > 0 and idle < count and (queue.ready or queue.returned.blocks or (not is_plain and backlog)):
            if with_credit is None:
                if links.turn >= count:
                    links.turn = 0
                consumer = consumers[links.turn]
                links.turn += 1
            elif with_credit and links.with_credit is with_credit:
                consumer = next(iter(with_credit))
                with_credit.move_to_end(consumer)
            else:
                break
            try:
                link = consumer.link
                connection = consumer.connection
                if link.credit <= 0 or not consumer.is_active:
                    if with_credit is None:
                        idle += 1
                    else:
                        with_credit.pop(consumer, None)
                        count -= 1
                    continue
                if connection.is_blocked:
                    idle += 1
                    continue
                if connection.turn_bytes > TURN_BYTES:
                    idle += 1
                    over_budget = True
                    continue
                if connection.endpoint.is_congested(link, HELD_BACK_BYTES):
                    idle += 1
                    connection.is_congested = True
                    continue
                share = left if count == 1 else min(left, _fair_share(queue, count))
                sent = _send(broker, queue, consumer, min(share, link.credit))
            except Exception:
                broker.fail_connection(consumer.connection)
                return Visit.SEARCHING  # the consumers are others now
            left -= sent
            idle = 0 if sent else idle + 1
            if not is_plain and backlog.examination.budget <= 0:
                return Visit.SEARCHING  # the next visit begins with the next consumer
        if over_budget or left <= 0:
            break  # those who come first get more in the next turn
    if not is_plain:
        backlog.calm_down()
    if left <= 0 and queue.waiting > 0:
        return Visit.FULL
    return Visit.OUTPUT_FULL if over_budget else _DONE


def _fair_share(queue: Queue, count: int) -> int:
    """How much of what waits one of `count` consumers gets before it is the next one's turn."""
    if queue.backlog.groups is not None:
        return 1  # so that groups spread over the consumers
    return min(_BURST, 1 + queue.waiting // count)


def _send(broker: Broker, queue: Queue, consumer: ReceivingLink, count: int) -> int:
    """Send up to `count` messages to one consumer; how many were, or what was done instead."""
    now = broker.clock.now_us
    link, redelivery = consumer.link, queue.redelivery
    if (
        link.max_bytes
        or queue.returned.blocks
        or queue.expiry.may_expire
        or redelivery.seen
        or redelivery.attempts
        or not queue.backlog.is_plain
        or queue.audit is not None
        or link.acquisition is not None
    ):
        return _send_in_order(broker, queue, consumer, count)
    ready, totals, connection = queue.ready, queue.totals, consumer.connection
    if count >= len(ready):
        entries = list(ready)
        ready.clear()
    else:
        take = ready.popleft
        entries = [take() for _ in range(count)]
    try:
        sent = len(entries)
        connection.endpoint.send(link, entries, now)
        size, waits = sent_runs(entries)
        for since, run in waits:
            totals.wait.add(now - since, run)
        link.credit -= sent
        link.transfers += sent
        connection.turn_bytes += size
        totals.delivered += sent
        if link.presettled:
            _sent_settled(broker, queue, entries)
        else:
            queue.in_flight += sent
        last = entries[-1][NUMBER]
        if last > queue.delivered_up_to:
            queue.delivered_up_to = last
            if queue.is_logged:
                broker.work.delivered.add(queue)
    except Exception:
        broker.interrupted_work.take(queue, entries)
        raise
    if not connection.is_dirty:
        connection.is_dirty = True
        broker.work.dirty.append(connection)
    return sent


def _send_in_order(broker: Broker, queue: Queue, consumer: ReceivingLink, count: int) -> int:
    """The same where priorities, groups, selectors or a transaction have a say, or something is known of single
    messages. Those that have expired count for the visit: a million of them may lie before the first that is sent.
    """
    sent = dropped = 0
    if consumer.link.acquisition is not None:
        count = min(count, acquisition_limits.room(broker, consumer))
    while sent < count and (entries := queue.backlog.take_many(consumer, count - sent)):
        try:
            if consumer.link.max_bytes:
                entries = entries_that_fit(broker, queue, consumer, entries)
            sent += _send_taken(broker, queue, consumer, entries)
        except Exception:
            broker.interrupted_work.take(queue, entries)
            raise
        if not entries and (dropped := dropped + count - sent) >= VISIT_MESSAGES:
            break  # all had expired, or are too long
    if sent and not consumer.connection.is_dirty:
        consumer.connection.is_dirty = True
        broker.work.dirty.append(consumer.connection)
    if queue.expiry.may_expire and not queue.in_flight and not queue.waiting:
        queue.expiry.may_expire = False
    return sent + dropped


def _send_taken(broker: Broker, queue: Queue, consumer: ReceivingLink, entries: list[Entry]) -> int:
    """Send messages that were taken out, except expired ones; the header is rewritten where that is needed."""
    now = broker.clock.now_us
    link, connection = consumer.link, consumer.connection
    endpoint = connection.endpoint if link.acquisition is None else connection.endpoint.acquiring
    upto, has_expiry, some_returned = queue.delivered_up_to, queue.expiry.may_expire, queue.totals.returned > 0
    is_counted = bool(queue.redelivery.seen or queue.redelivery.attempts)
    gone: list[Entry] = []
    as_they_are: list[Entry] = []
    size = since = run = redelivered = 0
    highest = upto
    for entry in entries:
        number, data = entry[NUMBER], entry[DATA]
        expires = deadline(queue, entry) if has_expiry else 0
        if expires and expires <= now:
            expired(broker, queue, entry)
            gone.append(entry)
            continue
        delivery_count = queue.redelivery.delivery_count(number) if is_counted else 0
        is_first = not some_returned or number > upto  # false if a link may have had it before (3.2.1)
        if delivery_count or expires or (not is_first and read_head(data).first_acquirer):
            if delivery_count:
                queue.redelivery.repeated.sent(number)
            if as_they_are:
                endpoint.send(link, as_they_are, now)
                as_they_are = []
            data = as_sent(data, delivery_count, expires, now, is_first=is_first)
            endpoint.send_as(link, entry, data, now)
        else:
            as_they_are.append(entry)
        size += len(data)
        if delivery_count or (number <= upto and not entry[FLAGS] & SCHEDULED):
            redelivered += 1
        elif entry[AVAILABLE] == since:
            run += 1
        else:
            if run:
                queue.totals.wait.add(now - since, run)
            since, run = entry[AVAILABLE], 1
        if number > highest:
            highest = number
    if as_they_are:
        endpoint.send(link, as_they_are, now)
    if run:
        queue.totals.wait.add(now - since, run)
    sent = len(entries) - len(gone)
    queue.totals.redelivered += redelivered
    link.credit -= sent
    link.transfers += sent
    connection.turn_bytes += size
    queue.totals.delivered += sent
    if gone:
        entries[:] = [entry for entry in entries if entry not in gone]
    if queue.audit is not None:
        queue.audit.delivered(entries)
    if link.acquisition is not None:
        acquisition_limits.acquired(broker, consumer, entries)
        queue.in_flight += sent
    elif link.presettled:
        _sent_settled(broker, queue, entries)
    else:
        queue.in_flight += sent
    if highest > upto:
        queue.delivered_up_to = highest
        if queue.is_logged:
            broker.work.delivered.add(queue)
    return sent


def _sent_settled(broker: Broker, queue: Queue, entries: list[Entry]) -> None:
    """Deliveries that nothing is heard of again count as accepted."""
    now = broker.clock.now_us
    ahead = iter(entries)
    for entry in ahead:
        try:
            queue.totals.acked += 1
            queue.totals.sojourn.add(now - entry[AVAILABLE], 1)
            remove(broker, queue, entry, EndReason.ACCEPTED)
        except Exception:
            entries[:] = [entry, *ahead]  # those before have left
            raise


def link_unblocked(broker: Broker, link: InLink | OutLink) -> None:
    """The link's socket takes bytes again."""
    context = link.context
    if isinstance(context, Consumer):
        broker.work.schedule_for(context.queue, context.connection)
        if context.link.drain:
            broker.work.draining.append(context)
    elif isinstance(context, Browser):
        broker.work.browsing.append(context)
    elif isinstance(link, OutLink) and link.drain:
        broker.management.finish_drain(link)


def advance_streams(broker: Broker, connection: Connection) -> None:
    """Hand the connection's streams their part of this turn. Raises OSError if a message can't be read."""
    if connection.is_blocked:
        return
    streams = connection.endpoint.streams
    drains = [link for link in streams if link.drain]
    for link in streams:
        if isinstance(link.context, Consumer):
            link.context.queue.note_change()  # its credit goes back with the end of a stream that drains
    events: list[Event] = []
    if connection.endpoint.advance_streams(TURN_BYTES, HELD_BACK_BYTES, events):
        broker.work.touch(connection)
    for link in drains:
        if link.drain and link not in streams:
            link_unblocked(broker, link)  # the end of the message waits for the session's window, and so does the drain
    if events:
        broker.serve_events(connection, events)
