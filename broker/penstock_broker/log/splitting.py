"""Cut the records of one write into parts that a segment can hold.

The rare path of a turn larger than a segment. Pure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from penstock_broker.log.files import Buffer
from penstock_broker.log.records import PUT, Ack, Commit, Put, RecordType, decode_records


@dataclass(slots=True)
class Part:
    """Records of one block; `puts`: message numbers per route set; `first_message`: the lowest put here, 0 if none."""

    records: list[Buffer] = field(default_factory=list[Buffer])
    puts: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    first_message: int = 0
    size: int = 0


def split_records(pieces: Sequence[Buffer], largest: int) -> Iterator[Part]:
    """Parts of at most `largest` bytes.

    A put is two pieces, its fixed part and its payload; every other record is one, a commit too.
    """
    part = Part()
    for unit in units(pieces):
        size = sum(map(len, unit))
        if part.records and part.size + size > largest:
            yield part
            part = Part()
        part.records += unit
        part.size += size
        for route_set, message in _puts_in(unit[0]):
            part.puts.setdefault(route_set, []).append(message)
            part.first_message = part.first_message or message
    if part.records:
        yield part


def _puts_in(piece: Buffer) -> Iterator[tuple[int, int]]:
    """Route set and message of each put that begins with, or is in, this piece."""
    match piece[0]:
        case RecordType.PUT | RecordType.STAGED_PUT:
            _, _, _, _, route_set, _, message, _ = PUT.unpack_from(piece)
            yield route_set, message
        case RecordType.COMMIT:
            for item in decode_records(memoryview(piece)):
                assert isinstance(item, Commit)
                for record in item.records:
                    if not isinstance(record, Ack):
                        put = record if isinstance(record, Put) else record.put
                        yield put.route_set, put.message
        case _:
            pass


def units(pieces: Sequence[Buffer]) -> Iterator[list[Buffer]]:
    """The pieces of each record."""
    iterator = iter(pieces)
    for piece in iterator:
        if piece[0] == RecordType.PUT:
            yield [piece, next(iterator)]
        else:
            yield [piece]
