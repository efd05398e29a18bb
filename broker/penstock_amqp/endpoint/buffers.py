"""What the engine shares with everybody who uses it: pointers to its objects, and the buffers of one process.

Nothing here calls the engine. This module must not know AMQP.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# cffi's objects have no types: this module gives them.

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NewType, cast

from cproton_ffi import ffi as _untyped_ffi

import penstock_native

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
    "new_buffer",
    "unpack",
    "view",
]

_ffi: Any = _untyped_ffi
_is_compiled = penstock_native.proton is not None

Ptr = NewType("Ptr", object)
"""A pointer to an object of the engine: false if NULL, hashed and compared by address. The engine reuses the addresses
of freed objects. The compiled engine takes and gives integers, cffi its own objects.
"""

Buffer = NewType("Buffer", object)
"""Memory of this process that C writes to, for `unpack` and `view`; `at` points further into it. The compiled engine
takes memoryviews, cffi its own objects.
"""

NULL = cast(Ptr, 0 if _is_compiled else _ffi.NULL)


def new_buffer(size: int) -> Buffer:
    """Memory of so many bytes."""
    return cast(Buffer, memoryview(bytearray(size)) if _is_compiled else _ffi.new("char[]", size))


def view(buffer: Buffer) -> memoryview:
    """The whole of a buffer."""
    return cast(memoryview, buffer) if _is_compiled else memoryview(_ffi.buffer(buffer))


class _Freed:
    """What stands where a pointer was, once its object is freed."""

    __slots__ = ()


FREED = cast(Ptr, _Freed())
"""No function of the engine takes it: TypeError is raised for it, as each argument is checked. So a call with the
pointer of something that was freed is an exception and no access to memory, and other calls pay nothing for that."""

INPUT_BYTES = 262_144
"""The largest read from a socket, in bytes."""

OUTPUT_BYTES = 262_144
"""The largest write to a socket, in bytes."""

MESSAGE_BYTES = 131_072
"""The most bytes of a message that are read at once."""

# One buffer for each purpose serves all connections: the loop finishes with one connection before it turns to the next.
INPUT = new_buffer(INPUT_BYTES)
INPUT_VIEW: memoryview = view(INPUT)
OUTPUT = new_buffer(OUTPUT_BYTES)
OUTPUT_VIEW: memoryview = view(OUTPUT)
MESSAGE = new_buffer(MESSAGE_BYTES)


def at(buffer: Buffer, offset: int) -> Buffer:
    """The memory `offset` bytes into `buffer`."""
    memory = cast(Any, buffer)
    return cast(Buffer, memory[offset:] if _is_compiled else memory + offset)


def _first(buffer: Buffer, size: int) -> bytes:
    return bytes(view(buffer)[:size])


unpack: Callable[[Buffer, int], bytes] = _first if _is_compiled else _ffi.unpack
"""A copy of the first bytes of a buffer."""
