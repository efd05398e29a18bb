"""Which segments compaction rewrites, and when. Pure.

The share of a segment that is alive decides. Let S be the segments that hold live messages, and A the sum of their
shares. Compaction begins when S is above 7/4 A + 2. Then some segment has a share below 4/7, and only such segments are
rewritten: at most four bytes are copied for three that become free. Together with the segments that are kept for their
acks alone, one in eight at most (see `ack_compaction`), the log stays within 2 A and a few segments.

When the disk is full, segments of which up to three quarters are alive are rewritten too, as soon as that frees one.
Source: docs/decisions/081-compaction-of-messages.md.
"""

from collections.abc import Sequence

from penstock_broker.log.format.blocks import SEGMENT_START
from penstock_broker.log.segments.segment_usage import Segment

LARGEST_SHARE = 4 / 7
"""Of a segment that is rewritten, the share that is alive is smaller."""
LARGEST_SHARE_WHEN_FULL = 3 / 4
SLACK = 2
"""Segments that may be in use beyond what the shares allow."""
DOUBTFUL_SLACK = 4
"""The same if it is only suspected that they are, so that a small log is not read again and again."""
END_BYTES = 256 * 1024
"""What copies may leave empty at the end of a segment, unless it is small."""
MOST_VICTIMS = 4
"""Segments that are rewritten together: the acks that name them are read once."""


def largest_share(*, is_full: bool) -> float:
    """The share of live bytes from which on a segment is left alone."""
    return LARGEST_SHARE_WHEN_FULL if is_full else LARGEST_SHARE


def choose(segments: Sequence[Segment], kept_from: int, *, is_full: bool) -> list[Segment]:
    """The segments to rewrite now, those with the least alive first; none if it does not pay yet.

    `kept_from`: the first segment that is needed for its topology. The newest segment is never chosen.
    """
    largest = largest_share(is_full=is_full)
    held = [
        (segment.alive_bytes / segment.size, segment.number, segment)
        for segment in segments[:-1]
        if segment.number < kept_from and segment.live and _can_move(segment)
    ]
    victims = sorted(each for each in held if each[0] < largest)
    if is_full:
        gain = sum(1 - segment.alive_bytes / _usable(segment) for _, _, segment in victims[:MOST_VICTIMS]) - 1
    else:
        gain = sum(1 - share / largest for share, _, _ in held) - SLACK
    return [segment for _, _, segment in victims[:MOST_VICTIMS]] if gain >= 0 else []


def choose_doubtful(segments: Sequence[Segment], kept_from: int, *, is_full: bool) -> list[Segment]:
    """The segment to look into because less may be alive in it than its number of messages says; none if that would not
    matter. Where sizes are very unequal, the messages that have left may have been the longest.
    """
    largest = largest_share(is_full=is_full)
    held = [
        (segment.least_alive_bytes / segment.size, segment)
        for segment in segments[:-1]
        if segment.number < kept_from and segment.live and _can_move(segment)
    ]
    if is_full:
        gains = (1 - segment.least_alive_bytes / _usable(segment) for share, segment in held if share < largest)
        gain = sum(sorted(gains, reverse=True)[:MOST_VICTIMS]) - 1
    else:
        gain = sum(1 - share / largest for share, _ in held) - DOUBTFUL_SLACK
    doubtful = [
        (segment.alive_bytes - segment.least_alive_bytes, segment.number, segment)
        for share, segment in held
        if share < largest and segment.alive_bytes > segment.least_alive_bytes
    ]
    return [max(doubtful)[2]] if gain >= 0 and doubtful else []


def _usable(segment: Segment) -> float:
    """Bytes of copies that surely fit into an empty segment of this size: the next one may be too long for its end."""
    longest = segment.sizes[0][0] if segment.sizes else segment.largest_put
    return segment.size - SEGMENT_START - max(min(longest, segment.size // 8), min(END_BYTES, segment.size // 8))


def _can_move(segment: Segment) -> bool:
    return not (segment.is_fixed or segment.miscounted)
