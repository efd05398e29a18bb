"""When a message of a queue expires. It stands in its entry, bounded by the `maxTtlMs` that the queue had then.

Once that has changed (`Queue.is_retimed`) the message itself is asked again, so that the new one holds for what waits,
and for what comes back. Entries are shared by queues, and a queue may hold a million, so none is rewritten. Source:
`penstock_core.lifespan`.
"""

from __future__ import annotations

from penstock_amqp.endpoint.events import Entry
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages import message_head, times
from penstock_broker.queues.queue import AVAILABLE, DATA, EXPIRES, FLAGS, SCHEDULED, Queue
from penstock_core.lifespan import NO_WISHES, Wishes, bounded, expires_at

__all__ = ["deadline", "wishes_of"]


def deadline(queue: Queue, entry: Entry) -> int:
    """When the message expires in this queue, microseconds since the epoch; 0: never."""
    return _asked(queue, entry) if queue.is_retimed else entry[EXPIRES]


def _asked(queue: Queue, entry: Entry) -> int:
    data = entry[DATA]
    head = message_head.read_head(data)
    wished = wishes_of(data, head)
    arrived = entry[AVAILABLE]
    if entry[FLAGS] & SCHEDULED:
        if wished.delivery_delay_ms is None or wished.delivery_time_ms is not None:
            return entry[EXPIRES]  # when it came stands in the log only: the next start asks that
        arrived -= wished.delivery_delay_ms * 1000
    return bounded(expires_at(arrived, head.ttl, wished.absolute_expiry_ms), arrived, queue.max_ttl_us)


def wishes_of(data: bytes, head: message_head.Head) -> Wishes:
    """What the message says of its times; sections that can't be read say nothing."""
    try:
        return times.wishes(data, head)
    except DecodeError:
        return NO_WISHES
