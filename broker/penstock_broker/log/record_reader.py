"""Reads the records of a log that is being recovered, block by block, and tells how far it is."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from penstock_broker.log.block_index import BlockIndex
from penstock_broker.log.blocks import BLOCK_HEADER, BlockHeader
from penstock_broker.log.record_codec import Malformed, decode_records
from penstock_broker.log.records import Commit, Put, Record, RouteDifference, RouteSet, StagedPut
from penstock_broker.log.replay import Replay
from penstock_broker.log.scan import Hole, SegmentData

PROGRESS_BYTES = 1024 * 1024

Progress = Callable[[int, int], None]
"""Is told how many bytes recovery has gone through, and of how many in all; neither falls while one log is opened.

It is called from the thread that opens the log, about once per `PROGRESS_BYTES` and at the end. It is not told the
time: the caller has a clock. What it raises ends the recovery, which can be begun anew.
"""


def unheard(_read: int, _total: int) -> None:
    """The `Progress` of a caller that does not ask for it."""


def records_of(data: bytes, block: BlockHeader) -> tuple[list[Record], str]:
    """The records of a sound block in the bytes of its segment, up to the first that can't be read, and why it can't:
    an empty text if all were read.
    """
    start = block.offset + BLOCK_HEADER.size
    records: list[Record] = []
    try:
        records.extend(decode_records(memoryview(data)[start : start + block.length]))
    except Malformed as error:
        return records, str(error)
    return records, ""


def malformed(block: BlockHeader, error: str) -> tuple[Hole, str]:
    """The damage that a block is whose checksum is right and whose records can't be read, and its reason."""
    hole = Hole(block.segment, block.offset, block.end, block.sequence, block.sequence)
    return hole, f"block {block.sequence} is sound but its records are not: {error}"


class RecordReader:
    """Reads the records of each block that counts, as soon as it is known to."""

    def __init__(self, segments: Sequence[SegmentData], progress: Progress) -> None:
        self.replay = Replay()
        self.malformed: list[tuple[Hole, str]] = []
        self.blocks: dict[int, BlockIndex] = {}
        """By segment, where its blocks with messages begin."""
        self.definitions: dict[int, dict[int, int]] = {}
        """By segment and route set, where the block begins that defines it."""
        self.total = sum(segment.size for segment in segments)
        """Bytes of all segments."""
        self._segments = {segment.number: segment for segment in segments}
        self._before = dict(zip(self._segments, accumulate([0, *(each.size for each in segments)]), strict=False))
        self._progress, self._told = progress, -PROGRESS_BYTES

    def accept(self, item: BlockHeader | Hole) -> None:
        """The next block or hole of the log."""
        if isinstance(item, Hole):
            self.replay.gap()
            return
        records, error = records_of(self._segments[item.segment].data, item)
        if error:
            self.replay.gap()
            self.malformed.append(malformed(item, error))
        else:
            self.replay.apply(records, item.segment, item.offset + BLOCK_HEADER.size)
            self._note(records, item)
        reached = self._before[item.segment] + item.end
        if reached - self._told >= PROGRESS_BYTES:
            self._told = reached
            self._progress(min(reached, self.total), self.total)

    def _note(self, records: Sequence[Record], block: BlockHeader) -> None:
        for record in records:
            if isinstance(record, RouteSet | RouteDifference):
                self.definitions.setdefault(block.segment, {}).setdefault(record.route_set, block.offset)
        first = min(_put_numbers(records), default=0)
        if first:
            self.blocks.setdefault(block.segment, BlockIndex()).note(first, block.offset)


def _put_numbers(records: Iterable[Record]) -> Iterator[int]:
    for record in records:
        if isinstance(record, Put):
            yield record.message
        elif isinstance(record, StagedPut):
            yield record.put.message
        elif isinstance(record, Commit):
            yield from _put_numbers(record.records)
