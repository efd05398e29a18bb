"""The annotation that names the queue from which a dead letter comes. Only the broker may write it.

REDRIVE puts a dead letter back into the queue that this annotation names, past permissions and filters, so a client
must not be able to write it: it is removed from what a producer sends, and a `modified` outcome can't add it. Part of
the forwarding path: one search in the annotations of a message that begins otherwise than the one before. Must not know
queues. Source: docs/reference/management.md, "The messages of a queue".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock_amqp.errors import DecodeError
from penstock_amqp.messages import message_head
from penstock_amqp.messages.sections import Section, end_of, section_at
from penstock_amqp.types.values import Symbol, Value

__all__ = ["ORIGIN", "client_annotations", "without_origin"]

ORIGIN: Final = "x-opt-ORIG-QUEUE"
_TEXT: Final = ORIGIN.encode()


def without_origin(data: bytes) -> bytes:
    """Return a message from a client as it is, but for an origin that it claims. Raises `DecodeError` if its head is
    malformed, or annotations are that may hold one, or there are two sections of them: the second would show once the
    first is gone.
    """
    head = message_head.read_head(data)
    section, at = section_at(data, head.start)
    if section is not Section.MESSAGE_ANNOTATIONS:
        return data
    end = end_of(data, at)
    if section_at(data, end)[0] is Section.MESSAGE_ANNOTATIONS:
        raise DecodeError("the message has two sections of message-annotations", end)
    if data.find(_TEXT, at, end) < 0:  # however the key is encoded
        return data
    return message_head.with_annotations(data, head, {}, without=(ORIGIN,))


def client_annotations(annotations: Mapping[Symbol, Value]) -> dict[Symbol, Value]:
    """What of a client's annotations may be written on a message."""
    return {key: value for key, value in annotations.items() if key != ORIGIN}
