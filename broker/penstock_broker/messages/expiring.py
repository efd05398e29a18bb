"""The times of waiting messages: delayed ones become available, those whose time to live has passed leave.

One timer per queue that has such messages, for the next thing that is due. Delayed messages wait in a heap ordered by
time and number. Those that expire are found by a pass over what waits, not by a record per message: a pass pauses for
longer the more it had to look at, so that it takes some per cent of a processor at most however times to live are
mixed. What a pass found leaves in slices. Consumers never get what has expired: they look for themselves.

The clock may jump: deadlines are times of day, timers are not, so each timer looks again after `LOOK_MS`.
Source: section 4 of the design ("One timer wheel for heartbeats, TTL and delays"); `penstock_core.lifespan`.
"""

from __future__ import annotations

from functools import partial
from heapq import heappop
from typing import TYPE_CHECKING, Final

from penstock_amqp.endpoint.events import Entry
from penstock_broker.messages import condemning
from penstock_broker.messages.deadlines import deadline
from penstock_broker.queues.queue import AVAILABLE, NUMBER, Queue

if TYPE_CHECKING:
    from penstock_broker.state.broker import Broker

__all__ = ["LOOK_MS", "expect", "keep", "keep_time", "postpone", "review"]

LOOK_MS: Final = 5000
"""The clock is looked at that often while something is to be waited for."""

SLICE: Final = 500
"""Messages that become available, or leave, in one turn."""

PAUSE_US_PER_MESSAGE: Final = 2
"""Between two passes, for each message that waits: twenty times what looking at it takes."""


def expect(broker: Broker, queue: Queue, expires_us: int) -> None:
    """A message that expires then was put into the queue."""
    queue.has_expiry = True
    if not queue.next_expiry or expires_us < queue.next_expiry:
        queue.next_expiry = expires_us
        _wake(broker, queue, max(expires_us, queue.next_pass))


def review(broker: Broker, queue: Queue) -> None:
    """The queue's policies may have changed: have a look at what waits, if that lets it expire at other times."""
    if queue.is_retimed:
        queue.has_expiry = True
        queue.next_expiry, queue.next_pass = broker.now_us, 0
        _wake(broker, queue, broker.now_us)


def keep(broker: Broker, queue: Queue, entry: Entry) -> None:
    """Put a message that was taken out back in its place."""
    queue.keep(entry, broker.now_us)
    if entry[AVAILABLE] > broker.now_us:
        _wake(broker, queue, queue.scheduled[0][0])
        return
    expires = deadline(queue, entry)
    if expires:
        expect(broker, queue, expires)
    if queue.consumers:
        broker.schedule(queue)


def postpone(broker: Broker, queue: Queue, entry: Entry) -> None:
    """Keep a message back until it is available, or has expired before."""
    queue.hold_back(entry)
    _wake(broker, queue, queue.scheduled[0][0])


def keep_time(broker: Broker, queue: Queue) -> None:
    """Do what is due in the queue, and see that somebody looks when the next thing is."""
    now = broker.now_us
    for _ in range(SLICE):
        if not queue.scheduled or queue.scheduled[0][0] > now:
            break
        _become_available(broker, queue, heappop(queue.scheduled)[2])
    if queue.next_expiry and max(queue.next_expiry, queue.next_pass) <= now and not queue.doomed:
        _pass(broker, queue)
    for _ in range(min(SLICE, len(queue.doomed))):
        condemning.expired(broker, queue, queue.doomed.popleft())
    dues = [queue.scheduled[0][0]] if queue.scheduled else []
    if queue.doomed:
        dues.append(now)
    elif queue.next_expiry:
        dues.append(max(queue.next_expiry, queue.next_pass))
    if dues:
        _wake(broker, queue, min(dues))


def _become_available(broker: Broker, queue: Queue, entry: Entry) -> None:
    expires = deadline(queue, entry)
    if expires and expires <= broker.now_us:
        condemning.expired(broker, queue, entry)
        return
    queue.put((entry,))
    if expires:
        expect(broker, queue, expires)
    if queue.consumers:
        broker.schedule(queue)


def _pass(broker: Broker, queue: Queue) -> None:
    """Find everything that has expired, and when the next one does."""
    now, next_expiry, seen = broker.now_us, 0, 0
    gone: set[int] = set()
    for entry in queue:
        seen += 1
        expires = deadline(queue, entry)
        if not expires:
            continue
        if expires <= now:
            gone.add(entry[NUMBER])
        elif not next_expiry or expires < next_expiry:
            next_expiry = expires
    if gone:
        queue.doomed.extend(queue.extract(gone))
    if not queue.depth:
        queue.is_retimed = False
    queue.next_expiry = next_expiry
    queue.next_pass = now + seen * PAUSE_US_PER_MESSAGE


def _wake(broker: Broker, queue: Queue, at_us: int) -> None:
    left_ms = min(max(-(-(at_us - broker.now_us) // 1000), 0), LOOK_MS)
    at_ms = broker.now_ms + left_ms
    if queue.wakes_ms is not None and queue.wakes_ms <= at_ms:
        return
    queue.wakes_ms = at_ms
    broker.timers.at(at_ms, partial(_woken, broker, queue, at_ms))


def _woken(broker: Broker, queue: Queue, at_ms: int) -> None:
    if queue.wakes_ms == at_ms:  # else an earlier timer has taken its place
        queue.wakes_ms = None
        keep_time(broker, queue)
