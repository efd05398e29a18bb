"""Cut the records of one write into parts that a segment can hold.

The rare path of a turn larger than a segment. Pure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from penstock_broker.log.files import Buffer
from penstock_broker.log.records import PUT, RecordType


@dataclass(slots=True)
class Part:
    """Records of one block; `puts`: message numbers per route set; `first_message`: the lowest put here, 0 if none."""

    records: list[Buffer] = field(default_factory=list[Buffer])
    puts: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    first_message: int = 0
    size: int = 0


def split_records(pieces: Sequence[Buffer], largest: int) -> Iterator[Part]:
    """Parts of at most `largest` bytes.

    A put is two pieces, its fixed part and its payload; every other record is one.
    """
    part = Part()
    for unit in _units(pieces):
        size = sum(map(len, unit))
        if part.records and part.size + size > largest:
            yield part
            part = Part()
        part.records += unit
        part.size += size
        if len(unit) == 2:
            _, _, _, _, route_set, _, message, _ = PUT.unpack(unit[0])
            part.puts.setdefault(route_set, []).append(message)
            part.first_message = part.first_message or message
    if part.records:
        yield part


def _units(pieces: Sequence[Buffer]) -> Iterator[list[Buffer]]:
    iterator = iter(pieces)
    for piece in iterator:
        if piece[0] == RecordType.PUT:
            yield [piece, next(iterator)]
        else:
            yield [piece]
