"""Whole messages, written and read: for the management client and for tests, never on the forwarding path.

Source: AMQP 1.0 part 3, section 3.2.
"""

# ruff: noqa: RUF009 - optional() returns a dataclass field, which ruff cannot see.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from penstock_amqp.errors import DecodeError
from penstock_amqp.messages.message_head import Header
from penstock_amqp.messages.sections import Section, end_of, section_at
from penstock_amqp.types import composites as kinds
from penstock_amqp.types.composites import Composite, from_value, optional, to_value
from penstock_amqp.types.decoder import EncodedList, decode
from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Described, ULong, Value

__all__ = ["Message", "Properties", "decode_message", "encode_message"]

_LISTS: Final = (0xC0, 0xD0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Properties(Composite):
    """3.2.4."""

    CODE: ClassVar[int] = 0x73
    NAME: ClassVar[str] = "amqp:properties:list"

    message_id: Value = optional(kinds.ANY)
    user_id: bytes | None = optional(kinds.BINARY)
    to: str | None = optional(kinds.STRING)
    subject: str | None = optional(kinds.STRING)
    reply_to: str | None = optional(kinds.STRING)
    correlation_id: Value = optional(kinds.ANY)
    content_type: str | None = optional(kinds.SYMBOL)
    content_encoding: str | None = optional(kinds.SYMBOL)
    absolute_expiry_time: int | None = optional(kinds.TIMESTAMP)
    creation_time: int | None = optional(kinds.TIMESTAMP)
    group_id: str | None = optional(kinds.STRING)
    group_sequence: int | None = optional(kinds.UINT)
    reply_to_group_id: str | None = optional(kinds.STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message with a body of one amqp-value. Bodies of data or of sequences are read, and written, as `None`."""

    header: Header = Header()
    annotations: Mapping[Value, Value] = field(default_factory=dict[Value, Value])
    properties: Properties = Properties()
    application_properties: Mapping[str, Value] = field(default_factory=dict[str, Value])
    body: Value = None
    entries: EncodedList | None = None
    """The body of a message that was read, if that is a longer list than is decoded at once: `body` is `None` then."""


def encode_message(message: Message) -> bytes:
    """Write a message; empty sections are left out. Raises `EncodeError`."""
    parts: list[bytes] = []
    if message.header != Header():
        parts.append(encode(to_value(message.header)))
    if message.annotations:
        parts.append(encode(Described(ULong(Section.MESSAGE_ANNOTATIONS), dict(message.annotations))))
    if message.properties != Properties():
        parts.append(encode(to_value(message.properties)))
    if message.application_properties:
        pairs = dict[Value, Value](message.application_properties.items())
        parts.append(encode(Described(ULong(Section.APPLICATION_PROPERTIES), pairs)))
    parts.append(encode(Described(ULong(Section.AMQP_VALUE), message.body)))
    return b"".join(parts)


def decode_message(data: bytes, longest_list: int | None = None) -> Message:
    """Read a message. Raises `DecodeError`.

    `longest_list`: a body that is a list of more bytes is not decoded yet, see `Message.entries`; None: all are.
    """
    entries: EncodedList | None = None
    found: dict[Section, Value] = {}
    at = 0
    while at < len(data):
        section, value_at = section_at(data, at)
        if section in (Section.DATA, Section.AMQP_SEQUENCE, None):
            at = end_of(data, value_at)
            continue
        if section is Section.AMQP_VALUE and longest_list is not None and data[value_at] in _LISTS:
            at = end_of(data, value_at)
            if at - value_at > longest_list:
                entries = EncodedList(data, value_at)
                continue
        found[section], at = decode(data, value_at)
    header = found.get(Section.HEADER, [])
    properties = found.get(Section.PROPERTIES, [])
    return Message(
        header=from_value(Described(ULong(Header.CODE), header), Header),
        annotations=_map(found, Section.MESSAGE_ANNOTATIONS),
        properties=from_value(Described(ULong(Properties.CODE), properties), Properties),
        application_properties={str(key): value for key, value in _map(found, Section.APPLICATION_PROPERTIES).items()},
        body=found.get(Section.AMQP_VALUE),
        entries=entries,
    )


def _map(found: Mapping[Section, Value], section: Section) -> dict[Value, Value]:
    value = found.get(section, {})
    if not isinstance(value, dict):
        raise DecodeError(f"section {section.name} of the message is not a map", 0)
    return value
