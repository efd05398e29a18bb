"""Finds the blocks in the segments and decides which of them count. Pure: the bytes of segments in, a result out.

The rule (docs/reference/log-format.md, "Recovery"): a bad block that no later block calls synced was never promised to
anybody. It is the torn tail, and is cut together with everything behind it. A bad block that a later block calls synced
is damage, and reading goes on behind it. Bytes of a segment's former life never count, because a block names its
segment, its place, its epoch and its sequence, and a recycled segment gets a new number.

Source: docs/decisions/039-blocks-and-torn-tails.md.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock_broker.log.format.blocks import (
    BLOCK_ALIGNMENT,
    BLOCK_MAGIC,
    SEGMENT_START,
    BlockFlag,
    BlockHeader,
    decode_block,
)


@dataclass(frozen=True, slots=True)
class SegmentData:
    """One segment as found: its number and size; `load` gives its bytes, header page included, by its number."""

    number: int
    size: int
    load: Callable[[int], bytes]

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
    """`accepted`: the blocks that count, in log order, with the holes between them.

    `claimed`: the highest sequence that any block calls synced. `cut` is None only if there is no segment.
    """

    accepted: tuple[BlockHeader | Hole, ...]
    cut: Cut | None
    claimed: int


Accept = Callable[[BlockHeader | Hole], None]


def scan(segments: Sequence[SegmentData], seed: int, accept: Accept = lambda _: None) -> ScanResult:
    """Sort the blocks of `segments` (ascending numbers) into what counts, what is damaged, and what is cut.

    `seed`: see `blocks.seed_of`. `accept` is called with each block and hole that counts, in log order, while the bytes
    of its segment are at hand: whoever reads them then reads each segment once. Only where blocks are missing, the
    segments behind are looked through first, to know what was synced. Raises NewerFormat, and what `accept` raises.
    """
    found = _Found(segments, seed)
    accepted: list[BlockHeader | Hole] = []

    def take(item: BlockHeader | Hole) -> None:
        accepted.append(item)
        accept(item)

    last: BlockHeader | None = None
    for block in found.all():
        if last is not None and (block.epoch < last.epoch or block.sequence <= last.sequence):
            continue
        holes = _holes_between(segments, last, block)
        if holes:
            claimed = found.claimed()
            for hole in holes:
                if hole.first <= claimed:
                    take(hole)
            if block.sequence - 1 > claimed:
                break
        take(block)
        last = block
    claimed = found.claimed()
    return ScanResult(tuple(accepted), _cut(segments, found.by_segment, last), claimed)


class _Found:
    """The sound blocks of all segments. Each segment is gone through once."""

    def __init__(self, segments: Sequence[SegmentData], seed: int) -> None:
        self._segments, self._seed = segments, seed
        self.by_segment: list[list[BlockHeader]] = []

    def all(self) -> Iterator[BlockHeader]:
        """All blocks; those of a segment are looked for when the ones before have been taken."""
        for index in range(len(self._segments)):
            if index == len(self.by_segment):
                self._find_next()
            yield from self.by_segment[index]

    def claimed(self) -> int:
        """The highest sequence that any block calls synced."""
        while len(self.by_segment) < len(self._segments):
            self._find_next()
        return max((block.synced for blocks in self.by_segment for block in blocks), default=0)

    def _find_next(self) -> None:
        self.by_segment.append(find_blocks(self._segments[len(self.by_segment)], self._seed))


def find_blocks(segment: SegmentData, seed: int) -> list[BlockHeader]:
    """Every sound block of one segment in order of place, also behind bad bytes; epochs never fall, sequences rise."""
    data = segment.data
    view = memoryview(data)
    blocks: list[BlockHeader] = []
    offset, epoch, sequence = SEGMENT_START, 0, 0
    while offset >= 0:
        block = decode_block(view, offset, segment.number, seed)
        if block is None or block.epoch < epoch or block.sequence <= sequence:
            offset = _next_candidate(data, offset + BLOCK_ALIGNMENT)
            continue
        blocks.append(block)
        if block.flags & BlockFlag.SEAL:
            break
        offset, epoch, sequence = block.end, block.epoch, block.sequence
    return blocks


def _next_candidate(data: bytes, offset: int) -> int:
    """The next aligned place at or behind `offset` that starts with the magic of a block; -1 if there is none."""
    while (offset := data.find(BLOCK_MAGIC, offset)) >= 0 and offset % BLOCK_ALIGNMENT:
        offset += 1
    return offset


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
        if last is not None and segment.number == last.segment and not last.flags & BlockFlag.SEAL:
            regions.append((segment.number, last.end, segment.size))
        elif (last is None or segment.number > last.segment) and segment.number < block.segment:
            regions.append((segment.number, SEGMENT_START, segment.size))
        elif segment.number == block.segment and block.offset > SEGMENT_START:
            regions.append((segment.number, SEGMENT_START, block.offset))
    first = block.sequence - 1 if last is None else last.sequence + 1
    return [Hole(*region, first, block.sequence - 1) for region in regions]


def _cut(segments: Sequence[SegmentData], found: Sequence[list[BlockHeader]], last: BlockHeader | None) -> Cut | None:
    """Behind the last block that counts. Whatever lies there and looks sound must be wiped before writing goes on."""
    if not segments:
        return None
    number, offset = (segments[0].number, SEGMENT_START) if last is None else (last.segment, last.end)
    sound = [block.end for blocks in found for block in blocks if block.segment == number]
    return Cut(number, offset, max([offset, *sound]))
