"""Paces producers by the queues that their messages reach: where the broker itself is slow, not the consumers.

At the end of each turn's dispatch it is looked which queues the broker could not empty although a consumer would take
more. A producer whose messages reach one of them waits with its next credit, and those who wait get it as the queue
gives out (`penstock_core.intake_pace`). Once nobody would take more, they get all of it. Nothing has to tell this
module of a queue that was deleted, purged or lost its consumers: the queue is asked in every turn.

Written for speed: `give_credit` runs in every turn in overload, and not at all otherwise. Source:
docs/decisions/090-intake-pace.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import islice
from typing import Final

from penstock_amqp.endpoint.events import AVAILABLE
from penstock_broker.messages.dispatch import HELD_BACK_BYTES, VISIT_MESSAGES
from penstock_broker.messages.held_credit import takes_credit
from penstock_broker.messages.refuse import top_up
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import CreditHold, Producer, QueuePace
from penstock_core.intake_pace import BEHIND_US, FEW, LEAST_GRANT, QueueProgress, credit_for, progress

__all__ = ["give_credit", "is_kept_waiting", "uses_up_credit"]

logger = logging.getLogger(__name__)

MOST_QUEUES: Final = 64
"""Queues that pace producers at the same time. Where more are behind, they are so together, as on a fan-out exchange:
the first show how far the others are."""

PRODUCERS_PER_TURN: Final = 200
"""That may be looked at: about a tenth of a millisecond."""

CONSUMERS_ASKED: Final = 64
"""Of a queue with very many, one that would take more is found among these, or is assumed."""


def give_credit(broker: Broker, unfinished: Iterable[Queue]) -> bool:
    """Find out which queues are behind, and give those who wait what they may send. True if it has to be looked again
    in the next turn.

    `unfinished`: queues that had more to send when their part of this turn was over.
    """
    hold = broker.credit_hold
    behind = hold.behind
    now_us = broker.clock.now_us
    for queue in unfinished:
        if len(behind) >= MOST_QUEUES:
            break
        try:
            if queue in behind or not is_kept_waiting(queue, now_us):
                continue
            if _progress(queue, now_us, None) is QueueProgress.BEHIND:
                behind[queue] = QueuePace(queue.totals.delivered, now_us)
        except Exception:
            _leave_out(broker, queue)
    for queue, pace in tuple(behind.items()):
        try:
            found = _progress(queue, now_us, pace)
            pace.is_behind = found is QueueProgress.BEHIND
            if found is QueueProgress.LEFT_TO_CONSUMERS or not (pace.is_behind or pace.is_awaited):
                del behind[queue]
                continue
            delivered = queue.totals.delivered
            earned = credit_for(delivered - pace.delivered, is_behind=pace.is_behind)
            pace.credit = pace.credit + earned if pace.is_awaited else earned
            pace.delivered = delivered
            pace.is_awaited = False
        except Exception:
            _leave_out(broker, queue)
    if hold.paced:
        _give(broker, hold)
    return bool(behind or hold.paced)


def is_kept_waiting(queue: Queue, now_us: int) -> bool:
    """Whether messages have waited for so long that producers would be paced if a consumer had credit."""
    ready = queue.ready
    return bool(ready) and now_us - ready[0][AVAILABLE] > BEHIND_US and queue.waiting > FEW


def uses_up_credit(queue: Queue) -> bool:
    """Whether the next visit would use up all the credit that consumers have."""
    return all(consumer.link.credit < VISIT_MESSAGES for consumer in queue.links.consumers[:CONSUMERS_ASKED])


def _leave_out(broker: Broker, queue: Queue) -> None:
    """An exception was raised, which is a bug of ours: the queue paces nobody, and its messages go on."""
    broker.credit_hold.behind.pop(queue, None)
    if broker.warnings.may_warn(f"pace of {queue.name}"):
        logger.exception("Queue %r can't be asked how far it is; its producers are not paced", queue.name)


def _progress(queue: Queue, now_us: int, pace: QueuePace | None) -> QueueProgress:
    """`pace`: of a queue that was behind at the last look, or not long before."""
    waiting = queue.waiting
    waited_us = now_us - queue.ready[0][AVAILABLE] if queue.ready else 0
    is_wanted = waiting > 0 and _has_takers(queue)
    if pace is None:
        return progress(waiting, waited_us, was_behind=False, unwanted_us=0 if is_wanted else 1)
    if is_wanted:
        pace.wanted_us = now_us
    return progress(waiting, waited_us, was_behind=pace.is_behind, unwanted_us=now_us - pace.wanted_us)


def _has_takers(queue: Queue) -> bool:
    """Whether a consumer would take more now. One for which nothing of the backlog is, has been asked in its visit:
    then the queue has no work.
    """
    if not queue.has_work:
        return False
    asked = 0
    known = queue.links.with_credit
    some = None if known is None else (tuple(islice(known, CONSUMERS_ASKED + 1)),)
    for tier in some or queue.links.tiers or (queue.links.consumers,):
        for consumer in tier[: CONSUMERS_ASKED - asked]:
            link, connection = consumer.link, consumer.connection
            if (
                link.credit > 0
                and consumer.is_active
                and not connection.is_blocked
                and not connection.endpoint.is_congested(link, HELD_BACK_BYTES)
            ):
                return True
        asked += len(tier)
        if asked > CONSUMERS_ASKED:
            return True
    return False


def _give(broker: Broker, hold: CreditHold) -> None:
    """Give those who wait what they may send; who gets nothing is looked at again in the next turn."""
    for _ in range(min(PRODUCERS_PER_TURN, len(hold.paced))):
        producer = hold.paced.popleft()
        producer.is_held = False
        try:
            _give_one(broker, hold, producer)
        except Exception:
            broker.fail_connection(producer.connection)


def _give_one(broker: Broker, hold: CreditHold, producer: Producer) -> None:
    if not takes_credit(producer):
        return
    pace = hold.behind[producer.waits_for] if hold.waits(producer) and producer.waits_for is not None else None
    if pace is None or hold.holds(producer):
        top_up(producer)
        broker.work.touch(producer.connection)
        return
    pace.is_awaited = True
    if pace.credit >= min(LEAST_GRANT, producer.owed_credit):
        _grant(broker, producer, pace)
    if producer.owed_credit * 2 >= producer.window:
        hold.pace(producer)


def _grant(broker: Broker, producer: Producer, pace: QueuePace) -> None:
    credit = min(producer.owed_credit, pace.credit)
    pace.credit -= credit
    producer.owed_credit -= credit
    producer.connection.endpoint.credit(producer.link, credit)
    broker.work.touch(producer.connection)
