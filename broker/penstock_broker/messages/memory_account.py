"""How much memory the messages of a queue take.

Nothing is counted per message: the totals of a queue are there anyway. A message that several queues hold lies in
memory once; how many hold it, Python itself knows of the first and of the last message of a queue. Sizes are bytes.
Measured by `tests/broker/messages/test_memory_account.py`. Source: docs/decisions/084-memory.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import Final

from penstock_amqp.endpoint.events import DATA, Entry
from penstock_broker.queue.queue import Queue

__all__ = ["ENTRY_BYTES", "HELD_BYTES", "memory_of"]

ENTRY_BYTES: Final = 176
"""What a message takes besides its bytes: a tuple, its number, the head of the bytes, its place in a queue, and what
the allocator rounds up."""

HELD_BYTES: Final = 640
"""What a delivery in flight takes besides the message and the engine's copy of it, most of it in the engine. That copy
is in a buffer whose size is a power of two, and stays until the delivery is settled."""

ASKED_FROM: Final = 64 * 1024
"""Queues that take less are not asked how many hold their messages."""


def memory_of(queue: Queue) -> int:
    """What the queue's messages take, those in flight included; its share of those that other queues hold, too."""
    if not queue.depth_bytes and not queue.in_flight:
        return 0
    count, size = queue.in_log_only
    size, count = queue.depth_bytes - queue.staged_bytes - size, queue.depth - count
    held = queue.in_flight * (HELD_BYTES + _buffer(size // max(count, 1)))
    size += count * ENTRY_BYTES
    if size > ASKED_FROM:
        size //= _holders(queue)
    return size + held


def _buffer(size: int) -> int:
    """What the engine keeps of a message that it has sent, of so many bytes."""
    return 1 << (size - 1).bit_length() if size > 0 else 0


def _holders(queue: Queue) -> int:
    """How many queues hold what waits here: the fewer of those that hold the first message and the last one of the part
    that has most.
    """
    most, ends = 0, list[Sequence[Entry]]()
    for level in queue.backlog.levels:
        if len(level.fresh) > most:
            most, ends = len(level.fresh), [level.fresh]
        if len(level.back) > most:
            most, ends = len(level.back), [level.back.blocks[0], level.back.blocks[-1]]
    # What an entry is in has one reference, and the call of `getrefcount` another.
    if len(queue.delayed) > most:
        due = queue.delayed.blocks[0]
        entries, bodies = getrefcount(due[0][1]), getrefcount(due[0][1][DATA])
    elif ends:
        entries = min(getrefcount(ends[0][0]), getrefcount(ends[-1][-1]))
        bodies = min(getrefcount(ends[0][0][DATA]), getrefcount(ends[-1][-1][DATA]))
    else:
        return 1
    return max(entries - 1, 1) * max(bodies - 1, 1)
