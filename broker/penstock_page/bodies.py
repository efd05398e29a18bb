"""A message as a person reads it: headers in order, and the body decoded as far as it says what it is.

Pure. Bodies are AMQP values, texts or bytes; what a JMS client meant is in the annotation `x-opt-jms-msg-type`. What
can't be decoded is shown in hexadecimal with the letters beside it. Java objects are never decoded: to build one runs
code of the sender. Source: AMQP 1.0, 3.2.6 to 3.2.8; AMQP JMS Mapping, 3.2.4; docs/reference/management.md, PEEK.
"""

from __future__ import annotations

import json
from collections.abc import Sized
from dataclasses import dataclass
from typing import Final, cast

from penstock_amqp.errors import DecodeError
from penstock_amqp.types.decoder import decode_one
from penstock_amqp.types.plain_values import to_plain
from penstock_api.message_operations import PeekedMessage

__all__ = ["Header", "ShownMessage", "shown_message"]

JMS_TYPE: Final = "x-opt-jms-msg-type"
JMS_KINDS: Final = {"0": "Message", "1": "ObjectMessage", "2": "MapMessage", "3": "StreamMessage", "4": "BytesMessage"}
JMS_TEXT: Final = {"5": "TextMessage"}
OBJECT: Final = "1"
ROW: Final = 16
"""Bytes in one line of hexadecimal."""


@dataclass(frozen=True, slots=True)
class Header:
    """A name and a value, both possibly a client's."""

    name: str
    value: object


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMessage:
    """One message."""

    number: int
    id: str
    state: str
    available_ms: int
    delivery_count: int
    size_bytes: int
    headers: tuple[Header, ...]
    body_form: str
    """What the body is, in words."""
    body: str
    is_whole: bool


def shown_message(message: PeekedMessage) -> ShownMessage:
    """The message, decoded."""
    form, body = _body(message)
    return ShownMessage(
        number=message.number,
        id=message.message_id or f"#{message.number}",
        state=message.state,
        available_ms=message.available_ms,
        delivery_count=message.delivery_count,
        size_bytes=message.size_bytes,
        headers=_headers(message),
        body_form=form,
        body=body,
        is_whole=message.is_whole,
    )


def _headers(message: PeekedMessage) -> tuple[Header, ...]:
    fields = {
        "durable": message.durable,
        "priority": message.priority,
        "to": message.to,
        "subject": message.subject,
        "reply-to": message.reply_to,
        "correlation-id": message.correlation_id,
        "content-type": message.content_type,
        "group-id": message.group_id,
    }
    known = [Header(name, value) for name, value in fields.items() if value is not None]
    annotations = [Header(name, value) for name, value in sorted(message.annotations.items())]
    return (*known, *annotations, *(Header(name, value) for name, value in message.application_properties.items()))


def _body(message: PeekedMessage) -> tuple[str, str]:
    jms = str(message.annotations.get(JMS_TYPE, ""))
    named = {**JMS_KINDS, **JMS_TEXT}.get(jms)
    kind = f"JMS {named}" if named else "AMQP"
    if message.body_form == "Text":
        return f"{kind}, text", message.body
    octets = bytes.fromhex(message.body)
    if message.body_kind == "Value" and message.is_whole:
        try:
            value = to_plain(decode_one(octets))
        except DecodeError:
            return f"{kind}, a value that can't be decoded, {len(octets)} bytes", _hexadecimal(octets)
        return f"{kind}, {_form(value)}", _text(value)
    if jms == OBJECT:
        return f"{kind}, a Java object, which is not decoded, {len(octets)} bytes", _hexadecimal(octets)
    cut = "" if message.is_whole else ", of which this is the beginning"
    return f"{kind}, {len(octets)} bytes{cut}", _hexadecimal(octets)


def _form(value: object) -> str:
    if isinstance(value, dict | list):
        return f"{'map' if isinstance(value, dict) else 'list'} of {len(cast(Sized, value))}"
    return "null" if value is None else type(value).__name__


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=_plain)


def _plain(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _hexadecimal(octets: bytes) -> str:
    rows = (octets[at : at + ROW] for at in range(0, len(octets), ROW))
    return "\n".join(f"{at * ROW:04x}  {row.hex(' '):<{ROW * 3 - 1}}  {_letters(row)}" for at, row in enumerate(rows))


def _letters(row: bytes) -> str:
    return "".join(chr(octet) if 32 <= octet < 127 else "." for octet in row)
