"""One file of the log: how far it is written, what of it is still needed, and where in it something is found.

`SegmentUsage` keeps what is needed up to date, compaction what it has found in the segment, and who writes blocks where
these begin. Knows no other segment, and writes no file.
"""

from dataclasses import dataclass, field
from pathlib import Path

from penstock_broker.log.format.blocks import BLOCK_HEADER
from penstock_broker.log.segments.block_index import BlockIndex

__all__ = ["Segment", "Span", "Tally"]

Span = tuple[int, int]  # first and last message


@dataclass(slots=True, eq=False)
class Segment:
    """One file of the log, and what is needed of it."""

    number: int
    path: Path
    handle: int
    size: int
    end: int
    """Where the next block goes, in bytes from the start of the file."""
    first_message: int
    """No put in here has a lower number, except for copies that compaction made."""
    live: int = 0
    """Live messages, counted per queue, and bodies with parts in here that something holds."""
    released_by: int = 0
    """The sequence of the last block that lowered `live`."""
    miscounted: bool = False
    """A count and the sum beside it disagree."""
    last_message: int = 0
    """No put in here has a higher number."""
    acks_into: set[int] = field(default_factory=set[int])
    """Older segments with puts that acks in here name."""
    bodies: int = 0
    """Of `live`, the bodies."""
    body_bytes: int = 0
    """Bytes of their parts in here."""
    put_bytes: int = 0
    """Bytes that were written for `put_places` live messages, counted per queue. Both only ever grow, until compaction
    has looked into the segment: then they say what was found."""
    put_places: int = 0
    largest_put: int = 0
    """No message that is counted in `put_bytes` takes more bytes."""
    sizes: tuple[tuple[int, int], ...] = ()
    """Of the messages in `put_bytes`, if compaction has looked: bytes at most, and how many; the longest first."""
    copied: list[Span] = field(default_factory=list[Span])
    """Among the numbers in these spans are the copies that compaction wrote in here."""
    copied_from: set[int] = field(default_factory=set[int])
    """Segments in which older puts of the copies in here may be left."""
    is_fixed: bool = False
    """Compaction can't move what is alive in here; the next start tries it again."""
    definitions: dict[int, int] = field(default_factory=dict[int, int])
    """By route set that is defined in here, where the block begins that does so."""
    blocks: BlockIndex = field(default_factory=BlockIndex)
    """Where its blocks with messages begin."""
    has_digest: bool = False
    """A file says what is in here; it goes with the segment."""
    limit: int = field(init=False)
    """How far blocks may go, so that the seal has room behind them. The padding of a block needs no look: sizes of
    segments have the alignment of blocks."""

    def __post_init__(self) -> None:
        self.limit = self.size - BLOCK_HEADER.size

    @property
    def room(self) -> int:
        """Bytes of records that one more block can hold, with room for the seal behind it."""
        return self.limit - self.end - BLOCK_HEADER.size

    @property
    def alive_bytes(self) -> float:
        """About how many bytes the live messages in here take, by their number; of bodies exactly."""
        alive = self.put_bytes * (self.live - self.bodies) / self.put_places if self.put_places else 0
        return min(alive + self.body_bytes, self.size)

    @property
    def least_alive_bytes(self) -> int:
        """How many bytes are alive at least: those that have left may have been the longest. The same as `alive_bytes`
        if none has left since compaction looked into the segment."""
        died = self.put_places - (self.live - self.bodies)
        gone = 0
        for size, count in self.sizes or ((self.largest_put, died),):
            gone += size * min(count, died)
            died -= count
            if died <= 0:
                break
        return max(self.put_bytes - gone, 0) + self.body_bytes


@dataclass(slots=True)
class Tally:
    """How many messages of one queue live in one segment, and the sum of their numbers."""

    count: int = 0
    total: int = 0

    def add(self, count: int, total: int) -> None:
        """So many messages more, with this sum of their numbers."""
        self.count += count
        self.total += total
