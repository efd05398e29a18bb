"""Messages that leave their queue without being accepted: rejected, failed too often, or expired.

They go to the address that the queue's policy names, as new messages whose annotations say where they come from and
why. They are put there first and acknowledged here second, in one block of the log, so a crash duplicates a message at
worst. If the address does not exist or takes nothing, the message is *stranded*: it stays in the queue's count and
bytes, no consumer gets it, and it is tried again every second. After a restart a stranded message waits in its queue
again.

Source: docs/decisions/033-dead-letters.md; docs/concepts/messages.md, "Dead letters".
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from functools import partial
from itertools import islice
from typing import Final, assert_never

from penstock_amqp.endpoint.events import DATA, FLAGS, NUMBER, AmqpError, Entry, Outcome, Settled
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages import message_head
from penstock_amqp.messages.times import DELAYS, without_expiry
from penstock_amqp.types.values import Symbol, Timestamp, UInt, Value
from penstock_broker.errors import amqp_error
from penstock_broker.log import EndReason
from penstock_broker.messages import due_times
from penstock_broker.messages.dead_letter_origin import ORIGIN
from penstock_broker.messages.due_times import deadline
from penstock_broker.messages.internal_publish import destination_of, publish_internally
from penstock_broker.messages.queue_limits import remove
from penstock_broker.queue.flags import outlives
from penstock_broker.queue.queue import LOGGED, Queue, Stranded
from penstock_broker.state.broker import Broker
from penstock_broker.topology.records import Subscription
from penstock_core.dead_letters import DeathReason, Drop, Forward, Requeue, after_expiry, after_failure, after_rejection
from penstock_core.reason import Refuse

__all__ = ["ANNOTATIONS", "added_bytes", "count_failure", "expired", "makes_dead_letter", "rejected"]

logger = logging.getLogger(__name__)

ANNOTATIONS: Final = (
    ORIGIN,
    "x-opt-ORIG-ADDRESS",
    "x-opt-ORIG-SUBSCRIPTION",
    "x-opt-death-reason",
    "x-opt-death-time",
    "x-opt-death-delivery-count",
    "x-opt-death-condition",
    "x-opt-death-description",
    "x-opt-ACTUAL-EXPIRY",
)
"""All annotations that are added to a message which is sent on."""

_ANNOTATIONS_BYTES: Final = 4096
"""More than `ANNOTATIONS` take together, without what the consumer said."""

RETRY_MS: Final = 1000
RETRIED_AT_ONCE: Final = 200
TRIED_IN_VAIN: Final = 8
"""Messages besides the oldest that are tried with an address which takes none of them."""
_LOOKED_THROUGH: Final = 10_000
"""Messages, the oldest ones, among which these are: to step over one takes some 20 ns."""


def rejected(broker: Broker, queue: Queue, entry: Entry, error: AmqpError | None) -> None:
    """A consumer rejected the message, which is in none of the queue's lists any more and not in flight."""
    fate = after_rejection(queue.policy.dead_letter)
    match fate:
        case Forward():
            _send_on(broker, queue, Stranded(entry, fate.cause, error), fate.address)
        case Drop():
            queue.totals.dropped += 1
            remove(broker, queue, entry, EndReason.REJECTED)
            if broker.warnings.may_warn(f"rejected {queue.name}"):
                logger.warning(
                    "A consumer of %r rejects messages; they are dropped, because it has no deadLetter", queue.name
                )
        case _:
            assert_never(fate)


def expired(broker: Broker, queue: Queue, entry: Entry) -> None:
    """The time to live of the message, which is in none of the queue's lists any more, has passed."""
    fate = after_expiry(queue.policy.expiry_address)
    match fate:
        case Forward():
            _send_on(broker, queue, Stranded(entry, fate.cause, None), fate.address)
        case Drop():
            queue.totals.expired += 1
            remove(broker, queue, entry, EndReason.EXPIRED)
        case _:
            assert_never(fate)


