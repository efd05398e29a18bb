"""Reads the puts of a block, for readers of deep backlogs: in one loop, and nothing of the other records.

`put_stretch` says of a block what it holds without cutting it up, if it is one of many that are all alike.

Pure. `record_codec.decode_records` reads all records of a block.
"""

from collections.abc import Callable
from struct import error as StructError
from typing import Any, Final, TypeAlias

import penstock_native
from penstock_broker.log.format.record_codec import PREFIX, PUT, PUT_FIXED, Malformed, RecordType
from penstock_broker.log.format.records import VOLATILE, Put

__all__ = ["put_at", "put_stretch", "puts_in", "stretch_in"]

_native: Any = penstock_native.messages
_read_puts: Any = _native and _native.read_puts

_PUT: Final = int(RecordType.PUT)

_OTHER_PUTS: Final = bytes((RecordType.COMMIT, RecordType.VOLATILE_PUT))
"""Records in which there are puts too."""

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


_Stretch: TypeAlias = tuple[int, int, int, int, int, int, int, int]


def stretch_in(data: bytes, begin: int, end: int, put: int, others: bytes) -> _Stretch | None:
    """The twin of the compiled part of `put_stretch`."""
    at, start, upto = begin, -1, -1
    first = last = count = size = route_set = flags = 0
    while at < end:
        if end - at < PREFIX.size:
            return None
        kind, put_flags, _, length = PREFIX.unpack_from(data, at)
        following = at + PREFIX.size + length
        if following > end or kind in others:
            return None
        if kind == put:
            if length < PUT_FIXED:
                return None
            routes, _, number, _ = PUT.unpack_from(data, at)[4:]
            if start < 0:
                start = upto = at
                first, last, route_set, flags = number, number - 1, routes, put_flags
            if at != upto or number <= last or routes != route_set or put_flags != flags:
                return None
            last, upto = number, following
            count += 1
            size += length - PUT_FIXED
        at = following
    return None if start < 0 else (start, upto, first, last, count, size, route_set, flags)


_find_stretch: Callable[[bytes, int, int, int, bytes], _Stretch | None] = _native.put_stretch if _native else stretch_in


def put_stretch(data: bytes, begin: int, end: int) -> _Stretch | None:
    """All puts that `puts_in` would find in a block, if they stand one after the other by ascending numbers, with one
    route set and the same flags: a *stretch*. None if not, or if there are none.

    Its fields are: where the first put begins and the last ends, the first and the last number, how many they are, the
    bytes of their payloads, the route set, and the flags.
    """
    return _find_stretch(data, begin, end, _PUT, _OTHER_PUTS)


def put_at(data: bytes, at: int) -> tuple[Put, int]:
    """A put of a stretch, and where the next one begins."""
    _, flags, _, length, route_set, _, message, arrival = PUT.unpack_from(data, at)
    following = at + PREFIX.size + length
    return Put(route_set, message, arrival, data[at + PUT.size : following], flags), following
