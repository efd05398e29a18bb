"""Keeps the bodies of deep backlogs out of memory: behind the first messages of a queue, only their numbers are kept.

Nothing happens while backlogs are small. When a queue, or all queues together, hold too much, the messages behind the
first ones (the *window*) become runs of a `PagedTail`: they are in the log anyway. Consumers take from the window,
which is filled again from the log before it runs dry. All this is done in slices at the end of turns, so no single turn
waits for much. Messages that the log does not hold stay in memory. Source: docs/decisions/082-paging.md.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from functools import partial
from typing import Any, Final

import penstock_native
from penstock_amqp.endpoint.events import AVAILABLE, DATA, EXPIRES, FLAGS, NUMBER, Entry
from penstock_broker.log import LargePayload, Log
from penstock_broker.messages.memory_account import memory_of
from penstock_broker.messages.read_retries import retry_after_ms
from penstock_broker.messages.recorded_entries import RecordedEntries
from penstock_broker.queue.paged_tail import PagedTail
from penstock_broker.queue.priority_level import PriorityLevel
from penstock_broker.queue.queue import ANNOTATED, LOGGED, Queue
from penstock_broker.queue.tail_pieces import PageableCount, pageable_if
from penstock_broker.queue.tail_snapshot import Stretch
from penstock_broker.state.broker import Broker
from penstock_core.memory_level import MemoryLevel
from penstock_core.message_times import bounded

__all__ = ["LOOK_MS", "page_deep_queues", "serve_tails", "tail_of", "take_over_tails"]

logger = logging.getLogger(__name__)

_SAYS: Final = LOGGED | ANNOTATED

_native: Any = penstock_native.messages

LOOK_MS: Final = 200
"""So often `messages.memory_watch` asks how much memory the backlogs take."""

LOOKED_AT: Final = 2000
"""Queues that are asked at a time, if that does not take too long,"""

ASKED_AT_ONCE: Final = 50
"""Queues that are asked before the time is looked at."""

QUIET_LOOKED_AT: Final = 100
"""and while there is room and next to nothing comes: to ask ten thousand queues again and again takes a twentieth of a
processor."""

QUIET_BYTES: Final = 256 * 1024
"""What may come meanwhile. It counts as held until all queues have been asked again."""

PAGED_PER_TURN: Final = 4000
"""Messages of one queue whose bodies are forgotten in one turn: about two milliseconds."""

SERVED_PER_TURN: Final = 64
"""Queues with tails that are looked after in one turn."""

READ_MESSAGES: Final = 512
"""What is read for one queue in one turn: about a millisecond."""

READ_BYTES: Final = 512 * 1024


def take_over_tails(broker: Broker) -> None:
    """Look after the tails with which queues were recovered."""
    queues = (each.queue for each in broker.topology.by_incarnation.values())
    broker.paging.queues.extend(queue for queue in queues if queue.backlog.normal.tail is not None)


def page_deep_queues(broker: Broker) -> None:
    """Ask some queues how much they hold in memory, and page those that hold too much."""
    paging = broker.paging
    if not paging.unasked:
        paging.unasked = [each.queue for each in broker.topology.by_incarnation.values()]
    is_quiet = paging.rounds and broker.memory.came <= QUIET_BYTES and broker.memory.level is MemoryLevel.OK
    is_over = broker.clock.stint()
    for asked in range(min(QUIET_LOOKED_AT if is_quiet else LOOKED_AT, len(paging.unasked))):
        if asked and asked % ASKED_AT_ONCE == 0 and is_over():
            return
        queue = paging.unasked.pop()
        if queue.backlog.selections.cursors:
            queue.backlog.selections.rest(queue.backlog.levels)
        size = memory_of(queue)
        if not size:
            continue
        paging.asked_bytes += size
        paging.asked_count += 1
        if size > paging.queue_bytes and broker.log.holds(queue.incarnation):
            _begin(broker, queue)
    if not paging.unasked:
        paging.end_round()


def _begin(broker: Broker, queue: Queue) -> None:
    """Give a tail to each level of the queue that holds more than a window."""
    window = broker.paging.window_messages(queue)
    levels = [each for each in queue.backlog.levels if each.tail is None and len(each.fresh) + len(each.back) > window]
    if levels and all(each.tail is None for each in queue.backlog.levels):
        broker.paging.queues.append(queue)
    for level in levels:
        queue.begin_tail(level, tail_of(broker.log, queue))


def tail_of(log: Log, queue: Queue) -> PagedTail:
    """A new tail for a queue, whose messages are read from its log."""
    entries = RecordedEntries()

    def read(first: int, last: int, most: int, most_bytes: int) -> Stretch:
        reading = log.read(queue.incarnation, first, last, most, most_bytes)
        longest = queue.policy.max_ttl_us
        found = entries.all_of(reading)
        if longest:
            came = entries.delayed_came_us
            found = [
                (*each[:EXPIRES], bounded(each[EXPIRES], came.get(each[NUMBER], each[AVAILABLE]), longest), each[FLAGS])
                for each in found
            ]
        return Stretch(found, reading.following, reading.bytes)

    def lost(count: int, size: int) -> None:
        queue.depth_bytes -= size
        queue.totals.dropped += count
        logger.error("%d messages of queue %r are lost: the log is damaged where they lie", count, queue.name)

    return PagedTail(read, lost)


def _pageable(log: Log) -> PageableCount:
    """Says which messages the log gives back as their entries say."""
    if _native:
        return partial(_native.pageable, _SAYS, LOGGED, log.in_parts)
    return pageable_if(partial(_can_page, log.in_parts))


def _can_page(in_parts: Container[int], entry: Entry) -> bool:
    """`in_parts`: the messages whose bodies the log has in parts."""
    return (
        entry[FLAGS] & _SAYS == LOGGED and not isinstance(entry[DATA], LargePayload) and entry[NUMBER] not in in_parts
    )


def serve_tails(broker: Broker) -> None:
    """At the end of a turn, look after some queues that have a tail: forget bodies behind it, read what is next."""
    paging = broker.paging
    for _ in range(min(SERVED_PER_TURN, len(paging.queues))):
        queue = paging.queues.popleft()
        levels = [level for level in queue.backlog.levels if level.tail is not None]
        if not levels:
            paging.retry_ms.pop(queue, None)
            continue
        paging.queues.append(queue)
        selections = queue.backlog.selections
        if selections.cursors and (error := selections.unread()) is not None:
            _failed(broker, queue, error)
        window = paging.window_messages(queue)
        for level in levels:
            _serve_tail(broker, queue, level, window)


def _serve_tail(broker: Broker, queue: Queue, level: PriorityLevel, window: int) -> None:
    tail, fresh = level.tail, level.fresh
    if tail is None:
        return
    if tail.arrivals:
        tail.take_in(_pageable(broker.log), broker.log.first_unwritten, PAGED_PER_TURN)
    if len(fresh) > 2 * window or len(level.back) > 2 * window:
        if level.forget_bodies(window, _pageable(broker.log), PAGED_PER_TURN):
            queue.backlog.selections.search_again(level)
    elif len(fresh) * 2 < window and (queue.links.consumers or not fresh) and _may_read(broker, queue):
        _fill(broker, queue, level)


def _may_read(broker: Broker, queue: Queue) -> bool:
    """False for a while after a failure."""
    retry_ms = broker.paging.retry_ms
    if broker.clock.now_ms < retry_ms.get(queue, 0):
        return False
    retry_ms.pop(queue, None)
    return True


def _fill(broker: Broker, queue: Queue, level: PriorityLevel) -> None:
    """Read what the consumers take next; without them only what shows how long the first waits."""
    try:
        queue.pull(level, READ_MESSAGES, min(READ_BYTES, broker.paging.window_bytes))
    except OSError as error:
        _failed(broker, queue, error)
        return
    if queue.links.consumers:
        broker.work.schedule(queue)


def _failed(broker: Broker, queue: Queue, error: OSError) -> None:
    """Read nothing for a while, then try again."""
    after_ms = retry_after_ms(broker, queue, error)
    broker.paging.retry_ms[queue] = broker.clock.now_ms + after_ms
    broker.clock.after(after_ms, partial(broker.work.schedule, queue))
