"""Which segments compaction rewrites, and when. Pure.

The share of a segment that is alive decides. Let S be the segments that hold live messages, and A the sum of their
shares. Compaction begins when S is above 7/4 A + 2. Then some segment has a share below 4/7, and only such segments are
rewritten: at most four bytes are copied for three that become free. Together with the segments that are kept for their
acks alone, one in eight at most (see `ack_compaction`), the log stays within 2 A and a few segments.

When the disk is full, segments of which up to three quarters are alive are rewritten too, as soon as that frees one.
A log may have ten thousand segments, so they are looked at in pieces (`SegmentChoice`).
Source: docs/decisions/081-compaction-of-messages.md.
"""

from collections.abc import Iterable
from heapq import nlargest, nsmallest

from penstock_broker.log.format.blocks import SEGMENT_START
from penstock_broker.log.segments.segment import Segment

LARGEST_SHARE = 4 / 7
"""Of a segment that is rewritten, the share that is alive is smaller."""
LARGEST_SHARE_WHEN_FULL = 3 / 4
SHARE_STEPS = 16
"""Of segments whose shares differ by less than one in so many, the oldest come first: the acks that name one segment
are often in the next, which is read then anyway."""
SLACK = 2
"""Segments that may be in use beyond what the shares allow."""
DOUBTFUL_SLACK = 4
"""The same if it is only suspected that they are, so that a small log is not read again and again."""
END_BYTES = 256 * 1024
"""What copies may leave empty at the end of a segment, unless it is small."""
MOST_CHOSEN = 4
"""Segments that are rewritten together: the acks that name them are read once."""


def largest_share(*, is_full: bool) -> float:
    """The share of live bytes from which on a segment is left alone."""
    return LARGEST_SHARE_WHEN_FULL if is_full else LARGEST_SHARE


class SegmentChoice:
    """What to rewrite, chosen among all segments in pieces: call `add` for each piece, then ask. Meanwhile messages may
    leave; what is chosen is measured once more before it is rewritten.
    """

    def __init__(self, newest: int, kept_from: int, *, is_full: bool, suspects: bool) -> None:
        """`newest`: the segment that is being written, which is never chosen. `kept_from`: the first segment that is
        needed for its topology. `suspects`: whether `doubtful` will be asked, too.
        """
        self.alive = 0.0
        """Segments that what is alive would fill."""
        self.places = 0
        """Messages that were counted in all segments, those that have left included."""
        self._end, self._is_full, self._suspects = min(newest, kept_from), is_full, suspects
        self._largest = largest_share(is_full=is_full)
        self._gain = self._doubtful_gain = 0.0
        self._least: list[tuple[int, int, Segment]] = []  # with the least alive
        self._gains: list[float] = []  # of the segments with the least alive at least
        self._most_doubtful: tuple[float, int, Segment] | None = None

    def add(self, segments: Iterable[Segment]) -> None:
        """Count these, too."""
        largest, small = self._largest, list[tuple[int, int, Segment]]()
        movable: list[Segment] = []
        for segment in segments:
            self.places += segment.put_places
            if not segment.live:
                continue
            share = segment.alive_bytes / segment.size
            self.alive += share
            if segment.number >= self._end or not _can_move(segment):
                continue
            self._gain += 1 - share / largest
            if share < largest:
                small.append((int(share * SHARE_STEPS), segment.number, segment))
            movable.append(segment)
        self._least = nsmallest(MOST_CHOSEN, [*self._least, *small])
        if self._suspects:
            self._suspect(movable)

    def _suspect(self, segments: Iterable[Segment]) -> None:
        for segment in segments:
            least = segment.least_alive_bytes
            share = least / segment.size
            self._doubtful_gain += 1 - share / self._largest
            if share >= self._largest:
                continue
            if self._is_full:
                self._gains = nlargest(MOST_CHOSEN, [*self._gains, 1 - least / _usable(segment)])
            doubt = segment.alive_bytes - least
            if doubt > 0 and (self._most_doubtful is None or (doubt, segment.number) > self._most_doubtful[:2]):
                self._most_doubtful = doubt, segment.number, segment

    def chosen(self) -> list[Segment]:
        """The segments to rewrite now, those with the least alive first; none if it does not pay yet."""
        if self._is_full:
            gain = sum(1 - segment.alive_bytes / _usable(segment) for _, _, segment in self._least) - 1
        else:
            gain = self._gain - SLACK
        return [segment for _, _, segment in self._least] if gain >= 0 else []

    def doubtful(self) -> list[Segment]:
        """The segment to look into because less may be alive in it than its number of messages says; none if that would
        not matter. Where sizes are very unequal, the messages that have left may have been the longest.
        """
        gain = sum(self._gains) - 1 if self._is_full else self._doubtful_gain - DOUBTFUL_SLACK
        return [self._most_doubtful[2]] if gain >= 0 and self._most_doubtful is not None else []


def _usable(segment: Segment) -> float:
    """Bytes of copies that surely fit into an empty segment of this size: the next one may be too long for its end."""
    longest = segment.sizes[0][0] if segment.sizes else segment.largest_put
    return segment.size - SEGMENT_START - max(min(longest, segment.size // 8), min(END_BYTES, segment.size // 8))


def _can_move(segment: Segment) -> bool:
    return not (segment.is_fixed or segment.miscounted)
