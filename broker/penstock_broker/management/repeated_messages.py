"""The messages of a queue whose delivery failed most often, as READ and QUERY return them.

Source: `penstock_api.state_documents.RepeatedMessage`.
"""

from __future__ import annotations

from typing import Final

from penstock_amqp.endpoint.events import AVAILABLE, DATA, NUMBER, Entry
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages.fields import Field, properties_field
from penstock_amqp.messages.message_head import read_head
from penstock_amqp.types.values import Value
from penstock_broker.management.message_view import text_of
from penstock_broker.queue.queue import Queue

__all__ = ["MAX_REPEATED", "repeated_messages", "shown_id"]

MAX_REPEATED: Final = 5
"""Messages that a document lists."""

MAX_ID: Final = 255
"""Characters of a message-id."""


def repeated_messages(queue: Queue) -> list[Value]:
    """The worst messages of the queue, the one with most failed deliveries first; empty in a healthy queue."""
    repeated = queue.redelivery.repeated
    if not repeated:
        return []
    return [
        {
            "id": _id(entry),
            "deliveryCount": count,
            "availableMs": entry[AVAILABLE] // 1000,
            "state": _state(queue, entry),
        }
        for entry, count in repeated.worst(MAX_REPEATED)
    ]


def _state(queue: Queue, entry: Entry) -> str:
    if queue.redelivery.repeated.is_in_flight(entry[NUMBER]):
        return "InFlight"
    return "Scheduled" if entry[NUMBER] in queue.stranded or entry in queue.delayed else "Ready"


def _id(entry: Entry) -> str:
    """The message-id; the number in the queue if there is none that can be read."""
    return shown_id(entry) or f"#{entry[NUMBER]}"


def shown_id(entry: Entry) -> str:
    """The message-id as text, cut to `MAX_ID` characters; empty if there is none that can be read.

    The sender chose it, and it ends up in terminals and in the status of resources: characters that are not printable
    are replaced.
    """
    data = entry[DATA]
    try:
        found = properties_field(data, read_head(data).start, Field.MESSAGE_ID)
    except DecodeError:
        found = None
    text = (text_of(found) or "")[:MAX_ID]
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
