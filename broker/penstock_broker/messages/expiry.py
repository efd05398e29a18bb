"""Acts on the times of waiting messages: delayed ones become available, expired ones leave.

`due_times` says when to look. Expired messages are found by a pass over what waits, not by a record per message: the
pause after a pass grows with the number of messages that it looked at, so that passes take some per cent of a processor
at most, whatever the times to live are. A pass takes a slice of each turn, and what it found leaves in slices; these
are bounded in messages and, all of one turn together, in time.
Consumers never get an expired message: dispatch looks at the time as well.

Source: docs/decisions/027-timers.md; `penstock_core` has the rules of a message's times.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from penstock_amqp.endpoint.events import AVAILABLE, DATA, EXPIRES, FLAGS, NUMBER, Entry
from penstock_broker.messages import dead_letters
from penstock_broker.messages.due_times import deadline, note_expiry, set_timer
from penstock_broker.queue.delayed import ExpiryPass
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker

__all__ = ["keep_time"]

logger = logging.getLogger(__name__)

PASSED: Final = 1500
"""Messages that a pass looks at in one turn: about two milliseconds."""

LOOKED_AT: Final = 250
"""So many of them are looked at before the time is,"""

LOOKED_AT_BYTES: Final = 1024 * 1024
"""or so many bytes: they may have to be read from the log."""

SLICE: Final = 500
"""Messages that become available, or leave, in one turn. While more than these are about to leave, a pass waits: it
brings the bodies of paged messages into memory, and they leave more slowly than they are found.
"""

MOST_LEAVING_BYTES: Final = 4 * LOOKED_AT_BYTES
"""While more bytes are about to leave, it waits, too."""

UNREAD_US: Final = 5_000_000
"""Until the look through a queue whose messages can't be read goes on."""

PAUSE_US_PER_MESSAGE: Final = 2
"""Between two passes, for each message that waits: twenty times what looking at it takes."""


def keep_time(broker: Broker, queue: Queue) -> None:
    """Do what is due in the queue, and set the timer for what is due next."""
    now, is_over = broker.clock.now_us, broker.clock.stint()
    if queue.delayed:
        _make_available(broker, queue, is_over)
    due = max(queue.expiry.next_due, queue.expiry.next_pass) if queue.expiry.next_due else 0
    if due and due <= now and queue.expiry.passing is None and not queue.expiry.expired:
        queue.expiry.passing = _begin(queue, now, broker.log.next_number)
        queue.expiry.next_due = 0
    again = now
    if queue.expiry.passing is not None and not _is_behind(queue):
        try:
            _pass(queue, queue.expiry.passing, now, is_over)
        except OSError as error:  # what has expired and can't be read waits; no consumer gets it either
            again = now + UNREAD_US
            if broker.warnings.may_warn(f"expiry {queue.name}"):
                logger.error("Queue %r can't be looked through for expired messages: %s", queue.name, error)
    for _ in range(min(SLICE, len(queue.expiry.expired))):
        dead_letters.expired(broker, queue, queue.expiry.expired.popleft())
        if is_over():
            break
    dues = [queue.delayed.next_due()] if queue.delayed else []
    if queue.expiry.expired:
        dues.append(now)
    elif queue.expiry.passing is not None:
        dues.append(again)
    elif queue.expiry.next_due:
        dues.append(max(queue.expiry.next_due, queue.expiry.next_pass))
    if dues:
        set_timer(broker, queue, min(dues))


def _make_available(broker: Broker, queue: Queue, is_over: Callable[[], bool]) -> None:
    """Put delayed messages whose time has come behind those that wait: a slice of them."""
    scheduled, now = queue.delayed, broker.clock.now_us
    due: list[Entry] = []
    for count in range(SLICE):
        if not scheduled or scheduled.next_due() > now or (count and is_over()):
            break
        entry = scheduled.pop_first()
        expires = deadline(queue, entry)
        if expires and expires <= now:
            dead_letters.expired(broker, queue, entry)
            continue
        if entry[AVAILABLE] > now:  # it was to expire before, by a longest time to live that holds no more
            scheduled.add((*entry[:EXPIRES], expires, entry[FLAGS]))
            continue
        due.append(entry)
        if expires:
            note_expiry(broker, queue, expires)
    if due:
        queue.put(due)
        if queue.links.consumers:
            broker.work.schedule(queue)


def _begin(queue: Queue, now_us: int, below: int) -> ExpiryPass:
    """Look at what is in memory, and read what is not if it may have expired."""
    if queue.expiry.is_retimed:
        return ExpiryPass(queue.backlog.snapshot(below=below))
    return ExpiryPass(queue.backlog.snapshot(now_us, below), next_expiry=queue.backlog.next_expiry(now_us))


def _pass(queue: Queue, passing: ExpiryPass, now_us: int, is_over: Callable[[], bool]) -> None:
    """Look at the next slice; at the end it is known when the first message expires that is left."""
    for _ in range(PASSED // LOOKED_AT):
        if not _look_at_some(queue, passing, now_us):
            break
        if is_over() or _is_behind(queue):
            return
    else:
        return
    queue.expiry.passing = None
    if not queue.depth:
        queue.expiry.is_retimed = False
    came = queue.expiry.next_due  # of messages that were put into the queue during the pass
    queue.expiry.next_due = (
        min(passing.next_expiry, came) if passing.next_expiry and came else passing.next_expiry or came
    )
    queue.expiry.next_pass = now_us + passing.seen * PAUSE_US_PER_MESSAGE


def _is_behind(queue: Queue) -> bool:
    """Whether enough messages are about to leave."""
    expired = queue.expiry.expired
    return len(expired) > SLICE or sum([len(entry[DATA]) for entry in expired]) > MOST_LEAVING_BYTES


def _look_at_some(queue: Queue, passing: ExpiryPass, now_us: int) -> bool:
    """Take what has expired out of the next messages; False if there are no more. Raises OSError."""
    passed: set[int] = set()
    gone: dict[int, Entry] = {}
    size, is_more, failure = 0, False, None
    try:
        for entry in passing.entries:
            passed.add(entry[NUMBER])
            size += len(entry[DATA])
            expires = deadline(queue, entry)
            if expires and expires <= now_us:
                gone[entry[NUMBER]] = entry
            elif expires and (not passing.next_expiry or expires < passing.next_expiry):
                passing.next_expiry = expires
            if len(passed) == LOOKED_AT or size >= LOOKED_AT_BYTES:
                is_more = True
                break
    except OSError as error:
        failure = error
    queue.expiry.expired.extend(queue.pick(gone, passed))
    passing.seen += len(passed)
    if failure is not None:
        raise failure
    return is_more
