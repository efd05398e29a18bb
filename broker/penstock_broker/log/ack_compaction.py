"""Compaction of acks: those that keep otherwise unneeded segments are gathered and written once more, together.

An ack has to stay while a segment with the put that it names is there. So one message that nobody takes keeps its own
segment, then those with acks of its neighbours, then those with acks of what lies in these, and in the end everything
that was written behind it. Where that happens, the acks that name segments with messages are read, in slices, from the
segments that are kept for their acks alone, and written once more. Once that is synced, these segments are free.

Acks are sets: a repeated one changes nothing. Sources: docs/reference/log-format.md, "Writing";
docs/decisions/041-segments-and-checkpoint.md.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from struct import error as StructError

from penstock_broker.log.blocks import BLOCK_HEADER, SEGMENT_START, BlockFlag, decode_block
from penstock_broker.log.files import Buffer, FileLayer
from penstock_broker.log.record_codec import Malformed, ack_record, acks_in, chunks, split
from penstock_broker.log.records import Ack, EndReason
from penstock_broker.log.segment_usage import Segment, SegmentUsage

LOGGER = logging.getLogger(__name__)

LEAST_SEGMENTS = 4
"""With fewer segments that are kept for their acks alone, compaction is not worth its cost."""
LONG_RUN = 5
"""Consecutive numbers from which on a range is shorter than a list."""

Span = tuple[int, int]  # first and last message


@dataclass(frozen=True, slots=True)
class CompactedAcks:
    """Ack records to write: all acks in the segments `sources` that name messages in the segments `held`.

    Once the records are written, the sources are not needed for these acks any more.
    """

    records: list[Buffer]
    held: frozenset[int]
    """Numbers of segments."""
    sources: tuple[Segment, ...]


class AckCompaction:
    """Finds out when compaction is worth its cost, and gathers the acks, one compaction at a time."""

    def __init__(self, files: FileLayer, usage: SegmentUsage, seed: int, most: int) -> None:
        """`seed`: see `blocks.seed_of`; `most`: numbers that one record of acks may hold."""
        self._files, self._usage, self._seed, self._most = files, usage, seed, most
        self._looked_at = 0
        self._unreadable: set[int] = set()
        self._steps: Iterator[None] | None = None
        self._done: CompactedAcks | None = None

    def wants_work(self, kept_from: int, synced: int) -> bool:
        """Whether `work` has something to do; decided anew whenever another segment was begun.

        `kept_from`: the first segment that is needed for its topology; `synced`: the last synced block.
        """
        newest = self._usage.segments[-1].number
        if self._steps is None and newest != self._looked_at:
            self._looked_at = newest
            self._begin(kept_from, synced)
        return self._steps is not None

    def work(self, more: Callable[[], bool]) -> CompactedAcks | None:
        """Go on gathering while `more()`. Returns the acks once all are gathered, else None. Raises OSError."""
        for _ in self._steps or ():
            if not more():
                return None
        self._steps = None
        done, self._done = self._done, None
        return done

    def _begin(self, kept_from: int, synced: int) -> None:
        segments, by_number = self._usage.segments, self._usage.by_number
        idle = [
            segment
            for segment in segments[:-1]
            if segment.number < kept_from
            and not segment.live
            and not segment.miscounted
            and segment.released_by <= synced
        ]
        numbers = {segment.number for segment in idle}
        named = {number for segment in idle for number in segment.acks_into}
        held = frozenset(number for number in named - numbers if number in by_number)
        is_worth_it = len(idle) >= max(LEAST_SEGMENTS, len(segments) // 4) and numbers.isdisjoint(self._unreadable)
        if held and is_worth_it and not self._usage.has_copies:
            self._steps = self._gather(held, tuple(segment for segment in idle if segment.acks_into & held))

    def _gather(self, held: frozenset[int], sources: tuple[Segment, ...]) -> Iterator[None]:
        wanted = [(each.first_message, each.last_message) for each in map(self._usage.by_number.__getitem__, held)]
        found: dict[tuple[int, int], list[Span]] = {}
        for source in sources:
            try:
                for ack in self._acks(source):
                    if ack is not None and ack.incarnation in self._usage.queues:
                        spans = found.setdefault((ack.incarnation, ack.reason), [])
                        spans += [span for first, last in wanted for span in _within(ack.messages, first, last)]
                    yield
            except (Malformed, StructError, ValueError) as error:
                LOGGER.warning("segment %d can't be read, so that nothing behind it is freed: %s", source.number, error)
                self._unreadable.add(source.number)
                return
        records: list[Buffer] = []
        for (incarnation, reason), spans in found.items():
            records += self._records(incarnation, EndReason(reason), spans)
            yield
        self._done = CompactedAcks(records, held, sources)

    def _acks(self, segment: Segment) -> Iterator[Ack | None]:
        """The acks of the segment; before those of each record comes None, so that the caller can stop in between."""
        for data in self._blocks(segment):
            for kind, flags, body, _ in split(data):
                yield None
                yield from acks_in(kind, flags, body)

    def _blocks(self, segment: Segment) -> Iterator[memoryview]:
        at = SEGMENT_START
        while at < segment.end:
            head = self._files.pread(segment.handle, BLOCK_HEADER.size, at)
            length = BLOCK_HEADER.unpack(head)[3]
            data = memoryview(head + self._files.pread(segment.handle, length, at + BLOCK_HEADER.size))
            block = decode_block(data, at, segment.number, self._seed, view_at=at)
            if block is None:
                raise Malformed(f"no sound block at {at}")
            if block.flags & BlockFlag.SEAL:
                return
            yield data[BLOCK_HEADER.size :]
            at = block.end

    def _records(self, incarnation: int, reason: EndReason, spans: list[Span]) -> Iterator[bytes]:
        single: list[int] = []
        for first, last in _joined(spans):
            if last - first + 1 >= LONG_RUN:
                yield ack_record(incarnation, range(first, last + 1), reason)
            else:
                single += range(first, last + 1)
        for chunk in chunks(single, self._most):
            yield ack_record(incarnation, chunk, reason)


def _within(messages: Sequence[int], first: int, last: int) -> Iterator[Span]:
    """Of ascending numbers, those from `first` to `last`, as spans."""
    if isinstance(messages, range):
        if messages.start <= last and messages.stop > first:
            yield max(messages.start, first), min(messages.stop - 1, last)
        return
    yield from ((message, message) for message in messages if first <= message <= last)


def _joined(spans: list[Span]) -> Iterator[Span]:
    """The same numbers in as few spans as possible, ascending."""
    spans.sort()
    at = 0
    while at < len(spans):
        first, last = spans[at]
        at += 1
        while at < len(spans) and spans[at][0] <= last + 1:
            last = max(last, spans[at][1])
            at += 1
        yield first, last
