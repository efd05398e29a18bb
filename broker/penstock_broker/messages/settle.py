"""What becomes of deliveries that consumers settle, or whose link is lost.

Written for speed: `accepted` runs for every message.

- accepted: the message is gone.
- released, or settled without an outcome: the message goes back, and nothing is counted.
- modified: it goes back. delivery-failed counts an attempt, undeliverable-here keeps it from this link, annotations are
  merged into the message, also for after a restart. JMS clients end so what expired in their buffer. It leaves now, so
  it need not be kept from the link, and the queue stays plain.
- rejected, or failed too often: `dead_letters` sends it on.
- a lost link: all its deliveries go back, marked as possibly seen. Only the oldest counts an attempt, so that restarts
  of a client with a large prefetch do not turn healthy messages into dead letters. A link that its client, or this
  broker, closes in order counts none.

Source: AMQP 1.0 part 3, 3.4; docs/decisions/032-delivery-attempts.md.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import assert_never

from penstock_amqp.endpoint.events import DATA, NUMBER, Entry, Held, Outcome, Settled
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages import message_head
from penstock_amqp.types.values import Symbol, Value
from penstock_broker.log import EndReason, bytes_in_log
from penstock_broker.messages import dead_letters, due_times
from penstock_broker.messages.dead_letter_origin import client_annotations
from penstock_broker.messages.due_times import deadline
from penstock_broker.messages.queue_limits import remove
from penstock_broker.messages.runs import accepted_runs
from penstock_broker.queue.flags import outlives
from penstock_broker.queue.queue import ANNOTATED, LARGE_BYTES, LOGGED, Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Consumer

__all__ = ["accepted", "lost", "settled"]

logger = logging.getLogger(__name__)


def accepted(broker: Broker, consumer: Consumer, batch: list[Held]) -> None:
    """A consumer accepted and settled these."""
    now = broker.clock.now_us
    queue = consumer.queue
    count = len(batch)
    if queue.changes is not None:
        queue.note_change()
    queue.in_flight -= count
    totals = queue.totals
    totals.acked += count
    size, logged, waits, holds = accepted_runs(batch, LOGGED)
    for since, waited in waits:
        totals.sojourn.add(now - since, waited)
    for sent_at, held in holds:
        totals.hold.add(now - sent_at, held)
    queue.depth_bytes -= size
    if queue.staged_bytes and size > LARGE_BYTES:
        queue.staged_bytes -= bytes_in_log(entry[DATA] for _, entry, _ in batch)
    if queue.audit is not None:
        queue.audit.accepted(batch)
    known = queue.redelivery
    if known.attempts or known.seen or known.excluded or queue.backlog.groups is not None:
        for _, entry, _ in batch:
            queue.forget(entry[NUMBER])
    if logged:
        broker.log.ack_many(queue.incarnation, logged)


def settled(broker: Broker, consumer: Consumer, event: Settled) -> None:
    """A consumer ended one delivery in another way."""
    queue = consumer.queue
    held, entry = event.held, event.held[1]
    number = entry[NUMBER]
    queue.note_change()
    queue.totals.hold.add(broker.clock.now_us - event.held[2], 1)
    match event.outcome:
        case Outcome.REJECTED:
            queue.in_flight -= 1
            dead_letters.rejected(broker, queue, entry, event.error)
            return
        case Outcome.MODIFIED:
            if event.failed and dead_letters.count_failure(broker, queue, entry):
                return
            if event.annotations:
                held = _annotated(broker, queue, held, event.annotations)
            if event.undeliverable_here and not _has_expired(broker, queue, entry):
                queue.exclude(consumer, number)
        case Outcome.DAMAGED:
            queue.in_flight -= 1
            queue.totals.dropped += 1
            remove(broker, queue, entry, EndReason.DROPPED)
            logger.error("Message %d of queue %r is lost: the log is damaged where it lies", number, queue.name)
            return
        case Outcome.RELEASED | Outcome.NONE | Outcome.UNKNOWN:
            pass
        case _:
            assert_never(event.outcome)
    queue.put_back((held,))
    expires = deadline(queue, entry)
    if expires:
        due_times.note_expiry(broker, queue, expires)
    broker.work.schedule(queue)


def _has_expired(broker: Broker, queue: Queue, entry: Entry) -> bool:
    return 0 < deadline(queue, entry) <= broker.clock.now_us


def lost(broker: Broker, queue: Queue, held: Sequence[Held], *, counts: bool) -> None:
    """A link went without settling these, oldest first; `counts`: it was lost, as when its client has died."""
    if not held:
        return
    oldest = min(held, key=lambda delivery: delivery[2])
    if counts and dead_letters.count_failure(broker, queue, oldest[1]):
        held = [delivery for delivery in held if delivery is not oldest]
    queue.redelivery.seen.note_all(delivery[1][NUMBER] for delivery in held)
    queue.put_back(held)
    for _, entry, _ in held:
        expires = deadline(queue, entry)
        if expires:
            due_times.note_expiry(broker, queue, expires)
    broker.work.schedule(queue)


def _annotated(broker: Broker, queue: Queue, held: Held, annotations: dict[Symbol, Value]) -> Held:
    """The delivery with a message that says more, in this queue; the log keeps that beside the message."""
    link, (number, data, available, expires, flags), sent = held
    head = message_head.read_head(data)
    try:
        told = message_head.with_annotations(data, head, client_annotations(annotations))
    except DecodeError:
        return held  # there are annotations that can't be read: they stay what they are
    queue.depth_bytes += len(told) - len(data)
    if outlives(flags):
        _keep(broker, queue, number, message_head.annotations_section(told, head))
    return link, (number, told, available, expires, flags | ANNOTATED), sent


def _keep(broker: Broker, queue: Queue, number: int, section: bytes) -> None:
    """Have the log keep the annotations; they may not use the room that is reserved for acks."""
    if broker.log.accepts_publishing() and broker.log.remark(queue.incarnation, number, section):
        return
    if broker.warnings.may_warn(f"annotations {queue.name}"):
        logger.warning(
            "Annotations that consumers added to a message of %r end at a restart: too long, or the volume is full",
            queue.name,
        )
