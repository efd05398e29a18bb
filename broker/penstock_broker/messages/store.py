"""Puts messages into the queues of their route: into the log if they are to last, and into their place in each queue.

It does so for producers, for commits, and for the broker itself. `publish` numbers and logs its own messages, because
it goes through the batch anyway; `put_numbered` is part of the forwarding path. Must not know who brought a message,
except for no-local. Source: docs/decisions/036-what-is-durable.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import repeat
from operator import length_hint
from typing import Any, Final

import penstock_native
from penstock_amqp.endpoint.buffers import NULL, Ptr
from penstock_amqp.endpoint.events import DATA, EXPIRES, Arrival, Entry
from penstock_amqp.messages import message_head
from penstock_broker.access.connection import Connection
from penstock_broker.log import bytes_in_log
from penstock_broker.messages import due_times, queue_limits, spill
from penstock_broker.messages.due_times import requested_times_of
from penstock_broker.queue.flags import ORDERED, outlives
from penstock_broker.queue.message_prefix import UNKNOWN, MessagePrefix
from penstock_broker.queue.queue import LARGE_BYTES, LOGGED, SCHEDULED, Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.fan_outs import FanOut, RoutedMessages
from penstock_broker.state.routes import Route
from penstock_core.message_times import available_at, bounded, expires_at

__all__ = [
    "FEWEST_TOGETHER",
    "MOST_QUEUES_PER_TURN",
    "admitted_route",
    "advance_fan_outs",
    "finish_fan_outs",
    "put",
    "put_numbered",
]

logger = logging.getLogger(__name__)

_take_plain: Any = penstock_native.messages and penstock_native.messages.take_plain

FEWEST_TOGETHER: Final = 8
"""Messages that are put together by compiled code; fewer cost less one by one."""

MOST_QUEUES_PER_TURN: Final = 1000
"""Queues that get messages at once: about a millisecond, with a cold cache two."""


def admitted_route(
    broker: Broker, route: Route, data: bytes, head: message_head.Head, connection: Connection | None
) -> Route:
    """The route of the queues that take this message; `connection` brought it, None: the broker."""
    if not route.picky:
        return route
    taking = route.selection.taking(data, head, connection)
    return route if len(taking) == len(route.picky) else broker.routes.route_of((*route.open_queues, *taking))


def put(broker: Broker, route: Route, messages: Sequence[bytes], *, keep: bool = False) -> bool:
    """Put messages into every queue of `route`; True if one is in the log. `keep`: as if each said it is durable.

    They are without delivery-annotations; of one whose properties can't be read, these say nothing.
    """
    if not route.queues:
        return False
    now, log = broker.clock.now_us, broker.log
    beginning = UNKNOWN
    entries: list[Entry] = []
    delayed: list[Entry] = []
    size = first_expiry = 0
    is_logged = ordered = False
    arrivals: list[Arrival] = []
    if _take_plain is not None and len(messages) >= FEWEST_TOGETHER:
        arrivals = list(zip(repeat(NULL), messages, repeat(False)))
    deliveries: list[Ptr] = []
    at, end = 0, len(messages)
    while at < end:
        if _take_plain is not None and arrivals and not beginning.delays:
            route_set = route.logged_set if beginning.durable or keep else route.kept_set
            payloads: list[bytes] | None = [] if route_set else None
            expires, flags = now + beginning.ttl_us if beginning.ttl_us else 0, beginning.flags
            count, came = _take_plain(
                arrivals,
                at,
                beginning.prefix,
                beginning.count_at,
                beginning.is_narrow,
                log.longest_plain,
                log.numbers.message,
                now,
                expires,
                LOGGED | flags if route_set else flags,
                entries,
                deliveries,
                deliveries,
                payloads,
            )
            if count:
                at += count
                size += came
                if payloads:
                    is_logged = True
                    log.put_many(route_set, payloads, now)
                else:
                    log.next_messages(count)
                if expires and (not first_expiry or expires < first_expiry):
                    first_expiry = expires
                ordered = ordered or bool(flags & ORDERED)
                continue
        data = messages[at]
        at += 1
        if not data.startswith(beginning.prefix):
            beginning = MessagePrefix(data, message_head.read_head(data))
        absolute, flags = beginning.look_safely(data)
        available = available_at(now, requested_times_of(data, beginning.head)) if beginning.delays else now
        expires = expires_at(now, beginning.ttl_us // 1000, absolute)
        if available > now:
            flags |= SCHEDULED
        route_set = route.logged_set if beginning.durable or keep else route.kept_set
        if route_set:
            number = log.put(route_set, data, now, flags & SCHEDULED)
            flags |= LOGGED
            is_logged = True
        else:
            number = log.next_message()
        size += len(data)
        (delayed if available > now else entries).append((number, data, available, expires, flags))
        if expires and available == now and (not first_expiry or expires < first_expiry):
            first_expiry = expires
        ordered = ordered or bool(flags & ORDERED)
    broker.memory.came += size
    put_numbered(broker, route, entries, delayed, size, first_expiry, ordered=ordered, keep=keep)
    return is_logged


def put_numbered(
    broker: Broker,
    route: Route,
    entries: list[Entry],
    delayed: list[Entry],
    size: int,
    first_expiry: int,
    *,
    ordered: bool,
    keep: bool = False,
) -> None:
    """Put messages that are numbered, and in the log where they are to be, into every queue of `route`.

    Those of `entries` wait at once, `delayed` ones are for later; `size`: bytes of them all. `first_expiry`: when the
    first of `entries` expires, 0: none does. `ordered`: some have a priority or a group. `keep`: as for `put`.
    Where these are very many queues, they get them in this and the next turns, see `advance_fan_outs`.
    """
    if broker.memory.spills and route.is_alike:
        entries = spill.spilled(broker, route, entries)
    fan_outs = broker.work.fan_outs
    if fan_outs or len(route.queues) > MOST_QUEUES_PER_TURN:
        messages = RoutedMessages(route, entries, delayed, size, first_expiry, ordered, keep)
        fan_outs.append(FanOut(messages, broker.clock.turns))
        return
    _put_into(broker, route.queues, route, entries, delayed, size, first_expiry, ordered=ordered, keep=keep)


def advance_fan_outs(broker: Broker) -> None:
    """Put messages that are for very many queues into the next of them, in the order in which they came.

    A queue that fails keeps no other from them; those who sent them get no accept, and are closed.
    """
    fan_outs, left = broker.work.fan_outs, MOST_QUEUES_PER_TURN
    while fan_outs and left > 0:
        fan_out = fan_outs[0]
        left -= _advance(broker, fan_out, left)
        if not fan_out.is_over:
            continue
        fan_outs.popleft()
        for action in fan_out.after:
            try:
                action()
            except Exception:
                logger.exception("What waited for a message to be in all of its queues has failed")


def finish_fan_outs(broker: Broker) -> None:
    """The same until nothing is left, however long it takes: for those who need to find every message in its place."""
    while broker.work.fan_outs:
        advance_fan_outs(broker)


def _advance(broker: Broker, fan_out: FanOut, most: int) -> int:
    """Serve the next queues, `most` at most; how many they are, at least 1."""
    messages = fan_out.messages
    part = messages.route.queues[fan_out.reached : fan_out.reached + most]
    fan_out.reached += len(part)
    current = [queue for queue in part if broker.topology.is_current(queue)]
    queues, left = iter(current), -1
    while left != (left := length_hint(queues)):  # else it fails before any queue
        try:
            _put_into(
                broker,
                queues,
                messages.route,
                messages.entries,
                messages.delayed,
                messages.size,
                messages.first_expiry,
                ordered=messages.ordered,
                keep=messages.keep,
            )
        except Exception as error:
            at = len(current) - length_hint(queues) - 1
            _note_failure(broker, fan_out, current[at : at + 1], error)
        else:
            break
    return max(len(part), 1)


def _note_failure(broker: Broker, fan_out: FanOut, queues: list[Queue], error: Exception) -> None:
    """An exception is being handled: messages did not come into these queues, or did in part."""
    broker.interrupted_work.doubtful.update(dict.fromkeys(queues))
    if fan_out.failure is None:  # told once, however many queues fail
        logger.exception("Messages did not come into all of their queues; those that are in the log come at a restart")
    for each in broker.work.fan_outs:
        if each.turn == fan_out.turn:
            each.failure = each.failure or error


def _put_into(
    broker: Broker,
    queues: Iterable[Queue],
    route: Route,
    entries: list[Entry],
    delayed: list[Entry],
    size: int,
    first_expiry: int,
    *,
    ordered: bool,
    keep: bool,
) -> None:
    count = len(entries) + len(delayed)
    staged = bytes_in_log(entry[DATA] for entry in (*entries, *delayed)) if size > LARGE_BYTES else 0
    kinds: dict[tuple[bool, bool, int], tuple[list[Entry], list[Entry]]] = {}
    is_alike, ready = route.is_alike, broker.work.ready
    for queue in queues:
        until = first_expiry
        ours, ours_delayed = entries, delayed
        policy, totals = queue.policy, queue.totals
        if policy.max_ttl_us or not is_alike:
            kind = queue.is_logged, policy.keeps_all, policy.max_ttl_us
            if kind not in kinds:  # those of a kind share their entries
                own = partial(_own, broker, queue, keep)
                kinds[kind] = [own(entry) for entry in entries], [own(entry) for entry in delayed]
            ours, ours_delayed = kinds[kind]
            if broker.memory.spills and not is_alike:
                ours = spill.spilled(broker, broker.routes.route_of((queue,)), ours)
            if policy.max_ttl_us:
                until = min((entry[EXPIRES] for entry in ours), default=0)
        if until:
            due_times.note_expiry(broker, queue, until)
        if ordered:
            queue.put(ours)
        else:
            queue.arrivals.extend(ours)
        if queue.changes is not None:
            queue.note_change()
        totals.enqueued += count
        totals.enqueued_bytes += size
        queue.depth_bytes += size
        if staged:
            queue.staged_bytes += staged
        if queue.audit is not None:
            queue.audit.came((*ours, *ours_delayed))
        if delayed:
            due_times.delay(broker, queue, ours_delayed)
        if not queue.is_scheduled and queue.links.consumers and queue.awaits_output_of is None:
            queue.is_scheduled = True
            ready.append(queue)
        if queue.depth_bytes > policy.max_bytes or policy.max_messages:
            queue_limits.enforce(broker, queue, count, size)


def _own(broker: Broker, queue: Queue, keep: bool, entry: Entry) -> Entry:
    """A message that came now, as it is in this queue: bounded by its longest time to live, and logged if it is here.
    It is the same in each queue that logs the same, and has the same longest time to live.

    A queue must not acknowledge in the log what the log does not hold for it.
    """
    number, data, available, expires, flags = entry
    if outlives(flags) and not (
        queue.is_logged and (keep or queue.policy.keeps_all or message_head.read_head(data).durable)
    ):
        flags ^= LOGGED
    return number, data, available, bounded(expires, broker.clock.now_us, queue.policy.max_ttl_us), flags
