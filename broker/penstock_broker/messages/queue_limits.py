"""What a full queue does, and how a message ends in a queue.

A queue that is beyond its limits drops by its `overflow`; what it drops is counted. `remove` is the end of a message in
a queue whatever the reason: its bytes, what was remembered of it, its record in the log. Limits, policies, consumers
and administrators all end messages, and none of them may forget a part. Source: docs/decisions/045-queue-limits.md.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final, assert_never

from penstock_amqp.endpoint.events import DATA, FLAGS, NUMBER, Entry
from penstock_api.message_audit import EventKind
from penstock_broker.log import EndReason, bytes_in_log
from penstock_broker.queue.queue import LOGGED, UNLIMITED_BYTES, Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.overflow_episodes import DROPS, REFUSES
from penstock_core.terms import Overflow

__all__ = ["DROPPED_AT_ONCE", "enforce", "is_full", "refuses", "remove"]

DROPPED_AT_ONCE: Final = 250
"""Messages that are dropped in one turn besides those for which others came: about two milliseconds."""

_AUDITED: Final = {
    EndReason.ACCEPTED: EventKind.ACCEPTED,
    EndReason.REJECTED: EventKind.REJECTED,
    EndReason.EXPIRED: EventKind.EXPIRED,
    EndReason.PURGED: EventKind.PURGED,
    EndReason.DEAD_LETTERED: EventKind.DEAD_LETTERED,
    EndReason.DROPPED: EventKind.DROPPED,
}


logger = logging.getLogger(__name__)


def remove(broker: Broker, queue: Queue, entry: Entry, outcome: EndReason, *, is_moved: bool = False) -> None:
    """A message that is in no list of the queue any more has left it for good. `is_moved`: for another queue; to the
    log that is a purge.
    """
    queue.note_change()
    if queue.audit is not None:
        queue.audit.left(entry, EventKind.MOVED if is_moved else _AUDITED[outcome])
    queue.depth_bytes -= len(entry[DATA])
    if queue.staged_bytes:
        queue.staged_bytes -= bytes_in_log((entry[DATA],))
    queue.forget(entry[NUMBER])
    if entry[FLAGS] & LOGGED:
        broker.log.ack(queue.incarnation, entry[NUMBER], outcome)


def is_full(queue: Queue, size: int, coming: int = 0, coming_bytes: int = 0) -> bool:
    """True if one message more, of `size` bytes and behind `coming` others, would be one too many."""
    if queue.depth_bytes + coming_bytes + size > queue.policy.max_bytes:
        return True
    return 0 < queue.policy.max_messages <= queue.depth + coming


def enforce(broker: Broker, queue: Queue, came: int, came_bytes: int) -> None:
    """Drop messages that wait until the queue is within its limits; what is in flight is never taken back.

    A queue that rejects was asked before: what it took is not dropped. `came`: messages that have just come, of so many
    bytes. As much is dropped at once, and what is more, as after a limit was lowered, in slices of the next turns.
    """
    dropped, dropping = queue.totals.dropped, broker.work.dropping
    is_left = _drop(broker, queue, came if queue in dropping else came + DROPPED_AT_ONCE, came_bytes)
    if queue.totals.dropped > dropped:
        broker.overflow.note(queue.name, DROPS, queue.totals.dropped - dropped, _limits(queue))
    if is_left and queue not in dropping:
        dropping.add(queue)
        broker.clock.after(0, partial(_drop_more, broker, queue))


def _drop_more(broker: Broker, queue: Queue) -> None:
    broker.work.dropping.discard(queue)
    if broker.topology.is_current(queue):
        enforce(broker, queue, 0, 0)


def refuses(broker: Broker, queue: Queue, size: int, coming: int = 0, coming_bytes: int = 0) -> bool:
    """Whether a queue that rejects has no room for a message, as `is_full`; if so, the log tells of it."""
    if not is_full(queue, size, coming, coming_bytes):
        return False
    broker.overflow.note(queue.name, REFUSES, 1, _limits(queue))
    return True


def _limits(queue: Queue) -> str:
    """How full a queue is, and by which overflow it goes."""
    policy = queue.policy
    sizes = [f"{queue.depth_bytes} of {policy.max_bytes} bytes"] if policy.max_bytes < UNLIMITED_BYTES else []
    if policy.max_messages:
        sizes.append(f"{queue.depth} of {policy.max_messages} messages")
    return f"{', '.join(sizes)}, overflow {policy.overflow.value}"


def _drop(broker: Broker, queue: Queue, most: int, least_bytes: int) -> bool:
    """Drop `most` messages, more only until they have `least_bytes`; True if the queue is still beyond its limits, and
    may have more to drop.
    """
    enough = queue.depth_bytes - least_bytes
    while queue.depth_bytes > queue.policy.max_bytes or 0 < queue.policy.max_messages < queue.depth:
        if most <= 0 and queue.depth_bytes <= enough:
            return True
        most -= 1
        try:
            entry = _dropped(queue)
        except OSError as error:  # what is to go can't be read now: the queue stays over its limit until the next put
            if broker.warnings.may_warn(f"drop {queue.name}"):
                logger.error(
                    "Queue %r is full and can't drop a message, because it can't be read: %s", queue.name, error
                )
            return False
        if entry is None:
            return False
        queue.totals.dropped += 1
        remove(broker, queue, entry, EndReason.DROPPED)
    return False


def _dropped(queue: Queue) -> Entry | None:
    """Take out the message that goes next; None if none does. Raises OSError."""
    match queue.policy.overflow:
        case Overflow.DROP_OLDEST:
            return queue.drop_oldest() or _next_delayed(queue)
        case Overflow.DROP_NEWEST:
            return _newest(queue)
        case Overflow.REJECT:
            return None
        case _:
            assert_never(queue.policy.overflow)


def _next_delayed(queue: Queue) -> Entry | None:
    return queue.delayed.pop_first() if queue.delayed else None


def _newest(queue: Queue) -> Entry | None:
    """Take out the message that came last, delayed or not."""
    waiting = queue.drop_newest()
    if waiting is not None and queue.delayed.is_above_all(waiting[NUMBER]):
        return waiting
    delayed = queue.delayed.newest()
    if delayed is None or (waiting is not None and waiting[NUMBER] > delayed[NUMBER]):
        return waiting
    if waiting is not None:
        queue.put((waiting,))
    return queue.delayed.remove(delayed)
