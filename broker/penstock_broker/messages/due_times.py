"""When something is due in a queue: a delayed message becomes available, or a message expires. `expiry` then acts.

When a message expires stands in its entry, bounded by the queue's `maxTtlMs` of the time when it came. Once that
setting has changed (`ExpiryState.is_retimed`), the time is computed from the message itself, so that the new setting
holds for what waits and for what comes back. Entries are shared by queues, and a queue may hold a million, so none is
rewritten.

A queue with such messages has one timer, for the next thing that is due. The clock may jump: due times are times of
day, timers are not, so each timer looks again after `LOOK_MS`. Source: docs/decisions/027-timers.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from penstock_amqp.endpoint.events import AVAILABLE, DATA, EXPIRES, FLAGS, Entry
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages import message_head, times
from penstock_broker.queue.delayed import is_early
from penstock_broker.queue.queue import SCHEDULED, Queue
from penstock_broker.state.broker import Broker
from penstock_core.message_times import NO_REQUESTED_TIMES, RequestedTimes, bounded, delay_us, expires_at

__all__ = [
    "LOOK_MS",
    "deadline",
    "delay",
    "expiry_of_ends",
    "note_expiry",
    "put_in_place",
    "recheck_expiry",
    "requested_times_of",
    "set_timer",
]


def deadline(queue: Queue, entry: Entry) -> int:
    """When the message expires in this queue, microseconds since the epoch; 0: never."""
    return _asked(queue, entry) if queue.expiry.is_retimed else entry[EXPIRES]


def expiry_of_ends(queue: Queue) -> tuple[int, int]:
    """When the messages expire that are handed out first and last, microseconds since the epoch; 0 for each that never
    does, and for both if the order is not simply that of arrival. Looks at no other message.
    """
    ends = queue.backlog.ends() if queue.expiry.may_expire else None
    return (0, 0) if ends is None else (deadline(queue, ends[0]), deadline(queue, ends[1]))


def _asked(queue: Queue, entry: Entry) -> int:
    data = entry[DATA]
    head = message_head.read_head(data)
    requested = requested_times_of(data, head)
    arrived = entry[AVAILABLE]
    if entry[FLAGS] & SCHEDULED:
        if requested.delivery_delay_ms is None or requested.delivery_time_ms is not None:
            return entry[EXPIRES]  # when it came is only in the log, which is read at the next start
        arrived -= delay_us(requested.delivery_delay_ms)
    return bounded(expires_at(arrived, head.ttl, requested.absolute_expiry_ms), arrived, queue.policy.max_ttl_us)


def requested_times_of(data: bytes, head: message_head.Head) -> RequestedTimes:
    """What the message says of its times; sections that can't be read say nothing."""
    try:
        return times.requested_times(data, head)
    except DecodeError:
        return NO_REQUESTED_TIMES


LOOK_MS: Final = 5000
"""The clock is looked at that often while something is to be waited for."""


def note_expiry(broker: Broker, queue: Queue, expires_us: int) -> None:
    """A message that expires then was put into the queue."""
    queue.expiry.may_expire = True
    if not queue.expiry.next_due or expires_us < queue.expiry.next_due:
        queue.expiry.next_due = expires_us
        set_timer(broker, queue, max(expires_us, queue.expiry.next_pass))


def recheck_expiry(broker: Broker, queue: Queue) -> None:
    """The queue's policies may have changed: look at the waiting messages again if that changes when they expire."""
    if queue.expiry.is_retimed:
        queue.expiry.may_expire = True
        queue.expiry.next_due, queue.expiry.next_pass = broker.clock.now_us, 0
        set_timer(broker, queue, broker.clock.now_us)


def put_in_place(broker: Broker, queue: Queue, entry: Entry) -> None:
    """Put a message that was taken out back in its place."""
    queue.keep(entry, broker.clock.now_us)
    if is_early(entry, broker.clock.now_us):
        set_timer(broker, queue, queue.delayed.next_due())
        return
    expires = deadline(queue, entry)
    if expires:
        note_expiry(broker, queue, expires)
    if queue.links.consumers:
        broker.work.schedule(queue)


def delay(broker: Broker, queue: Queue, entries: Iterable[Entry]) -> None:
    """Keep messages back, at least one, until each is available, or has expired before."""
    for entry in entries:
        queue.hold_back(entry)
    set_timer(broker, queue, queue.delayed.next_due())


def set_timer(broker: Broker, queue: Queue, at_us: int) -> None:
    """Look at the queue then, or before."""
    left_ms = min(max(-(-(at_us - broker.clock.now_us) // 1000), 0), LOOK_MS)
    at_ms = broker.clock.now_ms + left_ms
    if queue.expiry.timer_ms is not None and queue.expiry.timer_ms <= at_ms:
        return
    queue.expiry.timer_ms = at_ms
    broker.clock.timers.at(at_ms, partial(_woken, broker, queue, at_ms))


def _woken(broker: Broker, queue: Queue, at_ms: int) -> None:
    if queue.expiry.timer_ms == at_ms:  # else an earlier timer has taken its place
        queue.expiry.timer_ms = None
        try:
            broker.keep_time(queue)
        except Exception:
            queue.expiry.timer_ms = at_ms  # so that the timer, which runs again, is not taken for an old one
            raise
