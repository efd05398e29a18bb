"""Notes when something is due in a queue: a message to become available, or to expire. `expiring` then does it.

One timer per queue that has such messages, for the next thing that is due. The clock may jump: deadlines are times of
day, timers are not, so each timer looks again after `LOOK_MS`.
Source: section 4 of the design ("One timer wheel for heartbeats, TTL and delays").
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from penstock_amqp.endpoint.events import Entry
from penstock_broker.messages.deadlines import deadline
from penstock_broker.queues.queue import AVAILABLE, Queue
from penstock_broker.state.broker import Broker

__all__ = ["LOOK_MS", "expect", "keep", "postpone", "review", "wake"]

LOOK_MS: Final = 5000
"""The clock is looked at that often while something is to be waited for."""


def expect(broker: Broker, queue: Queue, expires_us: int) -> None:
    """A message that expires then was put into the queue."""
    queue.has_expiry = True
    if not queue.next_expiry or expires_us < queue.next_expiry:
        queue.next_expiry = expires_us
        wake(broker, queue, max(expires_us, queue.next_pass))


def review(broker: Broker, queue: Queue) -> None:
    """The queue's policies may have changed: have a look at what waits, if that lets it expire at other times."""
    if queue.is_retimed:
        queue.has_expiry = True
        queue.next_expiry, queue.next_pass = broker.now_us, 0
        wake(broker, queue, broker.now_us)


def keep(broker: Broker, queue: Queue, entry: Entry) -> None:
    """Put a message that was taken out back in its place."""
    queue.keep(entry, broker.now_us)
    if entry[AVAILABLE] > broker.now_us:
        wake(broker, queue, queue.scheduled.next_due())
        return
    expires = deadline(queue, entry)
    if expires:
        expect(broker, queue, expires)
    if queue.consumers:
        broker.schedule(queue)


def postpone(broker: Broker, queue: Queue, entries: Iterable[Entry]) -> None:
    """Keep messages back, at least one, until each is available, or has expired before."""
    for entry in entries:
        queue.hold_back(entry)
    wake(broker, queue, queue.scheduled.next_due())


def wake(broker: Broker, queue: Queue, at_us: int) -> None:
    """Look at the queue then, or before."""
    left_ms = min(max(-(-(at_us - broker.now_us) // 1000), 0), LOOK_MS)
    at_ms = broker.now_ms + left_ms
    if queue.wakes_ms is not None and queue.wakes_ms <= at_ms:
        return
    queue.wakes_ms = at_ms
    broker.timers.at(at_ms, partial(_woken, broker, queue, at_ms))


def _woken(broker: Broker, queue: Queue, at_ms: int) -> None:
    if queue.wakes_ms == at_ms:  # else an earlier timer has taken its place
        queue.wakes_ms = None
        broker.keep_time(queue)
