"""Single fields of an encoded message, read when something asks for them: a binding, a selector, a group, a delay.

Part of the forwarding path if such a feature is used; written without helper functions for speed. Measured on CPython
3.11 without the compiled readers, with a message as the JMS client sends it: 2.1 us for the subject, 1.7 us for an
annotation, 2.9 us for one of three properties.

Each function takes the message and the offset at which a section begins (`Head.start`), and raises `DecodeError` if
the part that it reads is malformed. Source: AMQP 1.0 part 3, sections 3.2.3 to 3.2.5.

Two readers are compiled if that was built (`penstock_native/fields.c`). What they don't know, and whatever is
malformed, is read here. Source: docs/decisions/092-compiled-engine.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final

import penstock_native
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages.sections import ONE_BYTE_SIZE, WIDTHS, Section, end_of, find_section
from penstock_amqp.types.decoder import decode
from penstock_amqp.types.encoder import encode
from penstock_amqp.types.format_codes import FIXED
from penstock_amqp.types.values import Symbol, UInt, ULong, Value

__all__ = [
    "CLASSES",
    "Field",
    "annotation",
    "application_properties",
    "encoded_keys",
    "expiry_and_group",
    "group_fields",
    "picked_annotations",
    "properties_field",
]


class Field(IntEnum):
    """The fields of the properties section; the value is the position (3.2.4)."""

    MESSAGE_ID = 0
    USER_ID = 1
    TO = 2
    SUBJECT = 3
    REPLY_TO = 4
    CORRELATION_ID = 5
    CONTENT_TYPE = 6
    CONTENT_ENCODING = 7
    ABSOLUTE_EXPIRY_TIME = 8
    CREATION_TIME = 9
    GROUP_ID = 10
    GROUP_SEQUENCE = 11
    REPLY_TO_GROUP_ID = 12


_native: Any = penstock_native.messages

_ANNOTATIONS: Final = Section.MESSAGE_ANNOTATIONS
_APPLICATION: Final = Section.APPLICATION_PROPERTIES
"""An attribute of an enum's class takes long to find."""

CLASSES: Final = tuple(
    {**{code: make for code, (_, make) in FIXED.items()}, 0x43: UInt, 0x44: ULong}.get(code) for code in range(256)
)
"""By format code, what makes a value of its number, for the compiled readers; None: no number."""


def properties_field(data: bytes, start: int, field: Field) -> Value:
    """Return a field of the properties section; None if it, or the section, is absent."""
    if _native is not None:
        value: Value = _native.properties_field(data, start, field, CLASSES)
        if value is not NotImplemented:
            return value
    return _properties_field(data, start, field)


def _properties_field(data: bytes, start: int, field: Field) -> Value:
    section = find_section(data, start, Section.PROPERTIES)
    if section < 0:
        return None
    at, count = _items(data, section, 0xC0)
    if count <= field:
        return None
    return _value(data, _step(data, at, field))


def group_fields(data: bytes, start: int) -> tuple[Value, Value]:
    """Return group-id and group-sequence; None for what is absent, and for a sequence that can't be read."""
    section = find_section(data, start, Section.PROPERTIES)
    if section < 0:
        return None, None
    at, count = _items(data, section, 0xC0)
    if count <= Field.GROUP_ID:
        return None, None
    at = _step(data, at, Field.GROUP_ID)
    group = _value(data, at)
    if count <= Field.GROUP_SEQUENCE:
        return group, None
    try:
        return group, _value(data, end_of(data, at))
    except DecodeError:
        return group, None


def expiry_and_group(data: bytes, start: int) -> tuple[Value, bool]:
    """Return absolute-expiry-time, None if it is absent, and whether there is a group-id: one that can't be read, or is
    empty, is none.
    """
    section = find_section(data, start, Section.PROPERTIES)
    if section < 0:
        return None, False
    at, count = _items(data, section, 0xC0)
    if count <= Field.ABSOLUTE_EXPIRY_TIME:
        return None, False
    at = _step(data, at, Field.ABSOLUTE_EXPIRY_TIME)
    expiry = _value(data, at)
    if count <= Field.GROUP_ID:
        return expiry, False
    try:
        return expiry, bool(_value(data, _step(data, at, Field.GROUP_ID - Field.ABSOLUTE_EXPIRY_TIME)))
    except DecodeError:
        return expiry, False


