"""The values of AMQP 1.0 in Python: which class stands for which wire type.

`str`, `bytes`, `bool`, `float`, `uuid.UUID`, `list` and `dict` stand for string, binary, boolean, double, uuid, list
and map; a plain `int` for long. Every other primitive has a thin class of its own here, so that what was read can be
written again as the same type. They compare equal to the plain Python value (`UInt(1) == 1`), which keeps reading
code short.

Must not know bytes: see `decoder` and `encoder`. Source: AMQP 1.0 part 1, section 1.6.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from types import NoneType
from typing import Final, TypeAlias

__all__ = [
    "Array",
    "Byte",
    "Char",
    "Decimal32",
    "Decimal64",
    "Decimal128",
    "Described",
    "Descriptor",
    "Float32",
    "Int",
    "Long",
    "Short",
    "Symbol",
    "Timestamp",
    "UByte",
    "UInt",
    "ULong",
    "UShort",
    "Value",
    "wire_name",
]


class Symbol(str):
    """ASCII name from a constrained domain (symbol). Equal to, and hashed like, the `str` of the same letters."""

    __slots__ = ()


class Char(str):
    """One Unicode character (char)."""

    __slots__ = ()


class UByte(int):
    """0 to 2**8 - 1 (ubyte)."""

    __slots__ = ()


class UShort(int):
    """0 to 2**16 - 1 (ushort)."""

    __slots__ = ()


class UInt(int):
    """0 to 2**32 - 1 (uint)."""

    __slots__ = ()


class ULong(int):
    """0 to 2**64 - 1 (ulong)."""

    __slots__ = ()


class Byte(int):
    """-2**7 to 2**7 - 1 (byte)."""

    __slots__ = ()


class Short(int):
    """-2**15 to 2**15 - 1 (short)."""

    __slots__ = ()


class Int(int):
    """-2**31 to 2**31 - 1 (int)."""

    __slots__ = ()


class Long(int):
    """-2**63 to 2**63 - 1 (long); a plain `int` is written as long too."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since the Unix epoch, UTC (timestamp)."""

    __slots__ = ()


class Float32(float):
    """IEEE 754 binary32 (float); a plain `float` is written as double."""

    __slots__ = ()


class Decimal32(bytes):
    """IEEE 754 decimal32, kept as its four bytes: Penstock only passes it on."""

    __slots__ = ()


class Decimal64(bytes):
    """IEEE 754 decimal64, kept as its eight bytes."""

    __slots__ = ()


class Decimal128(bytes):
    """IEEE 754 decimal128, kept as its sixteen bytes."""

    __slots__ = ()


Descriptor: TypeAlias = ULong | Symbol


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor that says what it means (AMQP 1.0 part 1, 1.1.2)."""

    descriptor: Descriptor
    value: Value


@dataclass(frozen=True, slots=True)
class Array:
    """A monomorphic sequence (array).

    `code` is the format code all items are written with; `descriptor` is set if the items are described, and then
    `items` holds the values below the descriptor.
    """

    code: int
    items: tuple[Value, ...]
    descriptor: Descriptor | None = None


Value: TypeAlias = (
    bool | int | float | str | bytes | uuid.UUID | Described | Array | list["Value"] | dict["Value", "Value"] | None
)
"""Whatever `decoder.decode` can return."""

_WIRE_NAMES: Final[dict[type, str]] = {
    str: "string",
    bytes: "binary",
    bool: "boolean",
    int: "long",
    float: "double",
    dict: "map",
    uuid.UUID: "uuid",
    Float32: "float",
    Described: "described value",
    NoneType: "null",
}
"""What AMQP calls the types whose classes have another name."""


def wire_name(kind: type) -> str:
    """What AMQP calls the type for which a class stands (part 1, 1.6), for errors that a peer reads."""
    return _WIRE_NAMES.get(kind, kind.__name__.lower())
