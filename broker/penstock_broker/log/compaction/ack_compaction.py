"""Compaction of acks: those that keep otherwise unneeded segments are gathered and written once more, together.

An ack has to stay while a segment with the put that it names is there. So one message that nobody takes keeps its own
segment, then those with acks of its neighbours, then those with acks of what lies in these, and in the end everything
that was written behind it. Where that happens, the acks that name segments with messages are read, in slices, from the
segments that are kept for their acks alone, and written once more. Once that is synced, these segments are free.

What is written once more may need as much room as before: acks of messages between which others were left. So it is
known how much was written last, and acks are gathered again only where twice as much is kept for them: else a log would
write the same acks for ever, and grow.

Acks are sets: a repeated one changes nothing. Sources: docs/reference/log-format.md, "Writing";
docs/decisions/041-segments-and-checkpoint.md.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import error as StructError

from penstock_broker.log.compaction.gathered_acks import GatheredAcks
from penstock_broker.log.disk.files import Buffer, FileLayer
from penstock_broker.log.format.record_codec import Malformed, acks_in, split
from penstock_broker.log.format.records import Ack
from penstock_broker.log.segments.segment import Segment
from penstock_broker.log.segments.segment_reader import sound_blocks
from penstock_broker.log.segments.segment_usage import SegmentUsage
from penstock_broker.log.write.writer import SegmentWriter

LOGGER = logging.getLogger(__name__)

LEAST_SEGMENTS = 4
"""With fewer segments that are kept for their acks alone, compaction is not worth its cost."""
LARGEST_SHARE = 8
"""One segment in so many may be kept for its acks alone."""
LEAST_GAIN = 2
"""So many times as much as their acks take is kept for them, or they are not written once more."""
MOST_SPANS = 500_000
"""So many stretches of numbers are gathered at most, 16 bytes each: what names other segments waits for the next time.
Of one segment all are gathered."""


@dataclass(frozen=True, slots=True)
class CompactedAcks:
    """Ack records to write: all acks in the segments `sources` that name messages in the segments `held`.

    Once the records are written, the sources are not needed for these acks any more.
    """

    records: list[Buffer]
    held: frozenset[int]
    """Numbers of segments."""
    sources: tuple[Segment, ...]
    is_part: bool
    """Acks that name messages in other segments were left out, for the sake of memory."""

    @property
    def size(self) -> int:
        """Bytes of the records."""
        return sum(map(len, self.records))


class AckCompaction:
    """Finds out when compaction is worth its cost, and gathers the acks, one compaction at a time."""

    def __init__(self, files: FileLayer, usage: SegmentUsage, seed: int, most: int) -> None:
        """`seed`: see `blocks.seed_of`; `most`: numbers that one record of acks may hold."""
        self._files, self._usage, self._seed, self._most = files, usage, seed, most
        self._looked_at = 0, 0, False
        self._unreadable: set[int] = set()
        """Segments that are not freed in this run, as their acks can't be read."""
        self._steps: Iterator[None] | None = None
        self._done: CompactedAcks | None = None
        self._moved_by = 0
        """The block by which acks were written once more last."""
        self._written: dict[int, float] = {}
        """By segment with messages: about how many bytes the acks of these took when they were written once more."""

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
        if self._steps is None and look != self._looked_at and synced >= max(usage.emptied_by, self._moved_by):
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

    def write(self, writer: SegmentWriter, acks: CompactedAcks, first_message: int) -> None:
        """Write acks once more. Their segments are free once that is synced, if nothing else keeps them.

        Called between turns. `first_message`: no put that is still to be written has a lower number. Raises OSError.
        """
        touched = writer.place(acks.records, {}, first_message) if acks.records else []
        for segment in touched:
            segment.acks_into |= acks.held - {segment.number}
        for source in acks.sources:
            source.acks_into -= acks.held
            source.released_by = max(source.released_by, writer.sequence)
        writer.usage.acks_moved()
        self._moved_by = writer.sequence
        if acks.is_part:
            self._looked_at = 0, 0, False  # the rest is next

    def _begin(self, kept_from: int, synced: int, *, is_full: bool) -> None:
        segments, by_number = self._usage.segments, self._usage.by_number
        idle = [
            segment
            for segment in segments[:-1]
            if segment.number < kept_from
            and not segment.live
            and not segment.miscounted
            and segment.released_by <= synced
            and segment.number not in self._unreadable  # it stays, and what names its messages is written once more
        ]
        numbers = {segment.number for segment in idle}
        named = {number for segment in idle for number in segment.acks_into}
        held = frozenset(number for number in named - numbers if number in by_number)
        least = 1 if is_full else max(LEAST_SEGMENTS, len(segments) // LARGEST_SHARE)
        self._written = {number: size for number, size in self._written.items() if number in by_number}
        tight = sum(self._written.values()) / segments[-1].size
        kept = _kept_for_acks(idle, by_number)
        if held and kept >= max(least, LEAST_GAIN * tight):
            self._steps = self._gather(held, tuple(segment for segment in idle if segment.acks_into & held))

    def _gather(self, held: frozenset[int], sources: tuple[Segment, ...]) -> Iterator[None]:
        found, is_part = GatheredAcks(self._left(held)), False
        for source in sources:
            try:
                for ack in self._acks(source):
                    if ack is not None and ack.incarnation in self._usage.queues:
                        found.add(ack)
                    yield
                    while found.spans > MOST_SPANS and len(held) > 1:
                        held, is_part = self._half(held), True
                        yield from found.restrict(self._left(held))
            except (Malformed, StructError, ValueError) as error:
                LOGGER.warning(
                    "segment %d can't be read, so that it is kept until the next start: %s", source.number, error
                )
                self._unreadable.add(source.number)
                self._looked_at = 0, 0, False  # the others are next
                return
        records: list[Buffer] = []
        for record in found.records(self._most):
            if record is not None:
                records.append(record)
            yield
        self._written |= dict.fromkeys(held, sum(map(len, records)) / len(held))
        self._done = CompactedAcks(records, held, sources, is_part)

    def _half(self, held: frozenset[int]) -> frozenset[int]:
        """Half of the segments; first those whose acks were not written once more before: each has its turn."""
        return frozenset(sorted(held, key=lambda number: (number in self._written, number))[: len(held) // 2])

    def _left(self, held: frozenset[int]) -> list[Segment]:
        """Of the segments with these numbers those that were not recycled meanwhile."""
        return [self._usage.by_number[number] for number in held if number in self._usage.by_number]

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


def _kept_for_acks(idle: Sequence[Segment], by_number: Mapping[int, Segment]) -> int:
    """How many of these segments, ascending, are not recycled for the sake of their acks; the others soon will be."""
    over: set[int] = set()
    for segment in idle:
        if all(number in over or number not in by_number for number in segment.acks_into):
            over.add(segment.number)
    return len(idle) - len(over)
