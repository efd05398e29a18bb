"""What the engine shares with everybody who uses it: pointers to its objects, and the buffers of one process.

Nothing here calls the engine. This module must not know AMQP.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# cffi's objects have no types: this module gives them.

from __future__ import annotations

from typing import Any, NewType, cast

from cproton_ffi import ffi as _untyped_ffi

__all__ = [
    "FREED",
    "INPUT",
    "INPUT_BYTES",
    "INPUT_VIEW",
    "MESSAGE",
    "MESSAGE_BYTES",
    "NULL",
    "OUTPUT",
    "OUTPUT_BYTES",
    "OUTPUT_VIEW",
    "Buffer",
    "Ptr",
    "at",
]

_ffi: Any = _untyped_ffi

Ptr = NewType("Ptr", object)
"""A pointer to an object of the engine: false if NULL, hashed and compared by address. The engine reuses the addresses
of freed objects.
"""

Buffer = NewType("Buffer", object)
"""Memory of this process that C writes to; `at` points further into it."""

NULL = cast(Ptr, _ffi.NULL)


class _Freed:
    """What stands where a pointer was, once its object is freed."""

    __slots__ = ()


FREED = cast(Ptr, _Freed())
"""No function of the engine takes it: cffi raises TypeError for it, as it checks each argument. So a call with the
pointer of something that was freed is an exception and no access to memory, and other calls pay nothing for that."""

INPUT_BYTES = 65_536
"""The largest read from a socket, in bytes."""

OUTPUT_BYTES = 262_144
"""The largest write to a socket, in bytes."""

MESSAGE_BYTES = 131_072
"""The most bytes of a message that are read at once."""

# One buffer for each purpose serves all connections: the loop finishes with one connection before it turns to the next.
INPUT = cast(Buffer, _ffi.new("char[]", INPUT_BYTES))
INPUT_VIEW: memoryview = memoryview(_ffi.buffer(INPUT))
OUTPUT = cast(Buffer, _ffi.new("char[]", OUTPUT_BYTES))
OUTPUT_VIEW: memoryview = memoryview(_ffi.buffer(OUTPUT))
MESSAGE = cast(Buffer, _ffi.new("char[]", MESSAGE_BYTES))


def at(buffer: Buffer, offset: int) -> Buffer:
    """The memory `offset` bytes into `buffer`."""
    return cast(Buffer, cast(Any, buffer) + offset)
