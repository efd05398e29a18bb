"""What a checkpoint says of the segments: which there are, and what lives in each. Knows no files.

Source: docs/decisions/086-lost-segments.md.
"""

from itertools import islice

from penstock_broker.log.format.records import SegmentState
from penstock_broker.log.format.segment_states import segment_state_record
from penstock_broker.log.segments.segment import Segment
from penstock_broker.log.segments.segment_usage import SegmentUsage

MOST_PAIRS = 4096
"""Of queues and segments, whose messages one checkpoint counts; fewer if segments are small."""
BYTES_FOR_A_PAIR = 256
"""A segment has to be as large as this for each pair, so that these counts are a small part of what is written."""


def kept_segments(usage: SegmentUsage, segment_bytes: int) -> list[bytes]:
    """One record for each segment that is needed, with the number of messages that live in it, by queue.

    These numbers stop at so many pairs of queues and segments that they take a 16th of `segment_bytes`; the records
    then say that they are not complete.
    """
    live: dict[int, list[tuple[int, int]]] = {}
    pairs = (
        (segment, incarnation, tally.count)
        for incarnation, tallies in usage.queues.items()
        for segment, tally in tallies.items()
    )
    for segment, incarnation, count in islice(pairs, min(MOST_PAIRS, segment_bytes // BYTES_FOR_A_PAIR)):
        live.setdefault(segment, []).append((incarnation, count))
    return [segment_state_record(_state(each, live.get(each.number, []))) for each in usage.segments]


def _state(segment: Segment, live: list[tuple[int, int]]) -> SegmentState:
    has_puts = segment.last_message > 0
    return SegmentState(
        segment.number,
        segment.first_message if has_puts else 0,
        segment.last_message,
        tuple(live),
        is_partial=sum(count for _, count in live) != segment.live - segment.bodies,
        has_copies=bool(segment.copied),
    )