def count_failure(broker: Broker, queue: Queue, entry: Entry) -> bool:
    """Count one failed delivery of a message in flight. True if it was one too many: then the message is not in flight
    any more, and on its way; else it is the caller's to put back.
    """
    number = entry[NUMBER]
    attempts = queue.fail(entry)
    fate = after_failure(attempts, queue.policy.max_deliveries, queue.policy.dead_letter)
    match fate:
        case Forward():
            queue.in_flight -= 1
            _send_on(broker, queue, Stranded(entry, fate.cause, None), fate.address)
            return True
        case Requeue():
            if entry[FLAGS] & LOGGED:
                broker.log.delivery_count(queue.incarnation, number, attempts)
            return False
        case _:
            assert_never(fate)


def makes_dead_letter(queue: Queue, end: Settled) -> bool:
    """Whether that end of a delivery in flight makes a dead letter of its message."""
    match end.outcome:
        case Outcome.REJECTED:
            return isinstance(after_rejection(queue.policy.dead_letter), Forward)
        case Outcome.MODIFIED if end.failed:
            attempts = queue.redelivery.attempts.get(end.held[1][NUMBER], 0) + 1
            return isinstance(after_failure(attempts, queue.policy.max_deliveries, queue.policy.dead_letter), Forward)
        case _:
            return False


def added_bytes(error: AmqpError | None) -> int:
    """By how many bytes at most a message becomes longer when it is sent on; `error`: what its consumer said."""
    said = 4 * (len(error.condition) + len(error.description)) if error is not None else 0
    return _ANNOTATIONS_BYTES + said


def _send_on(broker: Broker, queue: Queue, letter: Stranded, address: str) -> None:
    refused = _try(broker, queue, letter, address)
    if refused is None:
        return
    if not broker.retries_stranded:
        broker.retries_stranded = True
        broker.clock.after(RETRY_MS, partial(_retry, broker))
    broker.stranded[queue] = None
    queue.stranded[letter.entry[NUMBER]] = letter
    queue.note_change()
    queue.redelivery.repeated.came_back(letter.entry[NUMBER])
    if broker.warnings.may_warn(f"stranded {queue.name}"):
        logger.warning(
            "Messages of %r (%s) can't go to %r and are kept: %s",
            queue.name,
            letter.cause.value,
            address,
            refused.description,
        )


def _try(broker: Broker, queue: Queue, letter: Stranded, address: str) -> AmqpError | None:
    """Put the message where it goes, and take it off the queue; or say why it isn't taken there."""
    target = destination_of(broker, address)
    if isinstance(target, Refuse):
        return amqp_error(target)
    entry, cause = letter.entry, letter.cause
    refused = publish_internally(broker, target, _annotated(broker, queue, letter), keep=outlives(entry[FLAGS]))
    if refused is not None:
        return refused
    try:
        if cause is DeathReason.EXPIRED:
            queue.totals.expired += 1
            remove(broker, queue, entry, EndReason.EXPIRED)
        else:
            queue.totals.dead_lettered += 1
            remove(broker, queue, entry, EndReason.DEAD_LETTERED)
    except Exception:
        broker.interrupted_work.leave(queue, (entry,))  # it is at its destination
        raise
    return None


def _retry(broker: Broker) -> None:
    """Try stranded messages again, by what the policies say now: the oldest first, in order.

    A destination that refuses one may take others, as one that has no room for a message that is too large. So some
    others are tried, too, from another place each time, and where they go they go before the one that can't.
    """
    _go_on(broker, _attempts(broker))


def _go_on(broker: Broker, attempts: Iterator[None]) -> None:
    """Try the next ones, until this turn's time is over: a thousand queues may wait for one destination."""
    is_over = broker.clock.stint()
    for _ in attempts:
        if is_over():
            broker.clock.after(0, partial(_go_on, broker, attempts))
            return
    broker.retries_stranded = bool(broker.stranded)
    if broker.stranded:
        broker.clock.after(RETRY_MS, partial(_retry, broker))


