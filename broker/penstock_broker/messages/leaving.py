"""The end of a message in a queue, whatever the reason: its bytes, what was remembered of it, its record.

Here because limits, policies, consumers and those who manage a broker all end messages, and none of them may forget a
part. Must not know why a message goes.
"""

from __future__ import annotations

from penstock_amqp.endpoint.events import Entry
from penstock_broker.log import EndReason
from penstock_broker.queues.queue import DATA, FLAGS, LOGGED, NUMBER, Queue
from penstock_broker.state.broker import Broker

__all__ = ["leave"]


def leave(broker: Broker, queue: Queue, entry: Entry, outcome: EndReason) -> None:
    """A message that is in no list of the queue any more has left it for good."""
    queue.depth_bytes -= len(entry[DATA])
    queue.forget(entry[NUMBER])
    if entry[FLAGS] & LOGGED:
        broker.log.ack(queue.incarnation, entry[NUMBER], outcome)
