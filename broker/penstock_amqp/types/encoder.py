"""Writes the AMQP 1.0 type system, each value in its shortest encoding.

Must not know frames or performatives. Source: AMQP 1.0 part 1, sections 1.1 to 1.6.
"""

from __future__ import annotations

import struct
import uuid
from typing import cast

from penstock_amqp.errors import EncodeError
from penstock_amqp.types import format_codes, values
from penstock_amqp.types.values import Array, Described, Value

__all__ = ["array_of", "encode"]


def encode(value: object) -> bytes:
    """Write `value` in its shortest encoding.

    Takes what `decode` returns, and tuples as lists. Raises `EncodeError` for anything else.
    """
    if isinstance(value, Described):
        return b"\x00" + encode(value.descriptor) + encode(value.value)
    code = _code_of(value)
    if code in (0xD0, 0xD1, 0xF0):
        return _shortest_compound(code, value)
    return bytes((code,)) + _payload(code, value)


def _shortest_compound(wide: int, value: object) -> bytes:
    body, count = _compound_body(value)
    # The one-byte size counts the one-byte count as well.
    if len(body) < 255 and count < 256:
        return bytes((wide - 0x10,)) + _with_size(format_codes.U8, format_codes.U8.pack(count) + body)
    return bytes((wide,)) + _with_size(format_codes.U32, format_codes.U32.pack(count) + body)


def array_of(items: tuple[Value, ...]) -> Array:
    """Make an array of items of one type, in a format code that all of them fit.

    Raises `EncodeError` if they are of several types. An empty array is one of symbols.
    """
    codes = {_code_of(item) for item in items} or {0xA3}
    for narrow, wide in _WIDENED:
        if codes <= set(narrow) and len(codes) > 1:
            codes = {wide}
    if len(codes) > 1 or 0 in codes:
        raise EncodeError("the items of an array have one type; a descriptor goes into Array.descriptor")
    return Array(codes.pop(), items)


_WIDENED = (
    ((0x43, 0x52, 0x70), 0x70),
    ((0x44, 0x53, 0x80), 0x80),
    ((0x54, 0x71), 0x71),
    ((0x55, 0x81), 0x81),
    ((0x41, 0x42), 0x56),
    ((0xA0, 0xB0), 0xB0),
    ((0xA1, 0xB1), 0xB1),
    ((0xA3, 0xB3), 0xB3),
    ((0x45, 0xD0), 0xD0),
)
"""Format codes of one type, and the one of them that carries every value of it."""

_FIXED_CODE: dict[type, int] = {
    values.UByte: 0x50,
    values.Byte: 0x51,
    values.UShort: 0x60,
    values.Short: 0x61,
    values.Float32: 0x72,
    values.Decimal32: 0x74,
    float: 0x82,
    values.Timestamp: 0x83,
    values.Decimal64: 0x84,
    values.Decimal128: 0x94,
    uuid.UUID: 0x98,
    values.Char: 0x73,
    Described: 0x00,
}

_SIGNED_CODES: dict[type, tuple[int, int]] = {values.Int: (0x54, 0x71), values.Long: (0x55, 0x81), int: (0x55, 0x81)}
_UNSIGNED_CODES: dict[type, tuple[int, int, int]] = {values.UInt: (0x43, 0x52, 0x70), values.ULong: (0x44, 0x53, 0x80)}
_TEXT_CODES: dict[type, tuple[int, int]] = {bytes: (0xA0, 0xB0), str: (0xA1, 0xB1), values.Symbol: (0xA3, 0xB3)}


def _code_of(value: object) -> int:
    """Choose the format code of the shortest encoding, the wide one for a compound; 0x00 for a described value."""
    kind = type(value)
    if (code := _FIXED_CODE.get(kind)) is not None:
        return code
    if value is None:
        return 0x40
    if isinstance(value, bool):
        return 0x41 if value else 0x42
    if (unsigned := _UNSIGNED_CODES.get(kind)) is not None:
        return unsigned[0 if value == 0 else 1 if 0 < cast(int, value) < 256 else 2]
    if (signed := _SIGNED_CODES.get(kind)) is not None:
        return signed[0 if -128 <= cast(int, value) < 128 else 1]
    if (text := _TEXT_CODES.get(kind)) is not None:
        return text[0 if len(_text_bytes(cast(str | bytes, value))) < 256 else 1]
    if value in ([], ()):
        return 0x45
    for compound, wide in ((list, 0xD0), (tuple, 0xD0), (dict, 0xD1), (Array, 0xF0)):
        if isinstance(value, compound):
            return wide
    raise EncodeError(f"AMQP 1.0 has no type for {type(value).__name__}")


