"""Reads the records of a block with few objects, for recovery of deep backlogs: puts whose payloads nobody needs now
become lists of numbers and lengths. All other records are decoded as usual. Pure.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

from penstock_broker.log.format.record_codec import PREFIX, PUT, RecordType, decode_records, split
from penstock_broker.log.format.records import Part, Record
from penstock_broker.log.recovery.live_puts import KEEP, CommonStart, Pageable, PlainPuts

__all__ = ["bulk_items", "bulk_records"]

LEAST_ALIKE: Final = 8
"""So many records are looked at together, or more."""
MOST_TOGETHER: Final = 1024
"""After so many a caller may pause."""


def bulk_records(data: bytes, start: int, end: int, highest: int, pageable: Pageable) -> list[Record | PlainPuts]:
    """The records of a sound block, which lie from `start` to `end` in the bytes of its segment.

    Puts of numbers up to `highest` are decoded as usual: they were read before. Raises Malformed or NewerFormat.
    """
    found: list[Record | PlainPuts] = []
    for item in bulk_items(data, start, end, highest, pageable):
        if isinstance(item, PlainPuts):
            found.append(item)
            continue
        begin, following = item
        record = next(decode_records(memoryview(data)[begin:following]))
        if isinstance(record, Part):
            record = Part(record.body, record.offset, record.at + begin - start, record.length)
        found.append(record)
    return found


def bulk_items(
    data: bytes, start: int, end: int, highest: int, pageable: Pageable
) -> Iterator[PlainPuts | tuple[int, int]]:
    """As `bulk_records`, but other records are not decoded: each is the place where it begins and where it ends. Of
    what is yielded each takes a short time."""
    view = memoryview(data)[:end]
    unpack, fixed, prefix, put = PUT.unpack_from, PUT.size, PREFIX.size, int(RecordType.PUT)
    at = start
    plain: PlainPuts | None = None
    are_alike = True
    while at < end:
        if data[at] == put and not data[at + 1] and at + fixed <= end:
            _, _, _, length, route_set, _, number, arrival = unpack(data, at)
            payload, following = at + fixed, at + prefix + length
            if payload <= following <= end and number > highest:
                expires = pageable.expiry(data, payload, following, arrival)
                if expires != KEEP:
                    if plain is None or plain.route_set != route_set or len(plain.numbers) >= MOST_TOGETHER:
                        if plain is not None:
                            yield plain
                        plain = PlainPuts(route_set, arrival)
                    plain.numbers.append(number)
                    plain.lengths.append(following - payload)
                    if expires and (not plain.expires or expires < plain.expires):
                        plain.expires = expires
                    highest = number
                    size, at = following - at, following
                    if are_alike and not expires and end - at >= size * LEAST_ALIKE:
                        numbers = _alike(view, at, size, route_set, highest, pageable.common_start)
                        are_alike = bool(numbers)
                        plain.numbers += numbers
                        plain.lengths += [following - payload] * len(numbers)
                        highest = plain.numbers[-1]
                        at += size * len(numbers)
                    continue
        if plain is not None:
            yield plain
            plain = None
        for _, _, body, offset in split(view[at:]):
            following = at + offset + len(body)
            yield at, following
            at = following
            break
    if plain is not None:
        yield plain


def _alike(
    view: memoryview, at: int, size: int, route_set: int, highest: int, common: CommonStart | None
) -> Sequence[int]:
    """The numbers of puts that follow each other from `at` on: of `size` bytes each, for one route set, with payloads
    that begin as `common` says.

    They are read with few steps for each. None, if one of them has a lower number than another before it.
    """
    payload = size - PUT.size
    if common is None or max(common.at, len(common.prefix)) >= payload:
        return ()
    most = min((len(view) - at) // size, MOST_TOGETHER)
    rows = _layout(len(common.prefix), common.at, payload).iter_unpack(view[at : at + most * size])
    columns = list(zip(*rows, strict=True))
    kinds, flags, _, lengths, routes, _, numbers, _, prefixes = columns[:9]
    count = len(kinds)
    length = size - PREFIX.size
    for column, expected in (
        (kinds, int(RecordType.PUT)),
        (flags, 0),
        (lengths, length),
        (routes, route_set),
        (prefixes, common.prefix),
    ):
        if column[:count].count(expected) < count:
            count = next(index for index, value in enumerate(column) if value != expected)
    if len(columns) > 9:
        over = (index for index, value in enumerate(columns[9][:count]) if value > common.most)
        count = next(over, count)
    elif common.prefix[common.at] > common.most:
        return ()
    found = numbers[:count]
    rising = found[:1] > (highest,) and found == tuple(range(found[0], found[0] + count))
    return found if rising else ()


@lru_cache(maxsize=256)
def _layout(prefix: int, at: int, payload: int) -> Struct:
    """A put with a payload of so many bytes. Its first `prefix` bytes are a field, and so is the one at `at`."""
    if at < prefix:
        return Struct(f"{PUT.format}{prefix}s{payload - prefix}x")
    return Struct(f"{PUT.format}{prefix}s{at - prefix}xB{payload - at - 1}x")
