"""Finds the segments that are missing from a log although nobody let go of them, and tells what is lost with them.

Source: docs/decisions/086-lost-segments.md.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock_broker.log.disk.spare_segments import segment_name
from penstock_broker.log.format.blocks import BlockHeader
from penstock_broker.log.format.records import SegmentState
from penstock_broker.log.recovery.known_segments import synced_segments
from penstock_broker.log.recovery.lost_messages import LossCount
from penstock_broker.log.recovery.record_reader import records_of
from penstock_broker.log.recovery.replay import Replay
from penstock_broker.log.scan.block_scan import Hole, KnownSegment, ScanResult, SegmentData, scan

LOGGER = logging.getLogger(__name__)

Spans = Sequence[tuple[int, int]]  # first and last segment


@dataclass(frozen=True, slots=True)
class LostSegments:
    """Segments (ascending) without a file that were still needed."""

    numbers: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()
    """Of each, in words, with what is known of its messages."""
    counts: Mapping[int, int] | None = None
    """By incarnation, how many messages lived in them when the last checkpoint was written, and were not acknowledged
    or copied since; None if no checkpoint counted them."""


def find_lost(replay: Replay, result: ScanResult, found: Sequence[SegmentData], seed: int) -> LostSegments:
    """Which segments were lost. `found`: the others, which are read once more if a segment was lost. `seed`: see
    `blocks.seed_of`.
    """
    known = replay.segments
    if result.cut is None:
        return LostSegments()
    missing = known.missing({each.number for each in found}, result.cut.segment, replay.checkpoint)
    missing = synced_segments(missing, result.ends, result.claimed)
    if not missing:
        return LostSegments()
    states = [known.states[number] for number in missing if number in known.states]
    losses = LossCount(states, known.checkpoint)
    data = {each.number: each for each in found}

    def follow(item: BlockHeader | Hole | KnownSegment) -> None:
        if isinstance(item, BlockHeader):
            losses.follow(records_of(data[item.segment].data, item)[0])

    if states:
        scan(found, seed, follow)
    reasons = (_reason(known.states.get(number), replay.checkpoint) for number in missing)
    return LostSegments(tuple(missing), tuple(reasons), losses.counts() if states else None)


def log_lost(lost: LostSegments, replay: Replay) -> None:
    """Write the lost segments to the broker's log, and the queues of their messages."""
    for (first, last), reason in _together(lost):
        names = segment_name(first) if first == last else f"{segment_name(first)} to {segment_name(last)}"
        LOGGER.error("the log is damaged: %s: %s", names, reason)
    queues = {document.incarnation: document.key for document in replay.documents.values()}
    for incarnation, count in (lost.counts or {}).items():
        if incarnation in queues:
            LOGGER.error("%d messages of queue %r are lost with them", count, queues[incarnation])


def _reason(state: SegmentState | None, checkpoint: int) -> str:
    if state is None and not checkpoint:
        return "there is no such file, and no checkpoint that can be read says that it was not needed any more"
    if state is None:
        return "there is no such file, although it was not recycled; what it held is not known"
    if not state.last_message and not state.has_copies:
        return "there is no such file, although it was not recycled; no message was in it"
    held = [f"messages {state.first_message} to {state.last_message}"] if state.last_message else []
    held += ["copies of older messages"] if state.has_copies else []
    partial = ", of which not all were counted" if state.is_partial else ""
    return f"there is no such file, although it was not recycled; it held {' and '.join(held)}{partial}"


def _together(lost: LostSegments) -> Iterator[tuple[tuple[int, int], str]]:
    """Consecutive segments with the same reason as one."""
    span: tuple[int, int] | None = None
    before = ""
    for number, reason in zip(lost.numbers, lost.reasons, strict=True):
        if span is not None and number == span[1] + 1 and reason == before:
            span = span[0], number
            continue
        if span is not None:
            yield span, before
        span, before = (number, number), reason
    if span is not None:
        yield span, before