def _payload(code: int, value: object) -> bytes:
    """Write what follows format code `code`."""
    if (accepted := _ACCEPTED.get(code)) is not None and not isinstance(value, accepted):
        raise EncodeError(f"format code 0x{code:02x} does not stand for {type(value).__name__}")
    if code in format_codes.EMPTY:
        if value != format_codes.EMPTY[code]() and value != ():
            raise EncodeError(f"format code 0x{code:02x} does not stand for {value!r}")
        return b""
    if code == 0x56:
        return b"\x01" if value else b"\x00"
    if (fixed := format_codes.FIXED.get(code)) is not None:
        return _fixed_bytes(fixed[0], value)
    if isinstance(value, str) and code == 0x73:
        return _char_bytes(value)
    if (width := format_codes.WIDTH.get(code)) is None:
        raise EncodeError(f"0x{code:02x} is not a format code of AMQP 1.0")
    if isinstance(value, str | bytes):
        return _with_size(width, _text_bytes(value))
    body, count = _compound_body(value)
    try:
        return _with_size(width, width.pack(count) + body)
    except struct.error:
        raise EncodeError(f"{count} items do not fit format code 0x{code:02x}") from None


_ACCEPTED: dict[int, type | tuple[type, ...]] = {
    0x40: type(None),
    0x41: bool,
    0x42: bool,
    0x45: (list, tuple),
    0x56: bool,
    **dict.fromkeys((0xA0, 0xB0), bytes),
    **dict.fromkeys((0x73, 0xA1, 0xB1, 0xA3, 0xB3), str),
    **dict.fromkeys((0xC0, 0xD0), (list, tuple)),
    **dict.fromkeys((0xC1, 0xD1), dict),
    **dict.fromkeys((0xE0, 0xF0), Array),
}
"""What the items of an array may be, by its format code; numbers are judged by `struct`."""


def _char_bytes(char: str) -> bytes:
    try:
        raw = char.encode("utf-32-be")
    except UnicodeEncodeError as error:
        raise EncodeError(f"{char!r} is not a Unicode character") from error
    if len(raw) != 4:
        raise EncodeError(f"a char is one character, not {len(char)}")
    return raw


def _fixed_bytes(layout: struct.Struct, value: object) -> bytes:
    raw: object = value.bytes if isinstance(value, uuid.UUID) else value
    if isinstance(raw, bytes) and len(raw) != layout.size:
        raise EncodeError(f"{type(value).__name__} takes {layout.size} bytes, not {len(raw)}")
    try:
        return layout.pack(raw)
    except (struct.error, OverflowError) as error:
        raise EncodeError(f"{value!r} is not within the range of {type(value).__name__}") from error


def _compound_body(value: object) -> tuple[bytes, int]:
    if isinstance(value, Array):
        return _array_items(value), len(value.items)
    if isinstance(value, dict):
        pairs = cast(dict[object, object], value)
        return _map_items(pairs), 2 * len(pairs)
    items = cast(list[object] | tuple[object, ...], value)
    return _list_items(items), len(items)


def _list_items(items: list[object] | tuple[object, ...]) -> bytes:
    return b"".join([encode(item) for item in items])


def _map_items(pairs: dict[object, object]) -> bytes:
    return b"".join([encode(key) + encode(item) for key, item in pairs.items()])


def _array_items(array: Array) -> bytes:
    constructor = bytes((array.code,))
    if array.descriptor is not None:
        constructor = b"\x00" + encode(array.descriptor) + constructor
    return constructor + b"".join([_payload(array.code, item) for item in array.items])


def _text_bytes(text: str | bytes) -> bytes:
    if isinstance(text, bytes):
        return text
    try:
        return text.encode("ascii" if isinstance(text, values.Symbol) else "utf-8")
    except UnicodeEncodeError as error:
        raise EncodeError(f"{text!r} cannot be written as {type(text).__name__}") from error


def _with_size(width: struct.Struct, body: bytes) -> bytes:
    try:
        return width.pack(len(body)) + body
    except struct.error:
        raise EncodeError(f"{len(body)} bytes do not fit a size of {width.size} bytes") from None
