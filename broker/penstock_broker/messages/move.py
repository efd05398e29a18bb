"""Takes a waiting message out of its queue for an administrator: drops it, moves it, or sends a dead letter back.

Like a dead letter it is put there first and acknowledged here second, in one block of the log, so a crash duplicates it
at worst. A moved message keeps its expiry and its delivery time; its failed deliveries are forgotten. Must not know
requests. Source: docs/reference/management.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock_amqp.endpoint.events import AVAILABLE, DATA, FLAGS, AmqpError, Entry
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages import fields, message_head
from penstock_amqp.messages.times import DELAYS
from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Symbol, Timestamp, Value
from penstock_broker.log import EndReason
from penstock_broker.messages.dead_letter_origin import ORIGIN
from penstock_broker.messages.dead_letters import ANNOTATIONS
from penstock_broker.messages.due_times import deadline
from penstock_broker.messages.internal_publish import publish_internally, put_into
from penstock_broker.messages.queue_limits import remove
from penstock_broker.queue.delayed import is_early
from penstock_broker.queue.flags import outlives
from penstock_broker.queue.queue import Queue
from penstock_broker.queue.run import Run
from penstock_broker.state.broker import Broker
from penstock_broker.state.routes import ExchangeTarget, QueueTarget
from penstock_core.identity import parse_queue_name

__all__ = ["move", "origin_of", "purge", "purge_unread", "redrive"]

_ORIGIN: Final = {encode(Symbol(ORIGIN)): ORIGIN}


def purge(broker: Broker, queue: Queue, entry: Entry) -> None:
    """Drop a message that was taken out of the queue."""
    queue.totals.purged += 1
    remove(broker, queue, entry, EndReason.PURGED)


def purge_unread(broker: Broker, queue: Queue) -> tuple[int, Iterator[None]]:
    """Drop what waits and is in no memory, without reading it: how many messages that is.

    The log is told of each message by a step of the iterator; what is left of them when the broker ends comes back.
    """
    count, size = queue.in_log_only  # what single runs say of their bytes is estimated
    runs = queue.take_unread()
    queue.totals.purged += count
    queue.depth_bytes -= size
    return count, _forgotten(broker, queue, runs)


def _forgotten(broker: Broker, queue: Queue, runs: list[Run]) -> Iterator[None]:
    while runs:
        for number in runs.pop(0).numbers():
            if not broker.topology.is_current(queue):
                return
            queue.forget(number)
            broker.log.ack(queue.incarnation, number, EndReason.PURGED)
            yield


def move(broker: Broker, queue: Queue, entry: Entry, target: ExchangeTarget | QueueTarget) -> AmqpError | None:
    """Put a message that was taken out of the queue elsewhere; or say why that does not take it: then it is the
    caller's to put back.
    """
    refused = publish_internally(
        broker, target, _renewed(broker, entry, deadline(queue, entry), ()), keep=outlives(entry[FLAGS])
    )
    if refused is None:
        _gone(broker, queue, entry)
    return refused


def redrive(broker: Broker, queue: Queue, entry: Entry, origin: Queue) -> AmqpError | None:
    """Put a dead letter back into the queue that it comes from, without the annotations of a dead letter."""
    refused = put_into(
        broker, origin, _renewed(broker, entry, deadline(queue, entry), ANNOTATIONS), keep=outlives(entry[FLAGS])
    )
    if refused is None:
        _gone(broker, queue, entry)
    return refused


def origin_of(broker: Broker, entry: Entry) -> Queue | str:
    """The queue that a dead letter comes from, or why it can't go back.

    Only the broker writes that annotation (`dead_letter_origin`).
    """
    data = entry[DATA]
    try:
        found = fields.picked_annotations(data, message_head.read_head(data).start, _ORIGIN).get(ORIGIN)
    except DecodeError:
        found = None
    if not isinstance(found, str):
        return f"it has no {ORIGIN}: it was not dead-lettered here"
    identity = parse_queue_name(found)
    if identity is not None:
        subscription = broker.topology.subscriptions.get(identity)
        return subscription.queue if subscription is not None else f"the {identity} is gone"
    node = broker.topology.queues.get(found)
    return node.queue if node is not None else f"the queue {found!r} is gone"


def _gone(broker: Broker, queue: Queue, entry: Entry) -> None:
    queue.totals.moved += 1
    remove(broker, queue, entry, EndReason.PURGED, is_moved=True)


def _renewed(broker: Broker, entry: Entry, expires_us: int, without: tuple[str, ...]) -> bytes:
    """The message as if it came now: with the time it has left, to be delivered when it was to be."""
    data = entry[DATA]
    head = message_head.read_head(data)
    left_ms = max((expires_us - broker.clock.now_us) // 1000, 1) if expires_us else None
    data = message_head.with_header(data, head, ttl=left_ms, delivery_count=0)
    waits = is_early(entry, broker.clock.now_us)
    delay: dict[Symbol, Value] = {Symbol("x-opt-delivery-time"): Timestamp(entry[AVAILABLE] // 1000)} if waits else {}
    try:
        return message_head.with_annotations(
            data, message_head.read_head(data), delay, without=frozenset((*DELAYS, *without))
        )
    except DecodeError:
        return data  # annotations that can't be read stay as they are
