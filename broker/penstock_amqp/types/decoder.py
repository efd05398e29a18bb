"""Reads the AMQP 1.0 type system.

For cold paths (attach frames, SASL, management): written for clarity and for hostile input. Depth and the number of
values that take no bytes are bounded, every length is checked before it is used, and each error names the offset.
Messages on the forwarding path are read by `penstock_amqp.messages`, which does not decode them.

Must not know frames or performatives. Source: AMQP 1.0 part 1, sections 1.1 to 1.6.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable
from typing import cast

from penstock_amqp.errors import DecodeError
from penstock_amqp.types import format_codes, values
from penstock_amqp.types.values import Array, Described, Descriptor, Value

__all__ = ["MAX_DEPTH", "MAX_EMPTY_ITEMS", "EncodedList", "decode", "decode_one"]

MAX_DEPTH = 32
"""Nested lists, maps, arrays and described values; clients nest five levels at most."""

MAX_EMPTY_ITEMS = 65_536
"""Array items that take no bytes (null, true, list0 ...) in one `decode`: nothing else bounds their count."""


def decode(data: bytes, offset: int = 0) -> tuple[Value, int]:
    """Read the value at `offset`; return it and the offset behind it.

    Raises `DecodeError` (offsets count from the start of `data`), and nothing else whatever the bytes are.
    """
    decoder = _Decoder(data, offset)
    value = decoder.value(len(data), 0)
    return value, decoder.at


def decode_one(data: bytes) -> Value:
    """Read `data` as exactly one value; bytes behind it are an error."""
    value, end = decode(data)
    if end != len(data):
        raise DecodeError(f"{len(data) - end} bytes too many behind the value", end)
    return value


class EncodedList:
    """A list whose items are decoded when they are asked for, because there are many."""

    def __init__(self, data: bytes, offset: int) -> None:
        """`data` has a list8 or list32 at `offset`. Raises `DecodeError`."""
        decoder = _Decoder(data, offset)
        self._data = data
        self._end, self.count = decoder.list_head(len(data))
        """`count`: items in the list."""
        self._at = decoder.at
        self._left = self.count

    def take(self, most: int) -> list[Value]:
        """Decode the next items, `most` at most; none behind the last. Raises `DecodeError`."""
        items: list[Value] = []
        for _ in range(min(most, self._left)):
            item, self._at = decode(self._data, self._at)
            items.append(item)
        self._left -= len(items)
        if self._at > self._end or (not self._left and self._at != self._end):
            raise DecodeError("the items of a list do not end where the list does", self._at)
        return items


class _Decoder:
    """One pass over `data`; `at` is the next unread byte and `end` always the end of the innermost enclosing value."""

    __slots__ = ("_data", "_empty_items", "at")

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._empty_items = 0
        self.at = at

    def value(self, end: int, depth: int) -> Value:
        if depth > MAX_DEPTH:
            raise DecodeError(f"values are nested deeper than {MAX_DEPTH}", self.at)
        code = self._byte(end)
        if code != 0:
            return self._body(code, end, depth)
        descriptor = self._descriptor(end)
        return Described(descriptor, self.value(end, depth + 1))

    def list_head(self, end: int) -> tuple[int, int]:
        """Read the head of a list8 or list32: where the list ends, and how many items it says it has."""
        width = struct.Struct(">I") if self._byte(end) == 0xD0 else struct.Struct(">B")
        size: int = width.unpack(self._take(width.size, end))[0]
        if size > end - self.at or size < width.size:
            raise DecodeError(f"a value of {size} bytes where {end - self.at} are left", self.at)
        end = self.at + size
        count: int = width.unpack(self._take(width.size, end))[0]
        if count > end - self.at:
            raise DecodeError(f"{count} items in {end - self.at} bytes", self.at)
        return end, count

    def _descriptor(self, end: int) -> Descriptor:
        start = self.at
        code = self._byte(end)
        if code in (0x44, 0x53, 0x80, 0xA3, 0xB3):
            value = self._body(code, end, 0)
            if isinstance(value, values.ULong | values.Symbol):
                return value
        raise DecodeError(f"a descriptor is a ulong or a symbol, not format code 0x{code:02x}", start)

    def _body(self, code: int, end: int, depth: int) -> Value:
        """Read what follows format code `code`."""
        if (fixed := format_codes.FIXED.get(code)) is not None:
            layout, make = fixed
            return make(layout.unpack(self._take(layout.size, end))[0])
        if (empty := format_codes.EMPTY.get(code)) is not None:
            return empty()
        if code == 0x56:
            return self._boolean(end)
        if code == 0x73:
            return self._char(end)
        if (width := format_codes.WIDTH.get(code)) is not None:
            return self._sized(code, width, end, depth)
        raise DecodeError(f"0x{code:02x} is not a format code of AMQP 1.0", self.at - 1)

    def _boolean(self, end: int) -> bool:
        flag = self._byte(end)
        if flag > 1:
            raise DecodeError(f"a boolean is 0x00 or 0x01, not 0x{flag:02x}", self.at - 1)
        return flag == 1

    def _char(self, end: int) -> values.Char:
        start = self.at
        try:
            return values.Char(self._take(4, end).decode("utf-32-be"))
        except UnicodeDecodeError:
            raise DecodeError("a char that is not a Unicode character", start) from None

    def _sized(self, code: int, width: struct.Struct, end: int, depth: int) -> Value:
        size: int = width.unpack(self._take(width.size, end))[0]
        if size > end - self.at:
            raise DecodeError(f"a value of {size} bytes where {end - self.at} are left", self.at)
        match code & 0x0F:
            case 0x00 if code in (0xA0, 0xB0):
                return self._take(size, end)
            case 0x01 if code in (0xA1, 0xB1):
                return self._text(size, end, "utf-8")
            case 0x03:
                return values.Symbol(self._text(size, end, "ascii"))
            case _:
                return self._compound(code, width, self.at + size, depth)

    def _text(self, size: int, end: int, encoding: str) -> str:
        start = self.at
        try:
            return self._take(size, end).decode(encoding)
        except UnicodeDecodeError:
            raise DecodeError(f"text that is not {encoding}", start) from None

    def _compound(self, code: int, width: struct.Struct, end: int, depth: int) -> Value:
        count: int = width.unpack(self._take(width.size, end))[0]
        value: Value
        if code in (0xE0, 0xF0):
            value = self._array(count, end, depth)
        else:
            if count > end - self.at:
                raise DecodeError(f"{count} items in {end - self.at} bytes", self.at)
            items = [self.value(end, depth + 1) for _ in range(count)]
            value = items if code in (0xC0, 0xD0) else self._map(items)
        if self.at != end:
            raise DecodeError(f"{end - self.at} bytes too many at the end of a compound value", self.at)
        return value

    def _map(self, items: list[Value]) -> dict[Value, Value]:
        if len(items) % 2:
            raise DecodeError("a map with a key that has no value", self.at)
        pairs: dict[Value, Value] = {}
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not _is_hashable(key):
                raise DecodeError("a map key that is, or holds, a list or a map", self.at)
            if key in pairs:
                raise DecodeError(f"a map with the key {key!r} twice", self.at)
            pairs[key] = value
        return pairs

    def _array(self, count: int, end: int, depth: int) -> Array:
        code = self._byte(end)
        descriptor = None
        if code == 0:
            descriptor = self._descriptor(end)
            code = self._byte(end)
        if code == 0:
            raise DecodeError("an array of values with two descriptors", self.at - 1)
        if code in format_codes.EMPTY:
            self._empty_items += count
            if self._empty_items > MAX_EMPTY_ITEMS:
                raise DecodeError(f"more than {MAX_EMPTY_ITEMS} array items that take no bytes", self.at)
        elif count > end - self.at:
            raise DecodeError(f"{count} array items in {end - self.at} bytes", self.at)
        if depth >= MAX_DEPTH:
            raise DecodeError(f"values are nested deeper than {MAX_DEPTH}", self.at)
        return Array(code, tuple(self._body(code, end, depth + 1) for _ in range(count)), descriptor)

    def _byte(self, end: int) -> int:
        return self._take(1, end)[0]

    def _take(self, size: int, end: int) -> bytes:
        start = self.at
        if size > end - start:
            raise DecodeError(f"{size} bytes wanted where {max(end - start, 0)} are left", start)
        self.at = start + size
        return self._data[start : self.at]


def _is_hashable(key: Value) -> bool:
    try:
        hash(cast(Hashable, key))
    except TypeError:
        return False
    return True
