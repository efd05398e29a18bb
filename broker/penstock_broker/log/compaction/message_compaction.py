"""Compaction of messages: what is alive in segments with little alive is written once more, and the segments are free.

A compaction takes a few segments (see `segment_choice`) and reads them, and the segments with acks that name them, in
slices. Then it knows what is alive (see `live_contents`) and copies that to the end of the log: ordinary puts with the
same numbers, in ascending order, in blocks of their own, naming the queues in which the messages still live.

What makes it safe at every step:
- Acks that are written meanwhile are noted. Whether a message is alive is decided in the turn in which its copy is
  written, so no copy stands behind the last ack of its message.
- The old segment is there until the block with its last copy is synced (`Segment.released_by`).
- While it is there, acks of the copies keep it named too (`Segment.copied_from`), so that no old put comes back.
- What is found must agree with the tallies of `SegmentUsage`; a segment for which it does not is left alone.

Measured cost: docs/reference/performance.md. Source: docs/decisions/081-compaction-of-messages.md.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import error as StructError
from typing import TypeVar

from penstock_broker.log.compaction.copies import CopyWriter
from penstock_broker.log.compaction.live_contents import LiveContents, PartRecord, TooManyQueues
from penstock_broker.log.compaction.segment_choice import SegmentChoice, largest_share
from penstock_broker.log.disk.files import FileLayer
from penstock_broker.log.format.record_codec import Malformed, acks_in, split
from penstock_broker.log.format.records import Ack
from penstock_broker.log.segments.segment import Segment, Tally
from penstock_broker.log.segments.segment_reader import Block, sound_block, sound_blocks
from penstock_broker.log.segments.segment_usage import SegmentUsage
from penstock_broker.log.write.writer import SegmentWriter

LOGGER = logging.getLogger(__name__)

COPIED_BYTES = 128 * 1024
"""Bytes of messages that are copied at a time, if a single one is not longer."""
_QUEUES = 1000
"""Queues that are asked between two pauses."""
SEGMENTS_PER_STEP = 256
"""Segments that are looked at between two pauses. A log of more is looked at again when one segment in so many is new,
or one message in so many has left: else a large log would be looked at all the time."""
_PAUSE, _WAIT = False, True
_END = object()

LOOK_PAUSE_MS = 10_000
"""After a look into a segment that showed that it does not pay, none is looked into on suspicion for this time."""
SHORT_PAUSE_MS = 1_000
"""The same while the disk is full."""

T = TypeVar("T")
Steps = Iterator[bool]
"""Whether nothing can be done now because there is no room to write."""


class Compaction:
    """Finds out when it pays, and rewrites a few segments at a time."""

    def __init__(
        self,
        files: FileLayer,
        usage: SegmentUsage,
        writer: SegmentWriter,
        has_room: Callable[[int], bool],
        clock: Callable[[], int],
    ) -> None:
        """`has_room`: whether so many bytes may be written now, without the room that acks need. `clock`: milliseconds
        since 1970.
        """
        self._files, self._usage, self._writer, self._has_room = files, usage, writer, has_room
        self._clock = clock
        self._copies = CopyWriter(usage, writer)
        self._steps: Steps | None = None
        self.alive = 0.0
        """Segments that what is alive would fill, as it was seen last."""
        self._choosing: Iterator[None] | None = None
        self._chosen_among: tuple[int, int, bool] | None = None
        self._choose_again_at = 0
        self._suspected: int = 0
        self._suspect_again_ms: int = 0
        self._is_futile = self._is_urgent = False
        self._waits_for = 0
        self._watched: list[LiveContents] = []
        self._block: Block | None = None  # that was read last, and its segment
        self._block_of: Segment | None = None
        self._record = b""
        self._copied = min(COPIED_BYTES, writer.capacity // 8)

    @property
    def is_active(self) -> bool:
        """Whether segments are being rewritten."""
        return self._steps is not None

    @property
    def waits_for_room(self) -> bool:
        """What is alive is known, and there is no room for more copies of it."""
        return self._waits_for > 0 and not self._has_room(self._waits_for)

    def wants_work(self, kept_from: int, *, is_full: bool) -> bool:
        """Whether `work` has something to do. `kept_from`: the first segment that is needed for its topology.

        Decided anew whenever a segment was begun, topology was restated, the disk became full, or many acks came; and
        for what the sizes of messages may hide, every ten seconds in which acks came.
        """
        if self._steps is None and self._choosing is None and self._is_time_to_choose(kept_from, is_full=is_full):
            self._choosing = self._choose(kept_from, is_full=is_full)
            self._go_on_choosing()
        if self._steps is not None:
            return not self._waits_for or self._has_room(self._waits_for)
        return self._choosing is not None

    def _is_time_to_choose(self, kept_from: int, *, is_full: bool) -> bool:
        segments, died = self._usage.segments, self._usage.died
        if died != self._suspected and self._may_suspect():
            return True
        if self._chosen_among is None or died >= self._choose_again_at:
            return True
        newest, was_kept_from, was_full = self._chosen_among
        new = max(segments[-1].number - newest, kept_from - was_kept_from)
        return is_full is not was_full or new > (0 if is_full else len(segments) // SEGMENTS_PER_STEP)

    def _go_on_choosing(self) -> None:
        assert self._choosing is not None
        if next(self._choosing, _END) is _END:
            self._choosing = None

    def _choose(self, kept_from: int, *, is_full: bool) -> Iterator[None]:
        """Choose what to rewrite among all segments, if it pays; pauses."""
        usage = self._usage
        segments, died, suspects = list(usage.segments), usage.died, self._may_suspect()
        self._chosen_among = segments[-1].number, kept_from, is_full
        choice = SegmentChoice(segments[-1].number, kept_from, is_full=is_full, suspects=suspects)
        for start in range(0, len(segments), SEGMENTS_PER_STEP):
            if start:
                yield
            choice.add(segments[start : start + SEGMENTS_PER_STEP])
        self.alive = choice.alive
        quarters = max(1, len(segments) * 4 // SEGMENTS_PER_STEP)  # of the messages that a segment holds
        self._choose_again_at = died + choice.places * quarters // (4 * len(segments)) + 1
        chosen = choice.chosen()
        is_suspicion = suspects and not chosen
        if is_suspicion:
            chosen = choice.doubtful()
            if not chosen:
                self._suspected = died
                self._suspect_again_ms = self._clock() + (SHORT_PAUSE_MS if is_full else LOOK_PAUSE_MS)
        chosen = [each for each in chosen if each.live and self._is_there(each)]  # choosing may have taken some turns
        self._is_futile = is_suspicion and bool(chosen)
        if chosen:
            self._is_urgent = is_full
            self._steps = self._rewrite(chosen, is_full=is_full)

    def _may_suspect(self) -> bool:
        # More than the whole wait to go: the clock was put back, and the time noted before says nothing.
        return not 0 < self._suspect_again_ms - self._clock() <= LOOK_PAUSE_MS

    def work(self, more: Callable[[], bool], first_message: int) -> None:
        """Go on while `more()`. Raises OSError if writing fails.

        `first_message`: no put of a new message that is still to be written has a lower number.
        """
        while self._choosing is not None:
            self._go_on_choosing()
            if not more():
                return
        if self._steps is None:
            return
        self._copies.first_message = first_message
        for has_to_wait in self._steps:
            if has_to_wait or not more():
                return
        self._steps = self._chosen_among = None
        self._block = self._block_of = None
        if self._is_futile:
            self._suspect_again_ms = self._clock() + (SHORT_PAUSE_MS if self._is_urgent else LOOK_PAUSE_MS)
        self._is_futile = False

    # Reading ----------------------------------------------------------------------------------------------------------

    def _rewrite(self, chosen: Sequence[Segment], *, is_full: bool) -> Steps:
        usage = self._usage
        found = self._watched = [
            LiveContents(segment, self._copies.holds, usage.places)
            for segment in sorted(chosen, key=lambda each: each.number)
        ]
        usage.watch = self._note
        try:
            numbers = {segment.number for segment in chosen}
            sources = [each for each in usage.segments if each.number in numbers or each.acks_into & numbers]
            for each in found:
                yield from self._begin(each)
            yield from self._gather(found, sources)
            for each in found:
                # It may have been recycled before its acks were looked for: nothing is known of it then.
                if not each.segment.is_fixed and self._is_there(each.segment):
                    yield from self._decide(each, largest_share(is_full=is_full))
        finally:
            usage.watch = None
            self._watched = []

    def _note(self, incarnation: int, messages: Sequence[int]) -> None:
        for each in self._watched:
            each.note(incarnation, messages)

    def _begin(self, found: LiveContents) -> Steps:
        self._usage.count_segment(found.segment)
        queues, number = self._usage.queues, found.segment.number
        tallies: dict[int, Tally] = {}
        incarnations = list(queues)
        for start in range(0, len(incarnations), _QUEUES):
            for incarnation in incarnations[start : start + _QUEUES]:
                tally = queues.get(incarnation, {}).get(number)
                if tally is not None:
                    tallies[incarnation] = tally
            yield _PAUSE
        found.begin(tallies)

    def _gather(self, found: Sequence[LiveContents], sources: Sequence[Segment]) -> Steps:
        by_segment = {each.segment.number: each for each in found}
        for source in sources:
            contents = by_segment.get(source.number)
            named = [each for each in found if each.needs_acks and each.segment.number in source.acks_into]
            if contents is None and not named:
                continue
            to_tell = named if contents is None else [*named, contents]
            try:
                for item in self._acks(source, contents):
                    if item is not None:
                        for each in to_tell:
                            for _ in each.note_slowly(item.incarnation, item.messages):
                                yield _PAUSE
                    yield _PAUSE
                if contents is not None:
                    for _ in contents.complete():
                        yield _PAUSE
            except (Malformed, StructError, ValueError, TooManyQueues) as error:
                LOGGER.warning("segment %d can't be compacted, or what it has acks of: %s", source.number, error)
                for each in to_tell:
                    each.segment.is_fixed = True

    def _acks(self, source: Segment, contents: LiveContents | None) -> Iterator[Ack | None]:
        """All acks of the segment; its puts go to `contents`, if it is rewritten itself. None for pauses."""
        for block in sound_blocks(self._files, source, self._writer.seed):
            if block is None:
                yield None
                if not self._is_there(source):
                    return
            elif contents is not None:
                is_current = block.header.epoch == self._writer.epoch
                yield from contents.index(block.header.offset, block.records, is_current=is_current)
            else:
                for kind, flags, body, _ in split(block.records):
                    yield from acks_in(kind, flags, body)
                yield None

    def _is_there(self, segment: Segment) -> bool:
        """Whether the segment was not recycled meanwhile: its last message may have left."""
        return self._usage.by_number.get(segment.number) is segment

    # Copying ----------------------------------------------------------------------------------------------------------

    def _decide(self, found: LiveContents, largest: float) -> Steps:
        segment = found.segment
        for disagreement in found.disagreement():
            if disagreement is not None and self._is_there(segment):
                LOGGER.error("segment %d is left as it is until the next start: %s", segment.number, disagreement)
                segment.is_fixed = True
                return
            yield _PAUSE
        places = segment.live - segment.bodies
        for _ in found.add_up():
            yield _PAUSE
        segment.put_bytes, segment.put_places, segment.sizes = found.alive_bytes, places, found.sizes
        if segment.alive_bytes < largest * segment.size:
            self._is_futile = False
            yield from self._copy(found)

    def _copy(self, found: LiveContents) -> Steps:
        """Copy all that is alive."""
        try:
            yield from self._copy_parts(found)
            yield from self._copy_puts(found)
            if found.segment.live and self._is_there(found.segment):
                raise Malformed(f"{found.segment.live} messages or bodies in it were not found")
        except Malformed as error:
            if self._is_there(found.segment):
                LOGGER.warning("segment %d is not compacted further: %s", found.segment.number, error)
                found.segment.is_fixed = True

    def _copy_parts(self, found: LiveContents) -> Steps:
        """Copy the parts of bodies, in their order."""
        segment, copies = found.segment, self._copies
        for chunk in _chunks(found.parts, lambda part: part.length, self._copied):
            records: list[tuple[PartRecord, bytes]] = []
            for part in chunk:
                yield _PAUSE
                if copies.holds(segment, part):
                    yield from self._read(segment, part.block, part.start, part.length)
                    records.append((part, self._record))
            yield from self._wait_for_room(sum(part.length for part, _ in records))
            copies.parts(segment, records)

    def _copy_puts(self, found: LiveContents) -> Steps:
        """Copy the puts, in the order of their numbers."""
        for chunk in _chunks(found.positions(), found.cost, self._copied):
            records: list[tuple[int, bytes]] = []
            for position in chunk:
                yield _PAUSE
                if found.queues_of(position):
                    yield from self._read(found.segment, *found.place_of(position))
                    records.append((position, self._record))
            yield from self._wait_for_room(sum(len(record) for _, record in records))
            self._copies.puts(found, records)

    def _read(self, segment: Segment, at: int, start: int, length: int) -> Steps:
        """Have a record in `_record`: of the block at offset `at`, `length` bytes from `start` on. Raises Malformed."""
        if self._block is None or self._block_of is not segment or self._block.header.offset != at:
            for read in sound_block(self._files, segment, at, self._writer.seed):
                yield _PAUSE
                if not self._is_there(segment):
                    raise Malformed("it is not there any more")
                self._block, self._block_of = read, segment
        assert self._block is not None
        self._record = bytes(self._block.records[start : start + length])

    def _wait_for_room(self, size: int) -> Steps:
        while not self._has_room(size):
            self._waits_for = size
            yield _WAIT
        self._waits_for = 0


def _chunks(items: Iterable[T], cost: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """The items in lists that cost at most `most` together, or that have a single item."""
    chunk: list[T] = []
    total = 0
    for item in items:
        each = cost(item)
        if chunk and total + each > most:
            yield chunk
            chunk, total = [], 0
        chunk.append(item)
        total += each
    if chunk:
        yield chunk
