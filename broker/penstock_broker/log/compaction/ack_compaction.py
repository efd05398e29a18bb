"""Compaction of acks: those that keep otherwise unneeded segments are gathered and written once more, together.

An ack has to stay while a segment with the put that it names is there. So one message that nobody takes keeps its own
segment, then those with acks of its neighbours, then those with acks of what lies in these, and in the end everything
that was written behind it. Where that happens, the acks that name segments with messages are read, in slices, from the
segments that are kept for their acks alone, and written once more. Once that is synced, these segments are free.

Acks are sets: a repeated one changes nothing. Sources: docs/reference/log-format.md, "Writing";
docs/decisions/041-segments-and-checkpoint.md.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from struct import error as StructError

from penstock_broker.log.disk.files import Buffer, FileLayer
from penstock_broker.log.format.record_codec import Malformed, ack_record, acks_in, chunks, split
from penstock_broker.log.format.records import Ack, EndReason
from penstock_broker.log.segments.segment_reader import sound_blocks
from penstock_broker.log.segments.segment_usage import Segment, SegmentUsage, Span
from penstock_broker.log.write.writer import SegmentWriter

LOGGER = logging.getLogger(__name__)

LEAST_SEGMENTS = 4
"""With fewer segments that are kept for their acks alone, compaction is not worth its cost."""
LARGEST_SHARE = 8
"""One segment in so many may be kept for its acks alone."""
LONG_RUN = 5
"""Consecutive numbers from which on a range is shorter than a list."""


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
        self._looked_at = 0, 0, False
        self._unreadable: set[int] = set()
        self._steps: Iterator[None] | None = None
        self._done: CompactedAcks | None = None

    @property
    def is_active(self) -> bool:
        """Whether acks are being gathered."""
        return self._steps is not None

    def wants_work(self, kept_from: int, synced: int, *, is_full: bool) -> bool:
        """Whether `work` has something to do; decided anew when a segment was begun, or the last message of one left.

        `kept_from`: the first segment that is needed for its topology; `synced`: the last synced block. `is_full`: the
        disk is full, so that each segment counts.
        """
        usage = self._usage
        look = usage.segments[-1].number, usage.emptied, is_full
        if self._steps is None and look != self._looked_at and synced >= usage.emptied_by:
            self._looked_at = look
            self._begin(kept_from, synced, is_full=is_full)
        return self._steps is not None

    def work(self, more: Callable[[], bool]) -> CompactedAcks | None:
        """Go on gathering while `more()`. Returns the acks once all are gathered, else None. Raises OSError."""
        for _ in self._steps or ():
            if not more():
                return None
        self._steps = None
        done, self._done = self._done, None
        return done

    def _begin(self, kept_from: int, synced: int, *, is_full: bool) -> None:
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
        least = 1 if is_full else max(LEAST_SEGMENTS, len(segments) // LARGEST_SHARE)
        if held and len(idle) >= least and numbers.isdisjoint(self._unreadable):
            self._steps = self._gather(held, tuple(segment for segment in idle if segment.acks_into & held))

    def _gather(self, held: frozenset[int], sources: tuple[Segment, ...]) -> Iterator[None]:
        by_number = self._usage.by_number
        wanted = _wanted(by_number[number] for number in held if number in by_number)  # others are recycled meanwhile
        firsts = [first for first, _ in wanted]
        found: dict[tuple[int, int], list[Span]] = {}
        for source in sources:
            try:
                for ack in self._acks(source):
                    if ack is not None and ack.incarnation in self._usage.queues:
                        spans = found.setdefault((ack.incarnation, ack.reason), [])
                        low = max(0, bisect_right(firsts, ack.messages[0]) - 1)
                        high = bisect_right(firsts, ack.messages[-1])
                        spans += [
                            span for first, last in wanted[low:high] for span in _within(ack.messages, first, last)
                        ]
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
        for block in sound_blocks(self._files, segment, self._seed):
            if block is None:
                yield None
                if self._usage.by_number.get(segment.number) is not segment:
                    return  # recycled meanwhile: nothing that its acks name is left
                continue
            for kind, flags, body, _ in split(block.records):
                yield None
                yield from acks_in(kind, flags, body)

    def _records(self, incarnation: int, reason: EndReason, spans: list[Span]) -> Iterator[bytes]:
        single: list[int] = []
        for first, last in _joined(spans):
            if last - first + 1 >= LONG_RUN:
                yield ack_record(incarnation, range(first, last + 1), reason)
            else:
                single += range(first, last + 1)
        for chunk in chunks(single, self._most):
            yield ack_record(incarnation, chunk, reason)


def _wanted(segments: Iterable[Segment]) -> list[Span]:
    """The numbers of all puts in these segments, as ascending spans."""
    spans: list[Span] = []
    for segment in segments:
        spans += [(segment.first_message, segment.last_message), *segment.copied]
    return list(_joined(spans))


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


def write_acks(writer: SegmentWriter, acks: CompactedAcks, first_message: int) -> None:
    """Write acks once more. The segments that held them are free once that is synced, if nothing else keeps them.

    Called between turns. `first_message`: no put that is still to be written has a lower number. Raises OSError.
    """
    touched = writer.place(acks.records, {}, first_message) if acks.records else []
    for segment in touched:
        segment.acks_into |= acks.held - {segment.number}
    for source in acks.sources:
        source.acks_into -= acks.held
        source.released_by = max(source.released_by, writer.sequence)
    writer.usage.acks_moved()
