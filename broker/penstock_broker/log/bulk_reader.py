"""Reads the records of a block with few objects, for recovery of deep backlogs: puts whose payloads nobody needs now
become lists of numbers and lengths. All other records are decoded as usual. Pure.
"""

from penstock_broker.log.record_codec import PREFIX, PUT, RecordType, decode_records
from penstock_broker.log.records import Part, Record
from penstock_broker.log.replay import KEEP, Pageable, PlainPuts

__all__ = ["bulk_records"]


def bulk_records(data: bytes, start: int, end: int, highest: int, pageable: Pageable) -> list[Record | PlainPuts]:
    """The records of a sound block, which lie from `start` to `end` in the bytes of its segment.

    Puts of numbers up to `highest` are decoded as usual: they were read before. Raises Malformed or NewerFormat.
    """
    found: list[Record | PlainPuts] = []
    view = memoryview(data)[:end]
    unpack, fixed, prefix, put = PUT.unpack_from, PUT.size, PREFIX.size, int(RecordType.PUT)
    at = start
    plain: PlainPuts | None = None
    while at < end:
        if data[at] == put and not data[at + 1] and at + fixed <= end:
            _, _, _, length, route_set, _, number, arrival = unpack(data, at)
            payload, following = at + fixed, at + prefix + length
            if payload <= following <= end and number > highest:
                expires = pageable(data, payload, following, arrival)
                if expires != KEEP:
                    if plain is None or plain.route_set != route_set:
                        plain = PlainPuts(route_set, arrival)
                        found.append(plain)
                    plain.numbers.append(number)
                    plain.lengths.append(following - payload)
                    if expires and (not plain.expires or expires < plain.expires):
                        plain.expires = expires
                    highest = number
                    at = following
                    continue
        plain = None
        record = next(decode_records(view[at:]))
        if isinstance(record, Part):
            record = Part(record.body, record.offset, record.at + at - start, record.length)
        found.append(record)
        at += prefix + PREFIX.unpack_from(data, at)[3]
    return found
