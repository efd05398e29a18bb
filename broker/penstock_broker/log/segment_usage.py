"""What is still needed of each segment, so that a segment of which nothing is needed can be recycled at once.

No table of messages is kept. Message numbers rise in log order, so the segment of a message follows from its number;
per queue and segment there are two integers: how many live messages, and the sum of their numbers. If a message is
acknowledged twice, the two disagree. Such a segment is not recycled in this run (the next start counts anew), so the
mistake costs space and no message.

Cost: one update per queue and block of puts, two bisections and one sum per queue and block of acks.
"""

import logging
import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock_broker.log.block_index import BlockIndex
from penstock_broker.log.blocks import BLOCK_HEADER

LOGGER = logging.getLogger(__name__)

_NEVER = 1 << 64
"""More than the sequence of any block."""


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
    definitions: dict[int, int] = field(default_factory=dict[int, int])
    """By route set that is defined in here, where the block begins that does so."""
    blocks: BlockIndex = field(default_factory=BlockIndex)
    """Where its blocks with messages begin."""

    @property
    def room(self) -> int:
        """Bytes of records that one more block can hold, with room for the seal behind it."""
        return self.size - self.end - 2 * BLOCK_HEADER.size

    def fits(self, length: int, seal: int) -> bool:
        """Whether a block of `length` bytes fits, with `seal` bytes behind it."""
        return self.end + length + seal <= self.size


@dataclass(slots=True)
class _Tally:
    count: int = 0
    total: int = 0


@dataclass(slots=True)
class _Holder:
    """A message whose body lies in other segments than its put, and the queues in which it lives."""

    queues: set[int]
    segments: tuple[Segment, ...]


