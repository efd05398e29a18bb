"""What the engine shares with everybody who uses it: pointers to its objects, and the buffers of one process.

Nothing here calls the engine. Must not know AMQP.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# cffi's objects have no types: this module gives them.

from __future__ import annotations

from typing import Any, NewType, cast

from cproton_ffi import ffi as _untyped_ffi

__all__ = [
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
"""A pointer to an object of the engine: false if NULL, hashed and compared by address. The engine uses the addresses
of objects that it has freed again.
"""

Buffer = NewType("Buffer", object)
"""Memory of this process that C writes to; `at` points further into it."""

NULL = cast(Ptr, _ffi.NULL)

INPUT_BYTES = 65_536
"""One read from a socket at most."""

OUTPUT_BYTES = 262_144
"""One write to a socket at most."""

MESSAGE_BYTES = 131_072
"""As much of a message as is read in one go."""

# One buffer for each purpose serves all connections: the loop finishes with one connection before it turns to the next.
INPUT = cast(Buffer, _ffi.new("char[]", INPUT_BYTES))
INPUT_VIEW: memoryview = memoryview(_ffi.buffer(INPUT))
OUTPUT = cast(Buffer, _ffi.new("char[]", OUTPUT_BYTES))
OUTPUT_VIEW: memoryview = memoryview(_ffi.buffer(OUTPUT))
MESSAGE = cast(Buffer, _ffi.new("char[]", MESSAGE_BYTES))


def at(buffer: Buffer, offset: int) -> Buffer:
    """The memory `offset` bytes into `buffer`."""
    return cast(Buffer, cast(Any, buffer) + offset)
