"""What gives way when a queue is full. Losses are counted per queue. Source: section 4 of the design, "Limits"."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from penstock_broker.log import Outcome
from penstock_broker.queue import DATA, FLAGS, LOGGED, NUMBER, Queue
from penstock_core.terms import Overflow

if TYPE_CHECKING:
    from penstock_broker.broker import Broker

__all__ = ["enforce", "is_full"]


def is_full(queue: Queue, coming: int = 0, coming_bytes: int = 0) -> bool:
    """True if one message more, behind `coming` others, would be one too many."""
    if queue.depth_bytes + coming_bytes >= queue.max_bytes:
        return True
    return 0 < queue.max_messages <= queue.depth + coming


def enforce(broker: Broker, queue: Queue) -> None:
    """Drop messages that wait until the queue is within its limits; what is in flight is never taken back."""
    while queue.waiting and (queue.depth_bytes > queue.max_bytes or 0 < queue.max_messages < queue.depth):
        match queue.overflow:
            case Overflow.DROP_OLDEST:
                entry = queue.drop_oldest()
            case Overflow.DROP_NEWEST | Overflow.REJECT:
                # Reject asks before it takes; a batch may still go over by its own size.
                entry = queue.drop_newest()
            case _:
                assert_never(queue.overflow)
        if entry is None:
            return
        queue.depth_bytes -= len(entry[DATA])
        queue.dropped += 1
        queue.forget(entry[NUMBER])
        if entry[FLAGS] & LOGGED:
            broker.log.ack(queue.incarnation, entry[NUMBER], Outcome.DROPPED)
