"""Refuses messages of producers: by the outcome `rejected`, or, where the sender would not learn of it, by closing the
link. Also gives producers credit for what was answered.

A link whose outcomes lack `rejected` is closed, and so is one whose sender settled a message that can't be read. The
error then names the message by its delivery-tag. Source: AMQP 1.0 part 3, 3.4.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.events import AmqpError
from penstock_broker.state.links import Producer

__all__ = [
    "DELIVERY_TAG",
    "UNREADABLE",
    "break_link",
    "refuse",
    "refuse_unreadable",
    "tagged",
    "top_up",
    "unreadable",
    "when_answered",
]

DELIVERY_TAG: Final = "delivery-tag"
"""Key of an error's info: the message that is the cause."""

UNREADABLE: Final = "amqp:decode-error"
"""Condition of a message that can't be read."""


def top_up(producer: Producer) -> None:
    """Give credit for what was answered, if it has become half a window. While the volume is nearly full, a producer of
    durable messages waits for it, and any while memory is short (`messages.held_credit`), or while a queue is behind
    that its messages reached (`messages.pacing`).
    """
    if producer.owed_credit * 2 >= producer.window and producer.link.is_open:
        hold = producer.hold
        if hold.is_on and hold.holds(producer):
            hold.keep(producer)
            return
        if producer.waits_for is not None and hold.waits(producer):
            hold.pace(producer)
            return
        producer.connection.endpoint.credit(producer.link, producer.owed_credit)
        producer.owed_credit = 0


def unreadable(error: Exception) -> AmqpError:
    """Why a message that can't be read is not taken."""
    return AmqpError(UNREADABLE, f"The message can't be read: {error}")


def refuse_unreadable(producer: Producer, delivery: Ptr, settled: bool, error: AmqpError) -> None:
    """Refuse a message that can't be read. If its sender has settled it, the link is closed: no outcome can tell it."""
    if settled:
        break_link(producer, delivery, error)
    else:
        refuse(producer, delivery, settled, error)


def refuse(producer: Producer, delivery: Ptr, settled: bool, error: AmqpError) -> None:
    """Reject one message, or close the link if it can't carry that outcome. A message sent settled is just dropped."""
    if settled:
        producer.connection.endpoint.settle([delivery])
        producer.owed_credit += 1
        top_up(producer)
    elif not producer.can_reject:
        break_link(producer, delivery, error)
    else:
        _reject(producer, [delivery], error)


def break_link(producer: Producer, delivery: Ptr, error: AmqpError) -> None:
    """Have the link closed with the tag of the message that is the cause; it and those behind it are not taken."""
    if producer.broken is None:
        producer.broken = tagged(producer, delivery, error)


def tagged(producer: Producer, delivery: Ptr, error: AmqpError) -> AmqpError:
    """The error with the tag of the message that is the cause."""
    return replace(error, info={**error.info, DELIVERY_TAG: producer.connection.endpoint.tag_of(delivery)})


def when_answered(producer: Producer, action: Callable[[], None]) -> None:
    """Answer a message: at once, or, if the attach of its link waits for the log, behind the answer to that. Nothing
    is said if the link ends before.
    """
    if producer.link.is_answered:
        action()
    elif producer.link.context is producer:
        producer.after_reply.append(action)


def _reject(producer: Producer, deliveries: list[Ptr], error: AmqpError) -> None:
    when_answered(producer, partial(producer.connection.endpoint.reject, deliveries, error))
    producer.owed_credit += len(deliveries)
    top_up(producer)