def annotation(data: bytes, start: int, key: str) -> Value:
    """Return a message-annotation (milliseconds for `x-opt-delivery-time`); None if it is absent."""
    return _picked(data, start, _ANNOTATIONS, _encoded_symbol(key)).get(key)


def picked_annotations(data: bytes, start: int, wanted: dict[bytes, str]) -> dict[str, Value]:
    """Return those message-annotations that are `wanted` (by encoded symbol) and present; others are skipped."""
    return _picked(data, start, _ANNOTATIONS, wanted)


@lru_cache(maxsize=256)
def _encoded_symbol(key: str) -> dict[bytes, str]:
    return {encode(Symbol(key)): key}


def application_properties(data: bytes, start: int, wanted: dict[bytes, str]) -> dict[str, Value]:
    """Return those application properties that are `wanted` (see `encoded_keys`) and present; others are skipped."""
    return _picked(data, start, _APPLICATION, wanted)


def encoded_keys(names: Iterable[str]) -> dict[bytes, str]:
    """Encode property names once, so that they can be compared with the bytes of messages."""
    return {encode(name): name for name in names}


def _picked(data: bytes, start: int, section: Section, wanted: dict[bytes, str]) -> dict[str, Value]:
    """The values of a section that is a map, for those keys that are `wanted` and present."""
    if _native is not None:
        found: dict[str, Value] = _native.picked(data, start, section, wanted, CLASSES)
        if found is not NotImplemented:
            return found
    return _pick(data, start, section, wanted)


def _items(data: bytes, at: int, narrow: int) -> tuple[int, int]:
    """Return (offset of the first item, number of items) of the list (0xC0) or map (0xC1) at `at`."""
    end = len(data)
    code = data[at] if at < end else -1
    if code == narrow and at + 2 < end and 0 < data[at + 1] <= end - at - 2:
        return at + 3, data[at + 2]
    end_of(data, at)
    if code == narrow + 0x10 and at + 9 <= len(data):
        return at + 9, int.from_bytes(data[at + 5 : at + 9])
    if code == 0x45 and narrow == 0xC0:
        return at + 1, 0
    raise DecodeError(f"a {'list' if narrow == 0xC0 else 'map'} was expected, not format code 0x{code:02x}", at)


def _step(data: bytes, at: int, count: int) -> int:
    """The offset behind `count` values."""
    try:
        for _ in range(count):
            width = WIDTHS[data[at]]
            if width > 0:
                at += width
            elif width == ONE_BYTE_SIZE:
                at += 2 + data[at + 1]
            else:
                at = end_of(data, at)
    except IndexError:
        raise DecodeError("the message ends within a value", at) from None
    return at


def _pick(data: bytes, start: int, section: Section, wanted: dict[bytes, str]) -> dict[str, Value]:
    at = find_section(data, start, section)
    if at < 0:
        return {}
    at, count = _items(data, at, 0xC1)
    found: dict[str, Value] = {}
    name_of = wanted.get
    try:
        for _ in range(count // 2):
            value_at = at + 2 + data[at + 1] if WIDTHS[data[at]] == ONE_BYTE_SIZE else end_of(data, at)
            name = name_of(data[at:value_at])
            if name is not None:
                found[name] = _value(data, value_at)
                if len(found) == len(wanted):
                    break
            width = WIDTHS[data[value_at]]
            if width > 0:
                at = value_at + width
            elif width == ONE_BYTE_SIZE:
                at = value_at + 2 + data[value_at + 1]
            else:
                at = end_of(data, value_at)
    except IndexError:
        raise DecodeError("the message ends within a value", at) from None
    if at > len(data):
        raise DecodeError("the message ends within a value", at)
    return found


def _value(data: bytes, at: int) -> Value:
    length = len(data)
    code = data[at] if at < length else -1
    if code == 0xA1:  # a string, by far the most frequent
        end = at + 2 + data[at + 1] if at + 1 < length else end_of(data, at)
        try:
            return data[at + 2 : end if end <= length else end_of(data, at)].decode()
        except UnicodeDecodeError:
            raise DecodeError("text that is not utf-8", at) from None
    if code == 0x40:
        return None
    fixed = FIXED.get(code)
    if fixed is not None:
        layout, make = fixed
        try:
            return make(layout.unpack_from(data, at + 1)[0])
        except struct.error:
            raise DecodeError("the message ends within a value", at) from None
    return decode(data, at)[0]