class SegmentUsage:
    """All segments in order, the queues that exist, and what of each queue lives in which segment."""

    def __init__(self) -> None:
        self.written = 0
        """The sequence of the last block written; the segment writer keeps it up to date."""
        self.segments: list[Segment] = []
        self.by_number: dict[int, Segment] = {}
        self.queues: dict[int, dict[int, _Tally]] = {}  # incarnation -> segment number -> live messages
        self._holders: dict[int, _Holder] = {}  # by message
        self._firsts: list[int] = []
        self._moved: dict[int, int] = {}  # message -> segment, for copies that lie out of number order
        self._changes = 0
        """Grows whenever a segment may have become recyclable, but for what `recyclable` is asked with."""
        self._none_until: tuple[int, int, int] | None = None
        """Without a change in `_changes` (the first) and of `kept_from` (the second), no segment is recyclable before
        this block (the third) is synced."""

    def add_segment(self, segment: Segment) -> None:
        """Segments come in ascending order, of numbers and of first messages."""
        self._changes += 1
        self.segments.append(segment)
        self.by_number[segment.number] = segment
        self._firsts.append(segment.first_message)

    def remove_segment(self, segment: Segment) -> None:
        """Nothing is needed of the segment, and it will be recycled."""
        self._changes += 1
        position = self.segments.index(segment)
        del self.segments[position], self._firsts[position], self.by_number[segment.number]
        if self._moved:
            self._moved = {message: number for message, number in self._moved.items() if number != segment.number}

    @property
    def has_copies(self) -> bool:
        """Whether messages lie in other segments than their numbers say."""
        return bool(self._moved)

    def begin_queue(self, incarnation: int) -> None:
        """A queue exists from now on; a second call changes nothing."""
        self.queues.setdefault(incarnation, {})

    def end_queue(self, incarnation: int, sequence: int) -> None:
        """The queue and all its messages are gone by block `sequence`."""
        tallies = self.queues.pop(incarnation, {})
        self._leave(incarnation, list(self._holders), sequence)
        for number, tally in list(tallies.items()):
            self._lower(tallies, number, tally.count, tally.total, sequence)

    def restore(self, incarnation: int, messages: Sequence[int], segment: int) -> None:
        """Count recovered messages (ascending) of one queue in the segment where their records lie."""
        home = self.by_number[segment]
        if self._segment_of(messages[0]) is not home or self._segment_of(messages[-1]) is not home:
            self._moved |= {each: segment for each in messages if self._segment_of(each).number != segment}
        self.put(home, (incarnation,), messages)

    def put(self, segment: Segment, incarnations: Iterable[int], messages: Sequence[int]) -> None:
        """Messages (ascending), each in all these queues, were written to `segment`."""
        count, total = len(messages), sum(messages)
        segment.last_message = max(segment.last_message, messages[-1])
        for incarnation in incarnations:
            tallies = self.queues.get(incarnation)
            if tallies is None:
                continue
            tally = tallies.get(segment.number)
            if tally is None:
                tally = tallies[segment.number] = _Tally()
            tally.count += count
            tally.total += total
            segment.live += count

    def ack(self, incarnation: int, messages: Sequence[int], sequence: int) -> set[int]:
        """These messages (ascending) left their queue by block `sequence`. Returns the segments with their puts."""
        tallies = self.queues.get(incarnation)
        if tallies is None:
            return set()
        if self._holders:
            self._leave(incarnation, messages, sequence)
        low, high = self._segment_of(messages[0]), self._segment_of(messages[-1])
        if low is high and not self._moved:
            self._lower(tallies, low.number, len(messages), sum(messages), sequence)
            return {low.number}
        by_segment: dict[int, _Tally] = {}
        for message in messages:
            tally = by_segment.setdefault(self._moved.get(message) or self._segment_of(message).number, _Tally())
            tally.count += 1
            tally.total += message
        for number, tally in by_segment.items():
            self._lower(tallies, number, tally.count, tally.total, sequence)
        return set(by_segment)

    def hold_body(self, message: int, incarnations: Iterable[int], segments: Sequence[Segment]) -> None:
        """A message was put whose body lies in these segments: they stay until it has left all its queues."""
        own = self._moved.get(message) or self._segment_of(message).number
        others = tuple(segment for segment in segments if segment.number != own)
        queues = {incarnation for incarnation in incarnations if incarnation in self.queues}
        if others and queues:
            self._holders[message] = _Holder(queues, others)
            for segment in others:
                segment.live += 1

    def release_body(self, segments: list[Segment]) -> None:
        """A body in these segments is no longer used; the list is emptied.

        The segments stay until the last block written is synced: it may hold a record that names the body.
        """
        self._release(segments, self.written)
        segments.clear()

    def recyclable(self, kept_from: int, synced: int) -> Segment | None:
        """The oldest segment of which nothing is needed, or None. Never the last, which is being written.

        Needed are: live messages; acks, while a put that they name is there; topology from segment `kept_from` on
        (older segments are covered by a synced checkpoint); and what was released by a block that is not `synced` yet.
        The loop asks in each turn, so the segments are looked at only if something has changed since there was none.
        """
        known = self._none_until
        if known is not None and known[0] == self._changes and known[1] == kept_from and synced < known[2]:
            return None
        awaited = _NEVER
        for segment in self.segments:
            if segment.number >= kept_from or segment is self.segments[-1]:
                break
            if segment.live or segment.miscounted or not self.by_number.keys().isdisjoint(segment.acks_into):
                continue
            if segment.released_by <= synced:
                return segment
            awaited = min(awaited, segment.released_by)
        self._none_until = (self._changes, kept_from, awaited)
        return None

    def acks_moved(self) -> None:
        """Acks were written once more: fewer segments are needed for them now."""
        self._changes += 1

    def _release(self, segments: Iterable[Segment], sequence: int) -> None:
        for segment in segments:
            segment.live -= 1
            segment.released_by = max(segment.released_by, sequence)
            if not segment.live:
                self._changes += 1

    def _leave(self, incarnation: int, messages: Iterable[int], sequence: int) -> None:
        """Release the bodies of the messages that have left their last queue."""
        for message in messages:
            holder = self._holders.get(message)
            if holder is None:
                continue
            holder.queues.discard(incarnation)
            if not holder.queues:
                del self._holders[message]
                self._release(holder.segments, sequence)

    def _lower(self, tallies: dict[int, _Tally], number: int, count: int, total: int, sequence: int) -> None:
        segment = self.by_number[number]
        segment.live -= count
        segment.released_by = max(segment.released_by, sequence)
        if not segment.live:
            self._changes += 1
        tally = tallies.get(number, _Tally())
        tally.count -= count
        tally.total -= total
        if tally.count > 0:
            return
        tallies.pop(number, None)
        if tally.total or tally.count:
            segment.miscounted = True
            LOGGER.error("segment %d is kept until the next start: a message in it was acknowledged twice", number)

    def stretch(self, message: int) -> tuple[Segment, int]:
        """The segment in which the message lies, if it is live, and up to which number those behind it lie there."""
        index = max(0, bisect_right(self._firsts, message) - 1)
        upto = self._firsts[index + 1] - 1 if index + 1 < len(self._firsts) else sys.maxsize
        return self.segments[index], upto

    def _segment_of(self, message: int) -> Segment:
        return self.segments[max(0, bisect_right(self._firsts, message) - 1)]
