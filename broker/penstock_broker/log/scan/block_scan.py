"""Finds the blocks in the segments and decides which of them count. Pure: the bytes of segments in, a result out.

The rule (docs/reference/log-format.md, "Recovery"): a bad block that no later block calls synced was never promised to
anybody. It is the torn tail, and is cut together with everything behind it. A bad block that a later block calls synced
is damage, and reading goes on behind it. Bytes of a segment's former life never count, because a block names its
segment, its place, its epoch and its sequence, and a recycled segment gets a new number.

Source: docs/decisions/039-blocks-and-torn-tails.md.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock_broker.log.format.blocks import (
    BLOCK_ALIGNMENT,
    SEGMENT_START,
    BlockHeader,
    block_candidates,
    decode_block,
)


@dataclass(frozen=True, slots=True)
class KnownSegment:
    """A sealed segment whose content is known without its blocks: a digest of it was found (`segment_digest`)."""

    first: BlockHeader
    """Of its first block: segment, offset, epoch and sequence are right."""
    seal: BlockHeader
    """Its last block. All blocks up to it are synced."""

    @property
    def segment(self) -> int:
        """Its number."""
        return self.seal.segment


@dataclass(frozen=True, slots=True)
class SegmentData:
    """One segment as found: its number and size; `load` gives its bytes, header page included, by its number."""

    number: int
    size: int
    load: Callable[[int], bytes]
    known: KnownSegment | None = None
    """If this is there, the bytes are not asked for."""

    @property
    def data(self) -> bytes:
        """The bytes. Each call may read them anew, because they are not kept."""
        return self.load(self.number)


@dataclass(frozen=True, slots=True)
class Hole:
    """Damage: bytes [start, end) of a segment in which blocks `first` to `last`, or some of them, were synced."""

    segment: int
    start: int
    end: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the log goes on: from `offset` of `segment` on nothing was promised, nor in later segments.

    `end`: the end of the last sound block behind `offset` in that segment, which has to be wiped up to there.
    """

    segment: int
    offset: int
    end: int


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What counts. Of the blocks only those are kept that a caller still needs: a log can have many millions."""

    holes: tuple[Hole, ...]
    first: BlockHeader | None
    """The first block that counts; None if none does."""
    last: BlockHeader | None
    ends: dict[int, BlockHeader]
    """By segment, the last block that counts."""
    unclaimed: tuple[BlockHeader, ...]
    """The blocks that count though no block calls them synced, in log order."""
    cut: Cut | None
    """None only if there is no segment."""
    claimed: int
    """The highest sequence that any block calls synced."""
    is_in_order: bool
    """No sound block was left out, but for those behind the cut."""


Accept = Callable[[BlockHeader | Hole | KnownSegment], None]


def scan(segments: Sequence[SegmentData], seed: int, accept: Accept = lambda _: None) -> ScanResult:
    """Sort the blocks of `segments` (ascending numbers) into what counts, what is damaged, and what is cut.

    `seed`: see `blocks.seed_of`. `accept` is called with each block, known segment and hole that counts, in log order,
    while the bytes of its segment are at hand: whoever reads them then reads each segment once. Only where blocks are
    missing, the segments behind are looked through first, to know what was synced. Raises NewerFormat, and what
    `accept` raises.
    """
    found = _Found(segments, seed)
    holes: list[Hole] = []
    ends: dict[int, BlockHeader] = {}
    unclaimed: deque[BlockHeader] = deque()
    very_first: BlockHeader | None = None
    last: BlockHeader | None = None
    is_in_order = True
    for item in found.all():
        block, end = (item.first, item.seal) if isinstance(item, KnownSegment) else (item, item)
        if last is None:
            very_first = block
        elif block.epoch < last.epoch or block.sequence <= last.sequence:
            is_in_order = False
            continue
        missing = _holes_between(segments, last, block)
        if missing:
            claimed = found.claimed()
            for hole in missing:
                if hole.first <= claimed:
                    holes.append(hole)
                    accept(hole)
            if block.sequence - 1 > claimed:
                very_first = very_first if last is not None else None
                break
        accept(item)
        last = ends[end.segment] = end
        while unclaimed and unclaimed[0].sequence <= found.claimed_so_far:
            unclaimed.popleft()
        if end.sequence > found.claimed_so_far:
            unclaimed.append(end)
    claimed = found.claimed()
    left = tuple(block for block in unclaimed if block.sequence > claimed)
    return ScanResult(
        tuple(holes), very_first, last, ends, left, _cut(segments, found.ends, last), claimed, is_in_order
    )


class _Found:
    """The sound blocks of all segments. Each segment is gone through once, and those behind missing blocks twice."""

    def __init__(self, segments: Sequence[SegmentData], seed: int) -> None:
        self._segments, self._seed = segments, seed
        self._done = 0  # segments that were gone through
        self.claimed_so_far = 0
        """The highest sequence that a block found so far calls synced."""
        self.ends: dict[int, int] = {}
        """By segment, the end of the last sound block found so far."""

    def all(self) -> Iterator[BlockHeader | KnownSegment]:
        """All blocks. They are looked for as they are asked for."""
        for index, segment in enumerate(self._segments):
            yield from self._of(segment)
            self._done = max(self._done, index + 1)

    def claimed(self) -> int:
        """The highest sequence that any block calls synced."""
        for segment in self._segments[self._done :]:
            for _ in self._of(segment):
                pass
        self._done = len(self._segments)
        return self.claimed_so_far

    def _of(self, segment: SegmentData) -> Iterator[BlockHeader | KnownSegment]:
        known, ends = segment.known, self.ends
        if known is not None:
            self.claimed_so_far = max(self.claimed_so_far, known.seal.sequence)
            ends[segment.number] = known.seal.end
            yield known
            return
        for block in find_blocks(segment, self._seed):
            if block.synced > self.claimed_so_far:
                self.claimed_so_far = block.synced
            ends[segment.number] = max(block.end, ends.get(segment.number, 0))
            yield block


def find_blocks(segment: SegmentData, seed: int) -> Iterator[BlockHeader]:
    """Every sound block of one segment in order of place, also behind bad bytes; epochs never fall, sequences rise."""
    data = segment.data
    view = memoryview(data)
    offset, epoch, sequence = SEGMENT_START, 0, 0
    while offset >= 0:
        block = decode_block(view, offset, segment.number, seed)
        if block is None or block.epoch < epoch or block.sequence <= sequence:
            offset = next(block_candidates(data, offset + BLOCK_ALIGNMENT), -1)
            continue
        yield block
        if block.is_seal:
            break
        offset, epoch, sequence = block.end, block.epoch, block.sequence


def _holes_between(segments: Sequence[SegmentData], last: BlockHeader | None, block: BlockHeader) -> list[Hole]:
    """Where blocks are missing between two sound ones, or before the first.

    A segment number without a file is no hole: that segment was recycled.
    """
    if last is not None and block.sequence == last.sequence + 1:
        return []
    if last is not None and last.segment == block.segment:
        return [Hole(block.segment, last.end, block.offset, last.sequence + 1, block.sequence - 1)]
    regions: list[tuple[int, int, int]] = []
    for segment in segments:
        if last is not None and segment.number == last.segment and not last.is_seal:
            regions.append((segment.number, last.end, segment.size))
        elif (last is None or segment.number > last.segment) and segment.number < block.segment:
            regions.append((segment.number, SEGMENT_START, segment.size))
        elif segment.number == block.segment and block.offset > SEGMENT_START:
            regions.append((segment.number, SEGMENT_START, block.offset))
    first = block.sequence - 1 if last is None else last.sequence + 1
    return [Hole(*region, first, block.sequence - 1) for region in regions]


def _cut(segments: Sequence[SegmentData], ends: Mapping[int, int], last: BlockHeader | None) -> Cut | None:
    """Behind the last block that counts. Whatever lies there and looks sound must be wiped before writing goes on."""
    if not segments:
        return None
    number, offset = (segments[0].number, SEGMENT_START) if last is None else (last.segment, last.end)
    return Cut(number, offset, max(offset, ends.get(number, 0)))
