"""Which segments compaction rewrites, and when. Pure.

The share of a segment that is alive decides. Let S be the segments that hold live messages, and A the sum of their
shares. Compaction begins when S is above 7/4 A + 2. Then some segment has a share below 4/7, and only such segments are
rewritten: at most four bytes are copied for three that become free. Together with the segments that are kept for their
acks alone, one in eight at most (see `ack_compaction`), the log stays within 2 A and a few segments.

When the disk is full, segments of which up to three quarters are alive are rewritten too, as soon as that frees one.
Source: docs/decisions/081-compaction-of-messages.md.
"""

from collections.abc import Sequence

from penstock_broker.log.segment_usage import Segment

LARGEST_SHARE = 4 / 7
"""Of a segment that is rewritten, the share that is alive is smaller."""
LARGEST_SHARE_WHEN_FULL = 3 / 4
SLACK = 2
"""Segments that may be in use beyond what the shares allow."""
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
        gain = sum(1 - share for share, _, _ in victims[:MOST_VICTIMS]) - 1
    else:
        gain = sum(1 - share / largest for share, _, _ in held) - SLACK
    return [segment for _, _, segment in victims[:MOST_VICTIMS]] if gain >= 0 else []


def _can_move(segment: Segment) -> bool:
    return not (segment.bodies or segment.is_fixed or segment.miscounted)
