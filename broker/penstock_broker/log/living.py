"""How many live messages each segment holds, per incarnation, so that dead segments are known at once.

Only counts are kept, no table of messages: message numbers rise in log order, so the segment of a message follows
from its number. The price: a message must be acknowledged exactly once per queue (`AuditedLog` checks that in tests).
Cost: one dict update per put and route set in a block, two bisections per queue and block of acks.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Segment:
    """One file of the log. `end`: where the next block goes; `touched`: the block that last lowered `live`."""

    number: int
    path: Path
    handle: int
    size: int
    end: int
    first_message: int
    live: int = 0
    touched: int = 0
    names: set[int] = field(default_factory=set[int])  # older segments with puts that acks in here name
    routes: set[int] = field(default_factory=set[int])  # route sets defined in here

    def fits(self, length: int, seal: int) -> bool:
        """Whether a block of `length` bytes fits, with room for the seal behind it."""
        return self.end + length + seal <= self.size


class Living:
    """All segments in order, and what lives in them."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.by_number: dict[int, Segment] = {}
        self.queues: dict[int, dict[int, int]] = {}  # incarnation -> segment number -> live messages
        self._firsts: list[int] = []
        self._moved: dict[int, int] = {}  # message -> segment, for copies that lie out of number order

    def add_segment(self, segment: Segment) -> None:
        self.segments.append(segment)
        self.by_number[segment.number] = segment
        self._firsts.append(segment.first_message)

    def remove_segment(self, segment: Segment) -> None:
        position = self.segments.index(segment)
        del self.segments[position], self._firsts[position], self.by_number[segment.number]
        if self._moved:
            self._moved = {message: number for message, number in self._moved.items() if number != segment.number}

    def restore(self, incarnation: int, message: int, segment: int) -> None:
        """Count one recovered message where its record lies."""
        counts = self.queues[incarnation]
        counts[segment] = counts.get(segment, 0) + 1
        self.by_number[segment].live += 1
        if self._segment_of(message).number != segment:
            self._moved[message] = segment

    def put(self, segment: Segment, incarnations: Iterable[int], count: int) -> None:
        """`count` messages, each in all these queues, were written to `segment`."""
        for incarnation in incarnations:
            counts = self.queues.get(incarnation)
            if counts is not None:
                counts[segment.number] = counts.get(segment.number, 0) + count
                segment.live += count

    def ack(self, incarnation: int, messages: Sequence[int], sequence: int) -> set[int]:
        """These messages (sorted) left their queue by block `sequence`. Returns the segments that hold their puts."""
        counts = self.queues.get(incarnation)
        if counts is None:
            return set()
        low, high = self._segment_of(messages[0]), self._segment_of(messages[-1])
        if low is high and not self._moved:
            tally = {low.number: len(messages)}
        else:
            tally = Counter(self._moved.get(message) or self._segment_of(message).number for message in messages)
        for number, count in tally.items():
            self._lower(counts, number, count, sequence)
        return set(tally)

    def end(self, incarnation: int, sequence: int) -> None:
        """The queue and all its messages are gone by block `sequence`."""
        counts = self.queues.pop(incarnation, {})
        for number, count in list(counts.items()):
            self._lower(counts, number, count, sequence)

    def _lower(self, counts: dict[int, int], number: int, count: int, sequence: int) -> None:
        left = counts.get(number, 0) - count
        if left < 0:
            raise ValueError(f"{-left} messages of segment {number} were acknowledged twice")
        if left:
            counts[number] = left
        else:
            counts.pop(number, None)
        segment = self.by_number[number]
        segment.live -= count
        segment.touched = sequence

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
            if not segment.live and segment.touched <= synced and self.by_number.keys().isdisjoint(segment.names):
                return segment
        return None
