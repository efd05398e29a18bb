"""The times of waiting messages: delayed ones become available, those whose time to live has passed leave.

`expecting` says when to look. Delayed messages wait in a heap ordered by time and number. Those that expire are found
by a pass over what waits, not by a record per message: a pass pauses for longer the more it had to look at, so that it
takes some per cent of a processor at most however times to live are mixed. What a pass found leaves in slices.
Consumers never get what has expired: they look for themselves.

Source: section 4 of the design ("One timer wheel for heartbeats, TTL and delays"); `penstock_core.lifespan`.
"""

from __future__ import annotations

from heapq import heappop
from typing import Final

from penstock_amqp.endpoint.events import Entry
from penstock_broker.messages import condemning
from penstock_broker.messages.deadlines import deadline
from penstock_broker.messages.expecting import expect, wake
from penstock_broker.queues.queue import NUMBER, Queue
from penstock_broker.state.broker import Broker

__all__ = ["keep_time"]

SLICE: Final = 500
"""Messages that become available, or leave, in one turn."""

PAUSE_US_PER_MESSAGE: Final = 2
"""Between two passes, for each message that waits: twenty times what looking at it takes."""


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
        wake(broker, queue, min(dues))


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
