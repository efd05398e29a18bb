"""What the header says when a message is sent to a link: how often its delivery failed, how long it still has to live,
and whether another link may have had it.

Part of the forwarding path. Source: AMQP 1.0 part 3, 3.2.1.
"""

from __future__ import annotations

from penstock_amqp.endpoint.events import DATA, NUMBER, Entry
from penstock_amqp.messages.message_head import read_head, with_header
from penstock_broker.messages.due_times import deadline
from penstock_broker.queue.queue import Queue

__all__ = ["as_sent", "as_shown"]


def as_sent(data: bytes, count: int, expires_us: int, now_us: int, *, is_first: bool) -> bytes:
    """The message with `count` more failed deliveries, with the time that it has left (`expires_us`: microseconds since
    the epoch, 0: for ever), and without first-acquirer unless `is_first`.
    """
    head = read_head(data)
    left_ms = max((expires_us - now_us) // 1000, 1) if expires_us else None
    return with_header(data, head, ttl=left_ms, delivery_count=head.delivery_count + count, first_acquirer=is_first)


def as_shown(queue: Queue, entry: Entry, now_us: int) -> bytes:
    """The message as a consumer would get it now, for a browser; the entry's own bytes if nothing is different."""
    data, number = entry[DATA], entry[NUMBER]
    count, expires_us = queue.redelivery.delivery_count(number), deadline(queue, entry)
    is_first = number > queue.delivered_up_to  # else a link may have had it, or has it now
    if count or expires_us or (not is_first and read_head(data).first_acquirer):
        return as_sent(data, count, expires_us, now_us, is_first=is_first)
    return data
