"""Makes the digest of a sealed segment from its blocks. Pure, and in steps: the caller pauses in between.

Records may change places in a digest where that changes nothing (docs/decisions/085-digests.md): acknowledgements and
delivered-up-to numbers stand behind the puts they were among, and definitions of route sets before them. A put that is
kept as a record, because a queue needs more of it than its number or because it is a copy, keeps its place among the
puts.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import Final

from penstock_broker.log.format.blocks import BLOCK_HEADER, BlockHeader, crc32
from penstock_broker.log.format.record_codec import (
    PREFIX,
    RecordType,
    ack_record,
    acks_in,
    chunks,
    decode_records,
    delivered_up_to_record,
)
from penstock_broker.log.format.records import DeliveredUpTo, Part, Put, RouteDifference, RouteSet, StagedPut
from penstock_broker.log.recovery.bulk_reader import bulk_items
from penstock_broker.log.recovery.live_puts import Pageable, PlainPuts
from penstock_broker.log.segments.block_index import BlockIndex
from penstock_broker.log.segments.segment_digest import (
    DigestHead,
    PutRun,
    encode_head,
    index_items,
    part_item,
    records_item,
    run_item,
)

__all__ = ["DigestBuilder", "TooLarge"]

RUN: Final = 4096
"""Messages of one run, about."""
MOST_OPEN: Final = 4096
"""Messages of runs, or acknowledgements, that are put together at the same time: closing them takes part of a turn."""


class TooLarge(Exception):
    """The digest would be too large to pay: too much of the segment would stand in it."""


class DigestBuilder:
    """Give it all blocks of the segment in their order by `add`, then call `finished`."""

    def __init__(self, segment: int, first_message: int, seed: int, pageable: Pageable, most_bytes: int) -> None:
        """`seed`: of the log; see `blocks.seed_of`. `first_message`: puts with lower numbers are copies.
        `most_bytes`: the digest must not be larger.
        """
        self._segment, self._first_message = segment, first_message
        self._pageable, self._most_bytes = pageable, most_bytes
        self._highest = first_message - 1
        self._pieces: list[bytes] = []
        self._checksum, self._length = seed, 0
        self._runs: dict[int, PutRun] = {}
        self._acks: dict[int, array[int]] = {}
        self._open_puts = self._open_acks = 0
        self._delivered: dict[int, int] = {}
        self._blocks, self._definitions = BlockIndex(), dict[int, int]()
        self._first: BlockHeader | None = None
        self._last: BlockHeader | None = None
        self._lowest = self._top = 0  # the lowest and the highest message that the block being added puts

    def add(self, header: BlockHeader, records: memoryview) -> Iterator[None]:
        """The next block; pauses. Raises TooLarge, Malformed or NewerFormat."""
        self._first = self._first or header
        self._last = header
        self._lowest = self._top = 0
        data = bytes(records)
        yield from self._add(data, 0, len(data), header)
        if self._lowest:
            self._blocks.note(self._lowest, self._top, header.offset)

    def finished(self) -> list[bytes]:
        """The file's bytes, in pieces. Once, after the seal was added. Raises TooLarge."""
        assert self._first is not None and self._last is not None and self._last.is_seal
        self._close_all()
        for item in index_items(self._blocks, self._definitions):
            self._emit(item)
        first = self._first
        head = DigestHead(self._segment, self._first_message, first.epoch, first.sequence, self._last)
        return [encode_head(head, self._length, self._checksum), *self._pieces]

    @property
    def is_complete(self) -> bool:
        """Whether the seal was added."""
        return self._last is not None and self._last.is_seal

    @property
    def seal_sequence(self) -> int:
        """Of the last block that was added. The segment must be synced up to it before the digest is written."""
        return 0 if self._last is None else self._last.sequence

    def _add(self, data: bytes, begin: int, end: int, header: BlockHeader) -> Iterator[None]:
        for item in bulk_items(data, begin, end, self._highest, self._pageable):
            if isinstance(item, PlainPuts):
                number = item.numbers[0]
                self._highest = self._top = item.numbers[-1]
                self._put(item)
            elif data[item[0]] == RecordType.COMMIT:  # it lies in one block, so what it holds counts as if outside
                number = 0
                yield from self._add(data, item[0] + PREFIX.size, item[1], header)
            else:
                number = self._record(data, *item, header)
                self._top = max(self._top, number)
            if number and (not self._lowest or number < self._lowest):
                self._lowest = number
            yield

    def _record(self, data: bytes, begin: int, end: int, header: BlockHeader) -> int:
        """A record that is not a plain put lies there; the message that it puts, or 0."""
        start, content = header.offset + BLOCK_HEADER.size, memoryview(data)[begin:end]
        kind, flags = data[begin], data[begin + 1]
        if kind == RecordType.VOLATILE_PUT:
            return 0  # its epoch is over when the digest is read
        if kind in (RecordType.ACK, RecordType.ACK_RANGE):
            for ack in acks_in(kind, flags, content[PREFIX.size :]):
                self._ack(ack.incarnation, ack.messages, content)
            return 0
        (record,) = decode_records(content)
        number = 0
        match record:
            case Part():
                self._emit(part_item(start, Part(record.body, record.offset, record.at + begin, record.length)))
                return 0
            case DeliveredUpTo():
                for incarnation, message in record.numbers:
                    self._delivered[incarnation] = max(message, self._delivered.get(incarnation, 0))
                return 0
            case RouteSet() | RouteDifference():
                self._definitions.setdefault(record.route_set, header.offset)
            case Put() | StagedPut():
                number = record.message if isinstance(record, Put) else record.put.message
                self._close_runs()
                self._highest = max(self._highest, number)
            case _:
                if kind == RecordType.CLOSED:  # nothing may come behind it that was before it
                    self._close_all()
        self._emit(records_item(start, bytes(content)))
        return number

    def _put(self, puts: PlainPuts) -> None:
        numbers, lengths = puts.numbers, puts.lengths
        if not numbers[-1] - numbers[0] >> 32:
            self._extend(puts, numbers, lengths)
            return
        for at in range(len(numbers)):  # copies, put by runs of the broker of which one ended by a crash
            self._extend(puts, numbers[at : at + 1], lengths[at : at + 1])

    def _extend(self, puts: PlainPuts, numbers: Sequence[int], lengths: Sequence[int]) -> None:
        run = self._runs.get(puts.route_set)
        if run is not None and (len(run.lengths) >= RUN or numbers[-1] - run.firsts[0] >> 32):
            self._close_runs()
            run = None
        if run is None:
            run = PutRun(puts.route_set, array("Q"), array("Q"), array("I"), puts.arrival, 0)
        expires = min((each for each in (run.expires, puts.expires) if each), default=0)
        self._runs[puts.route_set] = run._replace(arrival=min(run.arrival, puts.arrival), expires=expires)
        run.lengths.extend(lengths)
        firsts, lasts = run.firsts, run.lasts
        if numbers[-1] - numbers[0] + 1 == len(numbers):
            _append(firsts, lasts, numbers[0], numbers[-1])
        else:
            for number in numbers:
                _append(firsts, lasts, number, number)
        self._open_puts += len(numbers)
        if self._open_puts >= MOST_OPEN:
            self._close_runs()

    def _ack(self, incarnation: int, messages: Sequence[int], content: memoryview) -> None:
        if isinstance(messages, range) and len(messages) > RUN:
            self._emit_acks()
            self._emit(records_item(0, bytes(content)))
            return
        acks = self._acks.get(incarnation)
        if acks is None:
            acks = self._acks[incarnation] = array("Q")
        acks.extend(messages)
        self._open_acks += len(messages)
        if self._open_acks >= MOST_OPEN:
            self._emit_acks()

    def _emit_acks(self) -> None:
        # Behind the puts that they may name.
        self._close_runs()
        for incarnation, numbers in self._acks.items():
            for chunk in chunks(sorted(set(numbers)), RUN):
                self._emit(records_item(0, ack_record(incarnation, chunk)))
        self._acks.clear()
        self._open_acks = 0

    def _close_runs(self) -> None:
        for run in sorted(self._runs.values(), key=_first):
            self._emit(run_item(run))
        self._runs.clear()
        self._open_puts = 0

    def _close_all(self) -> None:
        self._emit_acks()
        if self._delivered:
            for chunk in chunks(list(self._delivered.items()), RUN):
                self._emit(records_item(0, delivered_up_to_record(chunk)))
            self._delivered.clear()

    def _emit(self, item: bytes) -> None:
        self._length += len(item)
        if self._length > self._most_bytes:
            raise TooLarge(f"more than {self._most_bytes} bytes")
        self._checksum = crc32(item, self._checksum)
        self._pieces.append(item)


def _append(firsts: "array[int]", lasts: "array[int]", first: int, last: int) -> None:
    if lasts and first == lasts[-1] + 1:
        lasts[-1] = last
    else:
        firsts.append(first)
        lasts.append(last)


def _first(run: PutRun) -> int:
    return run.firsts[0]
