"""How many live messages each segment holds, per incarnation, so that dead segments are known at once.

No table of messages is kept: their numbers rise in log order, so the segment of a message follows from its number,
and per queue and segment there are two integers, how many live and the sum of their numbers. Whoever acknowledges a
message twice makes the two disagree; such a segment is never recycled in this run (a restart counts anew), so a
mistake costs space, not messages.

Cost: one update per queue and block of puts, two bisections and one sum per queue and block of acks.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock_broker.log.blocks import BLOCK_HEADER

LOGGER = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Segment:
    """One file of the log. `end`: where the next block goes; `touched`: the block that last lowered `live`.

    `live` counts messages per queue, and bodies with parts in here that something holds.
    """

    number: int
    path: Path
    handle: int
    size: int
    end: int
    first_message: int
    live: int = 0
    touched: int = 0
    doubtful: bool = False  # counts and sums disagree
    last_message: int = 0  # no put in here has a higher number
    names: set[int] = field(default_factory=set[int])  # older segments with puts that acks in here name
    routes: set[int] = field(default_factory=set[int])  # route sets defined in here

    @property
    def room(self) -> int:
        """Bytes of records that one more block can hold, with room for the seal behind it."""
        return self.size - self.end - 2 * BLOCK_HEADER.size

    def fits(self, length: int, seal: int) -> bool:
        """Whether a block of `length` bytes fits, with room for the seal behind it."""
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


class Living:
    """All segments in order, and what lives in them."""

    def __init__(self) -> None:
        self.written = 0  # the last block written, kept up by the writer
        self._holders: dict[int, _Holder] = {}
        self.segments: list[Segment] = []
        self.by_number: dict[int, Segment] = {}
        self.queues: dict[int, dict[int, _Tally]] = {}  # incarnation -> segment number -> live messages
        self._firsts: list[int] = []
        self._moved: dict[int, int] = {}  # message -> segment, for copies that lie out of number order

    def add_segment(self, segment: Segment) -> None:
        """Segments come in ascending order, of numbers and of first messages."""
        self.segments.append(segment)
        self.by_number[segment.number] = segment
        self._firsts.append(segment.first_message)

    def remove_segment(self, segment: Segment) -> None:
        """The segment is dead and will be recycled."""
        position = self.segments.index(segment)
        del self.segments[position], self._firsts[position], self.by_number[segment.number]
        if self._moved:
            self._moved = {message: number for message, number in self._moved.items() if number != segment.number}

    @property
    def has_copies(self) -> bool:
        """Whether messages lie in other segments than their numbers say."""
        return bool(self._moved)

    def begin(self, incarnation: int) -> None:
        """A queue exists; a second call changes nothing."""
        self.queues.setdefault(incarnation, {})

    def restore(self, incarnation: int, message: int, segment: int) -> None:
        """Count one recovered message where its record lies."""
        if self._segment_of(message).number != segment:
            self._moved[message] = segment
        self.put(self.by_number[segment], (incarnation,), (message,))

    def put(self, segment: Segment, incarnations: Iterable[int], messages: Sequence[int]) -> None:
        """Messages, each in all these queues, were written to `segment`."""
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

    def hold(self, message: int, incarnations: Iterable[int], segments: Sequence[Segment]) -> None:
        """A message was put whose body lies in these segments: they stay until it has left all its queues."""
        own = self._moved.get(message) or self._segment_of(message).number
        others = tuple(segment for segment in segments if segment.number != own)
        queues = {incarnation for incarnation in incarnations if incarnation in self.queues}
        if others and queues:
            self._holders[message] = _Holder(queues, others)
            for segment in others:
                segment.live += 1

    def unpin(self, segments: list[Segment]) -> None:
        """A body is not in hand any more. What was written for it must not be under way when a segment is recycled."""
        self._let_go(segments, self.written)
        segments.clear()

    def _let_go(self, segments: Iterable[Segment], sequence: int) -> None:
        for segment in segments:
            segment.live -= 1
            segment.touched = max(segment.touched, sequence)

    def _leave(self, incarnation: int, messages: Iterable[int], sequence: int) -> None:
        """Messages whose bodies lie elsewhere have left a queue."""
        for message in messages:
            holder = self._holders.get(message)
            if holder is None:
                continue
            holder.queues.discard(incarnation)
            if not holder.queues:
                del self._holders[message]
                self._let_go(holder.segments, sequence)

    def ack(self, incarnation: int, messages: Sequence[int], sequence: int) -> set[int]:
        """These messages (sorted) left their queue by block `sequence`. Returns the segments that hold their puts."""
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

    def end(self, incarnation: int, sequence: int) -> None:
        """The queue and all its messages are gone by block `sequence`."""
        tallies = self.queues.pop(incarnation, {})
        self._leave(incarnation, list(self._holders), sequence)
        for number, tally in list(tallies.items()):
            self._lower(tallies, number, tally.count, tally.total, sequence)

    def _lower(self, tallies: dict[int, _Tally], number: int, count: int, total: int, sequence: int) -> None:
        segment = self.by_number[number]
        segment.live -= count
        segment.touched = max(segment.touched, sequence)
        tally = tallies.get(number, _Tally())
        tally.count -= count
        tally.total -= total
        if tally.count > 0:
            return
        tallies.pop(number, None)
        if tally.total or tally.count:
            segment.doubtful = True
            LOGGER.error("segment %d is kept until the next start: a message in it was acknowledged twice", number)

    def _segment_of(self, message: int) -> Segment:
        return self.segments[max(0, bisect_right(self._firsts, message) - 1)]

    def dead(self, kept_from: int, synced: int) -> Segment | None:
        """The oldest segment that nothing needs any more, or None. Never the last, which is being written.

        Needed are: live messages; acks, while a put that they name is there; topology from segment `kept_from` on
        (older segments are covered by a synced checkpoint); and whatever died by a block that is not `synced` yet.
        """
        for segment in self.segments[:-1]:
            if segment.number >= kept_from:
                return None
            if segment.live or segment.doubtful or segment.touched > synced:
                continue
            if self.by_number.keys().isdisjoint(segment.names):
                return segment
        return None
