"""A message as `penstock receive` prints it: the body on a line, or everything as JSON. Pure.

A text is printed as it is; other AMQP values as JSON has them; bytes as text if they are text, else in hexadecimal.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, cast

from penstock_amqp.errors import DecodeError
from penstock_amqp.messages.message_codec import Message, decode_message
from penstock_amqp.messages.sections import Section, end_of, section_at
from penstock_amqp.types.decoder import decode
from penstock_amqp.types.plain_values import to_plain
from penstock_amqp.types.values import Value

__all__ = ["ReceivedMessage", "read_message"]

_PROPERTIES: Final = (
    ("messageId", "message_id"),
    ("to", "to"),
    ("subject", "subject"),
    ("replyTo", "reply_to"),
    ("correlationId", "correlation_id"),
    ("contentType", "content_type"),
    ("groupId", "group_id"),
)


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message that was read."""

    message: Message
    body: object
    """Plain Python, as JSON can hold it."""

    def line(self) -> str:
        """The body for a person, on one line, without characters that could trick a terminal."""
        text = self.body if isinstance(self.body, str) else json.dumps(self.body, ensure_ascii=False)
        return "".join(letter if letter.isprintable() or letter == "\t" else " " for letter in text)

    def document(self) -> dict[str, object]:
        """Header, properties, annotations and body for programs; what is absent is left out."""
        header, properties = self.message.header, self.message.properties
        found: dict[str, object] = {name: _plain(getattr(properties, field)) for name, field in _PROPERTIES}
        found["durable"] = bool(header.durable)
        found["priority"] = 4 if header.priority is None else header.priority
        found["deliveryCount"] = header.delivery_count or 0
        found["annotations"] = {str(key): _plain(value) for key, value in self.message.annotations.items()} or None
        applied = self.message.application_properties
        found["applicationProperties"] = {key: _plain(value) for key, value in applied.items()} or None
        found["body"] = self.body
        return {key: value for key, value in found.items() if value is not None or key == "body"}


def read_message(encoded: bytes) -> ReceivedMessage:
    """Read the sections of a message. What can't be read as AMQP is shown in hexadecimal."""
    try:
        message = decode_message(encoded)
        data = _data(encoded)
    except DecodeError:
        return ReceivedMessage(Message(), encoded.hex())
    return ReceivedMessage(message, _plain(message.body) if data is None else _text_or_hex(data))


def _data(encoded: bytes) -> bytes | None:
    """The data sections of the body together; None if it has none."""
    parts: list[bytes] = []
    at = 0
    while at < len(encoded):
        section, value_at = section_at(encoded, at)
        if section is Section.DATA:
            value, at = decode(encoded, value_at)
            parts.append(value if isinstance(value, bytes) else b"")
        else:
            at = end_of(encoded, value_at)
    return b"".join(parts) if parts else None


def _plain(value: Value) -> object:
    return _without_bytes(to_plain(value))


def _without_bytes(value: object) -> object:
    if isinstance(value, bytes):
        return _text_or_hex(value)
    if isinstance(value, list):
        return [_without_bytes(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: _without_bytes(item) for key, item in cast("dict[str, object]", value).items()}
    return value


def _text_or_hex(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.hex()
