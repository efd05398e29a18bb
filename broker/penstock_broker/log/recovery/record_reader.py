"""Reads the records of a log that is being recovered, block by block, and tells how far it is."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from typing import Final

from penstock_broker.log.format.blocks import BLOCK_HEADER, BlockHeader
from penstock_broker.log.format.record_codec import Malformed, decode_records
from penstock_broker.log.format.records import Commit, Put, Record, RouteDifference, RouteSet, StagedPut
from penstock_broker.log.recovery.bulk_reader import bulk_records
from penstock_broker.log.recovery.digest_files import DigestUnusable
from penstock_broker.log.recovery.live_puts import Pageable, PlainPuts
from penstock_broker.log.recovery.paged_puts import PagedPuts
from penstock_broker.log.recovery.replay import Replay
from penstock_broker.log.scan.block_scan import Hole, KnownSegment, SegmentData
from penstock_broker.log.segments.block_index import BlockIndex
from penstock_broker.log.segments.segment_digest import Digest, PutRun

PROGRESS_BYTES = 1024 * 1024

KEPT_BYTES: Final = 64 * 1024 * 1024
"""If live messages take more memory than this, their bodies are left in the log."""

Progress = Callable[[int, int], None]
"""Is told how many bytes recovery has gone through, and of how many in all; neither falls while one log is opened, and
what is done beside the reading counts in both.

It is called from the thread that opens the log, about once per `PROGRESS_BYTES` and at the end. It is not told the
time: the caller has a clock. What it raises ends the recovery, which can be begun anew.
"""


def no_progress(_read: int, _total: int) -> None:
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


def no_digest(number: int) -> Digest:
    """What a `RecordReader` asks that is to read all segments."""
    raise DigestUnusable(f"segment {number} is not to be known")


class RecordReader:
    """Reads the records of each block that counts, as soon as it is known to."""

    def __init__(
        self,
        segments: Sequence[SegmentData],
        progress: Progress,
        pageable: Pageable | None = None,
        kept_bytes: int = KEPT_BYTES,
        digest_of: Callable[[int], Digest] = no_digest,
    ) -> None:
        """`digest_of`: gives the digest of a known segment, or raises DigestUnusable. `pageable`: says which bodies may
        be left in the log once live messages take more than `kept_bytes` of memory; None: all are kept.
        """
        self.replay = Replay()
        self.malformed: list[tuple[Hole, str]] = []
        self.blocks: dict[int, BlockIndex] = {}
        """By segment, where its blocks with messages begin."""
        self.definitions: dict[int, dict[int, int]] = {}
        """By segment and route set, where the block begins that defines it."""
        self.total = sum(segment.size for segment in segments)
        """Bytes of all segments."""
        self._pageable, self._kept_bytes, self._most_kept = pageable, kept_bytes, kept_bytes
        self._digest_of = digest_of
        self._sizes = {segment.number: segment.size for segment in segments}
        self._segments = {segment.number: segment for segment in segments}
        self._before = dict(zip(self._segments, accumulate([0, *(each.size for each in segments)]), strict=False))
        self._progress, self._told = progress, -PROGRESS_BYTES
        self._reading = 0

    def accept(self, item: BlockHeader | Hole | KnownSegment) -> None:
        """The next block, segment or hole of the log."""
        if item.segment > self._reading + 1:  # a checkpoint that goes over the segments between is not whole
            self.replay.gap()
        self._reading = item.segment
        if isinstance(item, KnownSegment):
            self._take_digest(item.segment)
            self._tell(item.segment, self._sizes[item.segment])
            return
        if isinstance(item, Hole):
            self.replay.damage()
            return
        records, error = self._records(item)
        if error:
            self.replay.damage()
            self.malformed.append(malformed(item, error))
        else:
            self._apply(records, item)
            self._note(records, item)
        self._tell(item.segment, item.end)

    def _tell(self, segment: int, end: int) -> None:
        reached = self._before[segment] + end
        if reached - self._told >= PROGRESS_BYTES:
            self._told = reached
            self._progress(min(reached, self.total), self.total)

    def _take_digest(self, number: int) -> None:
        digest, replay = self._digest_of(number), self.replay
        if self._pageable is None or digest.head.first_message <= replay.highest_message:
            raise DigestUnusable(f"messages up to {replay.highest_message} come before segment {number}")
        replay.paged = replay.paged or PagedPuts()
        for item in digest.items:
            if isinstance(item, PutRun):
                replay.put_run(item, number)
            else:
                replay.apply(item.records, number, item.start)
        self._page()
        self.blocks[number], self.definitions[number] = digest.blocks, digest.definitions

    def _records(self, block: BlockHeader) -> tuple[Sequence[Record | PlainPuts], str]:
        data, replay = self._segments[block.segment].data, self.replay
        if replay.paged is None or self._pageable is None:
            return records_of(data, block)
        start = block.offset + BLOCK_HEADER.size
        try:
            return bulk_records(data, start, start + block.length, replay.highest_message, self._pageable), ""
        except Malformed as error:
            return [], str(error)

    def _apply(self, records: Sequence[Record | PlainPuts], block: BlockHeader) -> None:
        replay, start = self.replay, block.offset + BLOCK_HEADER.size
        for is_plain, together in groupby(records, _is_plain):
            if is_plain:
                for puts in together:
                    assert isinstance(puts, PlainPuts)
                    replay.put_paged(puts, block.segment)
            else:
                replay.apply((each for each in together if not isinstance(each, PlainPuts)), block.segment, start)
        self._page()

    def _page(self) -> None:
        replay = self.replay
        if self._pageable is not None and replay.kept_bytes > self._most_kept:
            replay.page(self._pageable)
            self._most_kept = replay.kept_bytes + self._kept_bytes  # what has to stay is not looked at again and again

    def _note(self, records: Sequence[Record | PlainPuts], block: BlockHeader) -> None:
        for record in records:
            if isinstance(record, RouteSet | RouteDifference):
                self.definitions.setdefault(block.segment, {}).setdefault(record.route_set, block.offset)
        numbers = list(_put_numbers(records))
        if numbers:
            self.blocks.setdefault(block.segment, BlockIndex()).note(min(numbers), max(numbers), block.offset)


def _is_plain(record: Record | PlainPuts) -> bool:
    return isinstance(record, PlainPuts)


def _put_numbers(records: Iterable[Record | PlainPuts]) -> Iterator[int]:
    for record in records:
        if isinstance(record, Put):
            yield record.message
        elif isinstance(record, PlainPuts):
            yield record.numbers[0]
            yield record.numbers[-1]
        elif isinstance(record, StagedPut):
            yield record.put.message
        elif isinstance(record, Commit):
            yield from _put_numbers(record.records)
