"""What is alive once all records of a log have been read: by queue, the messages in memory and those that are paged.

Pure.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock_broker.log.recovery.paged_puts import Batch, LiveRun, RunChain
from penstock_broker.log.recovery.replay import Replay

__all__ = ["LiveMessage", "PagedQueue", "live_messages", "lost_incarnations", "paged_queues"]


class LiveMessage(NamedTuple):  # a tuple, because recovery makes millions of them
    """A recovered message of one queue, or of several that know the same of it."""

    number: int
    payload: bytes
    flags: int
    arrival: int
    deliveries: int
    """Unsuccessful deliveries that count against its limit."""
    delivered: bool
    """A consumer may have seen it."""
    remark: bytes = b""
    """The last remark about it; empty if there is none."""
    is_shared: bool = False
    """More than one queue holds it."""


def live_messages(replay: Replay, *, delivered_is_known: bool) -> tuple[dict[int, list[LiveMessage]], dict[int, int]]:
    """Per incarnation that a document holds, its messages in number order; and for other incarnations, how many.

    `delivered_is_known`: every delivered-up-to number was written and has been read. Otherwise each message may have
    been delivered. Queues that know the same of a message share its `LiveMessage`.
    """
    queues: dict[int, list[LiveMessage]] = {
        document.incarnation: [] for document in replay.documents.values() if document.incarnation
    }
    delivered_up_to = {
        incarnation: replay.delivered_up_to.get(incarnation, 0) if delivered_is_known else replay.highest_message
        for incarnation in queues
    }
    told_apart = {message for _, message in (*replay.counts, *replay.remarks)}
    without_document: dict[int, int] = {}
    for number in sorted(replay.puts):
        live = replay.puts[number]
        put, waits_in = live.put, live.waits_in
        is_shared = len(waits_in) > 1
        is_told_apart = number in told_apart
        alike: dict[bool, LiveMessage] = {}
        for incarnation in waits_in:
            queue = queues.get(incarnation)
            if queue is None:
                without_document[incarnation] = without_document.get(incarnation, 0) + 1
                continue
            delivered = number <= delivered_up_to[incarnation]
            if is_told_apart:
                count = replay.counts.get((incarnation, number), 0)
                remark = replay.remarks.get((incarnation, number), b"")
                if count or remark:
                    own = (count, delivered or count > 0, remark, is_shared)
                    queue.append(LiveMessage(number, put.payload, put.flags, put.arrival, *own))
                    continue
            message = alike.get(delivered)
            if message is None:
                told = (number, put.payload, put.flags, put.arrival)
                message = alike[delivered] = LiveMessage(*told, 0, delivered, b"", is_shared)
            queue.append(message)
    return queues, without_document


def lost_incarnations(without_document: Mapping[int, int], replay: Replay) -> dict[int, int]:
    """Of the incarnations that no document holds, those whose end was not read either, with how many messages.

    The reason is damage, or that the segment with their end was recycled.
    """
    return {incarnation: count for incarnation, count in without_document.items() if incarnation not in replay.ended}


class PagedQueue(NamedTuple):
    """Messages of one queue whose bodies recovery has left in the log."""

    runs: list[LiveRun]
    """In ascending order; a number between them may be of a message that is in memory."""
    delivered_up_to: int
    """A consumer may have seen those up to this number."""
    failed: list[tuple[int, int]]
    """Messages with their unsuccessful deliveries that count against their limits."""


Counted = Callable[[int, Batch, LiveRun], None]
"""Is told of an incarnation that it has these messages of a batch."""


def paged_queues(
    replay: Replay, *, delivered_is_known: bool, counted: Counted
) -> tuple[dict[int, PagedQueue], dict[int, int]]:
    """Per incarnation that a document holds and that has any, its paged messages; for other incarnations, how many."""
    paged = replay.paged
    if paged is None:
        return {}, {}
    known = {document.incarnation for document in replay.documents.values() if document.incarnation}
    runs: dict[int, RunChain] = {}
    without_document: dict[int, int] = {}
    for batch in paged.batches:
        for incarnation in batch.queues.incarnations:
            run = paged.live(batch, incarnation)
            if not run.messages:
                continue
            if incarnation not in known:
                without_document[incarnation] = without_document.get(incarnation, 0) + run.messages
                continue
            runs.setdefault(incarnation, RunChain()).add(run)
            counted(incarnation, batch, run)
    failed: dict[int, list[tuple[int, int]]] = {}
    for (incarnation, message), count in replay.counts.items():
        if count and incarnation in runs and message not in replay.puts and paged.holds(incarnation, message):
            failed.setdefault(incarnation, []).append((message, count))
    return {
        incarnation: PagedQueue(
            each.ascending(),
            replay.delivered_up_to.get(incarnation, 0) if delivered_is_known else replay.highest_message,
            failed.get(incarnation, []),
        )
        for incarnation, each in runs.items()
    }, without_document
