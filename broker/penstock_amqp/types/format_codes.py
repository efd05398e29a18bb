"""The format codes of AMQP 1.0 as tables, used to read (`decoder`) and to write (`encoder`).

Source: AMQP 1.0 part 1, section 1.6, in the order of the codes.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

from penstock_amqp.types import values
from penstock_amqp.types.values import Value

__all__ = ["EMPTY", "FIXED", "U8", "U32", "WIDTH"]

FIXED: dict[int, tuple[struct.Struct, Callable[[Any], Value]]] = {
    0x50: (struct.Struct(">B"), values.UByte),
    0x51: (struct.Struct(">b"), values.Byte),
    0x52: (struct.Struct(">B"), values.UInt),
    0x53: (struct.Struct(">B"), values.ULong),
    0x54: (struct.Struct(">b"), values.Int),
    0x55: (struct.Struct(">b"), values.Long),
    0x60: (struct.Struct(">H"), values.UShort),
    0x61: (struct.Struct(">h"), values.Short),
    0x70: (struct.Struct(">I"), values.UInt),
    0x71: (struct.Struct(">i"), values.Int),
    0x72: (struct.Struct(">f"), values.Float32),
    0x74: (struct.Struct("4s"), values.Decimal32),
    0x80: (struct.Struct(">Q"), values.ULong),
    0x81: (struct.Struct(">q"), values.Long),
    0x82: (struct.Struct(">d"), float),
    0x83: (struct.Struct(">q"), values.Timestamp),
    0x84: (struct.Struct("8s"), values.Decimal64),
    0x94: (struct.Struct("16s"), values.Decimal128),
    0x98: (struct.Struct("16s"), lambda raw: uuid.UUID(bytes=raw)),
}
"""Format codes of fixed width: their layout, and the class that stands for them."""

EMPTY: dict[int, Callable[[], Value]] = {
    0x40: lambda: None,
    0x41: lambda: True,
    0x42: lambda: False,
    0x43: lambda: values.UInt(0),
    0x44: lambda: values.ULong(0),
    0x45: lambda: list[Value](),
}
"""Format codes that are the whole value (the list is a new one each time)."""

U8 = struct.Struct(">B")
U32 = struct.Struct(">I")
WIDTH: dict[int, struct.Struct] = {
    **dict.fromkeys((0xA0, 0xA1, 0xA3, 0xC0, 0xC1, 0xE0), U8),
    **dict.fromkeys((0xB0, 0xB1, 0xB3, 0xD0, 0xD1, 0xF0), U32),
}
"""Format codes that begin with a size, and how wide that size is."""