def _attempts(broker: Broker) -> Iterator[None]:
    """A step for each message that is tried."""
    for queue in list(broker.stranded):
        try:
            yield from _attempts_of(broker, queue)
        except Exception:
            logger.exception("Stranded messages of %r could not be tried again; they are in a second", queue.name)


def _attempts_of(broker: Broker, queue: Queue) -> Iterator[None]:
    was_refused = yield from _try_again(broker, queue, list(islice(queue.stranded, RETRIED_AT_ONCE)), 1)
    if was_refused and queue.stranded:
        places = min(len(queue.stranded), _LOOKED_THROUGH)
        first = broker.clock.now_us // (RETRY_MS * 1000) * TRIED_IN_VAIN % places
        others = list(islice(queue.stranded, first, first + RETRIED_AT_ONCE))
        yield from _try_again(broker, queue, others, TRIED_IN_VAIN)
    if not queue.stranded:
        broker.stranded.pop(queue, None)


def _try_again(broker: Broker, queue: Queue, numbers: list[int], most: int) -> Generator[None, None, bool]:
    """Try these messages, until an address has refused `most` of them. True if one was refused."""
    refused: dict[str, int] = {}
    for number in numbers:
        letter = queue.stranded.get(number)
        if letter is None:
            continue  # it has left in another turn
        address = queue.policy.expiry_address if letter.cause is DeathReason.EXPIRED else queue.policy.dead_letter
        if address is None:
            del queue.stranded[number]
            _without_destination(broker, queue, letter)
        elif refused.get(address, 0) < most:
            if _try(broker, queue, letter, address) is None:
                del queue.stranded[number]
            else:
                refused[address] = refused.get(address, 0) + 1
        else:
            continue
        yield
    return bool(refused)


def _without_destination(broker: Broker, queue: Queue, letter: Stranded) -> None:
    """The policy names no destination any more."""
    match letter.cause:
        case DeathReason.REJECTED:
            rejected(broker, queue, letter.entry, letter.error)
        case DeathReason.EXPIRED:
            expired(broker, queue, letter.entry)
        case DeathReason.DELIVERY_LIMIT:
            due_times.put_in_place(broker, queue, letter.entry)
        case _:
            assert_never(letter.cause)


def _annotated(broker: Broker, queue: Queue, letter: Stranded) -> bytes:
    """The message as it goes to its destination: without an expiry or delay, with what happened to it."""
    data, cause = letter.entry[DATA], letter.cause
    subscription = broker.topology.by_incarnation.get(queue.incarnation)
    annotations: dict[Symbol, Value] = {
        Symbol(ORIGIN): queue.name,
        Symbol("x-opt-ORIG-ADDRESS"): queue.name,
        Symbol("x-opt-death-reason"): cause.value,
        Symbol("x-opt-death-time"): Timestamp(broker.clock.now_us // 1000),
        Symbol("x-opt-death-delivery-count"): UInt(queue.redelivery.attempts.get(letter.entry[NUMBER], 0)),
    }
    if isinstance(subscription, Subscription):
        annotations[Symbol("x-opt-ORIG-ADDRESS")] = subscription.binding.exchange
        annotations[Symbol("x-opt-ORIG-SUBSCRIPTION")] = subscription.identity.name
    if cause is DeathReason.EXPIRED:
        annotations[Symbol("x-opt-ACTUAL-EXPIRY")] = deadline(queue, letter.entry) // 1000
    if letter.error is not None:
        annotations[Symbol("x-opt-death-condition")] = letter.error.condition
        annotations[Symbol("x-opt-death-description")] = letter.error.description
    head = message_head.read_head(data)
    try:
        data = without_expiry(data, head)
        return message_head.with_annotations(data, message_head.read_head(data), annotations, without=DELAYS)
    except DecodeError:  # what can't be read is sent on as it is
        return message_head.with_header(data, head, ttl=None, delivery_count=0)
