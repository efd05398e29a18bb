"""Puts the topology and the messages that the log holds back in place when the broker starts.

A message that a consumer may have seen comes back with delivery-count > 0, without a delivery attempt counted against
it. Losses (messages that were not durable, or that the log has lost by damage) are counted per subscription. Source:
docs/decisions/036-what-is-durable.md.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final

from penstock_amqp.endpoint.events import AVAILABLE, DATA, EXPIRES, FLAGS, NUMBER, Entry
from penstock_amqp.messages.message_head import read_head, with_annotations_section
from penstock_broker.log import Document, LiveMessage, PagedQueue, Recovered, bytes_in_log
from penstock_broker.messages.recorded_entries import RecordedEntries
from penstock_broker.queue.delayed import is_early
from penstock_broker.queue.paged_tail import PagedTail
from penstock_broker.queue.queue import ANNOTATED, LARGE_BYTES, SCHEDULED, Queue
from penstock_broker.queue.run import Run
from penstock_broker.topology import documents
from penstock_broker.topology.store import Topology
from penstock_core.message_times import bounded

__all__ = ["instance_of", "record_losses", "restore"]

logger = logging.getLogger(__name__)

TOLD_MESSAGES: Final = 16_384
"""How far the start is, is told again after so many messages of one queue."""


def restore(
    topology: Topology,
    recovered: Recovered,
    now_us: int,
    restored: Callable[[int, int, int], None],
    tail_of: Callable[[Queue], PagedTail],
) -> None:
    """Fill an empty topology with what was recovered, exchanges first.

    `restored` is told of how many queues, of how many in all, the messages are in place, and of how many messages; also
    while one queue with very many is filled. `tail_of` makes the tail of a
    queue of whose messages not all are in memory.
    """
    by_kind: dict[str, list[Document]] = {}
    for document in recovered.documents:
        by_kind.setdefault(document.kind, []).append(document)
    entries, messages = _Entries(), 0

    def counted(found: Sequence[LiveMessage]) -> Iterator[LiveMessage]:
        nonlocal messages
        for message in found:
            if messages % TOLD_MESSAGES == 0:
                restored(done, total, messages)
            messages += 1
            yield message

    def fill(queue: Queue) -> None:
        paged = recovered.paged.get(queue.incarnation)
        if paged is not None:
            queue.begin_tail(queue.backlog.normal, tail_of(queue))
        _fill(queue, counted(recovered.messages.get(queue.incarnation, ())), entries, now_us)
        if paged is not None:
            _fill_tail(queue, paged)
        queue.totals.recovered, queue.totals.recovered_bytes = queue.totals.enqueued, queue.totals.enqueued_bytes

    for document in by_kind.get(documents.EXCHANGE, ()):
        topology.restore_exchange(documents.load_exchange(document.key, document.payload))
    queues, subscriptions = by_kind.get(documents.QUEUE, []), by_kind.get(documents.SUBSCRIPTION, [])
    total = len(queues) + len(subscriptions)
    done = 0
    for done, document in enumerate(queues):
        restored(done, total, messages)
        node = documents.load_queue(document.key, document.payload, document.incarnation, now_us)
        topology.restore_queue(node)
        lost = recovered.lost.get(document.incarnation, 0)
        node.queue.totals.lost_at_restart += lost
        if lost:  # the log tells of each loss once, so the new total is written at once
            topology.put_queue(node)
        fill(node.queue)
    for done, document in enumerate(subscriptions, len(queues)):
        restored(done, total, messages)
        subscription = documents.load_subscription(document.payload, document.incarnation, now_us)
        topology.revise(subscription)
        topology.restore(subscription)
        lost = recovered.lost.get(document.incarnation, 0)
        subscription.queue.totals.lost_at_restart += lost
        if lost:
            topology.write(subscription)
        fill(subscription.queue)
    restored(total, total, messages)
    if not recovered.epoch:
        logger.info("The data folder is new")
        return
    waiting = sum(len(messages) for messages in recovered.messages.values())
    waiting += sum(run.messages for paged in recovered.paged.values() for run in paged.runs)
    logger.info(
        "Recovered epoch %d (%s): %d documents, %d messages in queues",
        recovered.epoch,
        "closed in order" if recovered.clean else "after a crash",
        len(recovered.documents),
        waiting,
    )


def record_losses(topology: Topology) -> None:
    """Record, at an orderly stop, how many messages each lasting subscription and durable queue loses by the stop
    (those that were sent as not durable), and since when a subscription is unused. After a crash this is not known.
    """
    for node in topology.queues.values():
        if node.durable and node.queue.volatile:
            node.queue.totals.lost_at_restart += node.queue.volatile
            topology.put_queue(node)
    for subscription in topology.subscriptions.values():
        queue = subscription.queue
        lost = queue.volatile if subscription.is_logged else 0
        if lost:
            queue.totals.lost_at_restart += lost
            topology.write(subscription)
        elif subscription.is_logged and subscription.noted_unused_us != queue.links.unused_since_us:
            topology.note(subscription)


def instance_of(recovered: Recovered) -> str | None:
    """The id that was made with the data folder; None if the folder is new."""
    for document in recovered.documents:
        if document.kind == documents.BROKER:
            return document.payload.decode()
    return None


def _fill(queue: Queue, messages: Iterable[LiveMessage], entries: _Entries, now_us: int) -> None:
    due: list[Entry] = []
    for message in messages:
        entry = entries.of(message, queue.policy.max_ttl_us)
        size = len(entry[DATA])
        is_due = not is_early(entry, now_us)
        if is_due:
            due.append(entry)
            if entry[EXPIRES]:
                queue.expiry.may_expire = True
                queue.expiry.next_due = min(entry[EXPIRES], queue.expiry.next_due or entry[EXPIRES])
        else:
            queue.hold_back(entry)
        queue.depth_bytes += size
        if size > LARGE_BYTES:
            queue.staged_bytes += bytes_in_log((entry[DATA],))
        queue.totals.enqueued += 1
        queue.totals.enqueued_bytes += size
        if message.deliveries:
            queue.redelivery.attempts[message.number] = message.deliveries
            queue.redelivery.repeated.failed(entry)
            queue.totals.max_delivery_count = max(queue.totals.max_delivery_count, message.deliveries)
        if message.delivered and is_due:  # a delayed one below the delivered-up-to number may not have been sent
            queue.redelivery.seen.note(message.number)
            queue.delivered_up_to = max(queue.delivered_up_to, message.number)
    queue.put(_in_order(due))


def _fill_tail(queue: Queue, paged: PagedQueue) -> None:
    """Put the messages that are in the log only behind those of them that are in memory."""
    tail = queue.backlog.normal.tail
    assert tail is not None, "it has begun before the other messages came"
    begins = [run.arrival for run in paged.runs]

    def place(entry: Entry) -> int:
        """A delayed message comes behind those that waited when it was due, as far as the runs tell them apart."""
        if not entry[FLAGS] & SCHEDULED:
            return entry[NUMBER]
        at = bisect_right(begins, entry[AVAILABLE])
        return paged.runs[at].firsts[0] if at < len(begins) else paged.runs[-1].lasts[-1] + 1

    longest, due = queue.policy.max_ttl_us, queue.expiry.next_due
    runs = [
        Run.of(run.firsts, run.lasts, run.messages, run.bytes, bounded(run.expires, run.arrival, longest))
        for run in paged.runs
    ]
    tail.adopt(runs, place)
    queue.depth_bytes += tail.bytes
    queue.totals.enqueued += tail.runs_count
    queue.totals.enqueued_bytes += tail.bytes
    expiries = [run.expires for run in runs if run.expires]
    if expiries:
        queue.expiry.may_expire = True
        queue.expiry.next_due = min(*expiries, due) if due else min(expiries)
    for number, count in paged.failed:
        queue.redelivery.attempts[number] = count
        queue.totals.max_delivery_count = max(queue.totals.max_delivery_count, count)
    _note_delivered(queue, paged)


def _note_delivered(queue: Queue, paged: PagedQueue) -> None:
    """Note which of the paged messages a consumer may have seen: few after a crash of the broker, all after one of the
    machine.
    """
    seen = [
        (first, min(last, paged.delivered_up_to))
        for run in paged.runs
        for first, last in zip(run.firsts, run.lasts, strict=True)
        if first <= paged.delivered_up_to
    ]
    if not seen:
        return
    queue.delivered_up_to = max(queue.delivered_up_to, seen[-1][1])
    for first, last in seen:
        queue.redelivery.seen.note_stretch(first, last)


def _in_order(due: list[Entry]) -> list[Entry]:
    """Messages in the order in which they waited: a delayed one behind all that waited when it was due."""
    delayed = sorted((entry for entry in due if entry[FLAGS] & SCHEDULED), key=itemgetter(AVAILABLE, NUMBER))
    if not delayed:
        return due
    ordered: list[Entry] = []
    rest = iter(delayed)
    following = next(rest, None)
    for entry in due:
        if entry[FLAGS] & SCHEDULED:
            continue
        while following is not None and following[AVAILABLE] < entry[AVAILABLE]:
            ordered.append(following)
            following = next(rest, None)
        ordered.append(entry)
    if following is not None:
        ordered += (following, *rest)
    return ordered


class _Entries:
    """Makes entries of recovered messages: one for all queues of a message, and each message is looked into once."""

    def __init__(self) -> None:
        self._recorded = RecordedEntries()
        self._made: dict[int, Entry] = {}
        """Those of messages that several queues hold, by number."""

    def of(self, message: LiveMessage, max_ttl_us: int) -> Entry:
        """The entry as it was when the message came; the record keeps when that was."""
        entry = self._made.get(message.number) if message.is_shared else None
        if entry is None:
            entry = self._recorded.of(message.number, message.payload, message.arrival, message.flags)
            if message.is_shared:
                self._made[message.number] = entry
        if not max_ttl_us and not message.remark:
            return entry
        number, data, available, expires, flags = entry
        if message.remark:  # what consumers wrote on it says nothing of its times
            data = with_annotations_section(data, read_head(data), message.remark)
            flags |= ANNOTATED
        return number, data, available, bounded(expires, message.arrival, max_ttl_us), flags
