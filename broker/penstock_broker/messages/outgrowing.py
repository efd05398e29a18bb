"""Messages that are longer than a link takes (`max-message-size` of its attach): not sent there, and not lost.

They stay in their place for a consumer that takes them, as those do that a consumer calls undeliverable here; no
delivery counts. Must not know why a link takes no more. Source: AMQP 1.0 part 2, 2.7.3.
"""

from __future__ import annotations

import logging
from typing import Final

from penstock_amqp.endpoint.events import Entry
from penstock_broker.queues.queue import DATA, NUMBER, Queue
from penstock_broker.queues.reader import Reader
from penstock_broker.state.broker import Broker

__all__ = ["fitting"]

logger = logging.getLogger(__name__)

HEADER_BYTES: Final = 24
"""What a delivery-count and a time to live add to a message, at most."""


def fitting(broker: Broker, queue: Queue, consumer: Reader, entries: list[Entry]) -> list[Entry]:
    """Those of `entries`, taken for a consumer whose link has a limit, that it takes. The others are put back, and what
    is longer is kept from the consumer from then on.
    """
    link = consumer.link
    header = HEADER_BYTES if queue.has_expiry or queue.seen or queue.attempts else 0
    too_long = [entry for entry in entries if len(entry[DATA]) + header > link.max_bytes]
    if not too_long:
        return entries
    queue.backlog.limit(consumer, link.max_bytes)
    for entry in too_long:
        if len(entry[DATA]) <= link.max_bytes:
            queue.exclude(consumer, entry[NUMBER])
        queue.backlog.put_back(entry)
    broker.schedule(queue)  # what lies behind may be for this consumer
    if broker.rarely.may_say(f"too long {queue.name}", broker.now_ms):
        logger.warning(
            "Queue %r holds a message of %d bytes, which waits for another consumer: link %r of %s takes at most %d "
            "(max-message-size of its attach)",
            queue.name,
            len(too_long[0][DATA]),
            link.name,
            consumer.connection.peer,
            link.max_bytes,
        )
    put_back = {entry[NUMBER] for entry in too_long}
    return [entry for entry in entries if entry[NUMBER] not in put_back]
