"""Reads the puts of a block, for readers of deep backlogs: in one loop, and nothing of the other records.

Pure. `record_codec.decode_records` reads all records of a block.
"""

from collections.abc import Callable
from struct import error as StructError
from typing import Any

import penstock_native
from penstock_broker.log.format.record_codec import PREFIX, PUT, PUT_FIXED, Malformed, RecordType
from penstock_broker.log.format.records import VOLATILE, Put

__all__ = ["puts_in"]

_read_puts: Any = penstock_native.messages and penstock_native.messages.read_puts

_MakePut = Callable[[type[Put], tuple[int, int, int, bytes, int]], Put]


def puts_in(data: bytes, begin: int, end: int, *, with_volatile: bool) -> list[Put]:
    """The puts of one block, those of its commits included, except staged ones; other records are not looked into.

    The records lie from `begin` to `end`: a slice of bytes takes half as long as one of a view.
    `with_volatile`: the broker that wrote volatile puts still runs; they get the flag `VOLATILE`. For readers of deep
    backlogs, and cheaper than `decode_records`. Raises Malformed.
    """
    found: list[Put] = []
    offset = begin
    whole, size, put = PUT.unpack_from, PREFIX.size, int(RecordType.PUT)
    # A third of the time that a call of `Put` takes.
    make: _MakePut = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    try:
        while offset < end:
            if _read_puts is not None:
                offset = _read_puts(data, offset, end, put, Put, found)
                if offset == end:
                    break
            if data[offset] == put:
                _, flags, _, length, route_set, _, message, arrival = whole(data, offset)
                following = offset + size + length
                if following <= end:
                    payload = data[offset + PUT.size : following]
                    found.append(make(Put, (route_set, message, arrival, payload, flags)))
                    offset = following
                    continue
            kind, flags, _, length = PREFIX.unpack_from(data, offset)
            offset += size
            following = offset + length
            if following > end:
                raise Malformed(f"record of type {kind} says {length} bytes, {end - offset} are left")
            if kind == RecordType.COMMIT:
                found += puts_in(data, offset, following, with_volatile=False)
            elif kind == RecordType.VOLATILE_PUT and with_volatile:
                route_set, _, message, arrival = PUT.unpack_from(data, offset - PREFIX.size)[4:]
                payload = data[offset + PUT_FIXED : following]
                found.append(Put(route_set, message, arrival, payload, flags | VOLATILE))
            offset = following
    except StructError as error:
        raise Malformed(f"{end - offset} bytes behind the last record") from error
    return found
