"""Compaction of messages: what is alive in segments with little alive is written once more, and the segments are free.

A compaction takes a few segments (see `victims`) and reads them, and the segments with acks that name them, in slices.
Then it knows what is alive (see `survivors`) and copies that to the end of the log: ordinary puts with the same
numbers, in ascending order, in blocks of their own, naming the queues in which the messages still live.

What makes it safe at every step:
- Acks that are written meanwhile are noted. Whether a message is alive is decided in the turn in which its copy is
  written, so no copy stands behind the last ack of its message.
- The old segment is there until the block with its last copy is synced (`Segment.released_by`).
- While it is there, acks of the copies keep it named too (`Segment.copied_from`), so that no old put comes back.
- What is found must agree with the tallies of `SegmentUsage`; a segment for which it does not is left alone.

Measured cost: docs/reference/performance.md. Source: docs/decisions/081-compaction-of-messages.md.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from struct import error as StructError

from penstock_broker.log.blocks import BLOCK_HEADER, padded
from penstock_broker.log.files import Buffer, FileLayer
from penstock_broker.log.record_codec import Malformed, acks_in, redirected, route_record, split
from penstock_broker.log.records import Ack
from penstock_broker.log.segment_reader import Block, sound_block, sound_blocks
from penstock_broker.log.segment_usage import Segment, SegmentUsage, Tally
from penstock_broker.log.survivors import Survivors, TooManyQueues
from penstock_broker.log.victims import choose, largest_share
from penstock_broker.log.writer import HEADER_SPACE, SegmentWriter

LOGGER = logging.getLogger(__name__)

COPIED_BYTES = 128 * 1024
"""Bytes of messages that are copied at a time, if a single one is not longer."""
_QUEUES = 1000
"""Queues that are asked between two pauses."""
_PAUSE, _WAIT = False, True

MOST_ROUTES = 1000
"""Route sets of copies that are remembered; others are defined again."""

Routes = dict[tuple[int, ...], int]
"""Numbers of route sets, by the queues for which they stand."""
Steps = Iterator[bool]
"""Whether nothing can be done now because there is no room to write."""


class Compaction:
    """Finds out when it pays, and rewrites a few segments at a time."""

    def __init__(
        self, files: FileLayer, usage: SegmentUsage, writer: SegmentWriter, has_room: Callable[[int], bool]
    ) -> None:
        """`has_room`: whether so many bytes may be written now, without the room that acks need."""
        self._files, self._usage, self._writer, self._has_room = files, usage, writer, has_room
        self._steps: Steps | None = None
        self._looked_at: tuple[int, int, bool] | None = None
        self._look_again_at = 0
        self._waits_for = 0
        self._first_message = 0
        self._watched: list[Survivors] = []
        self._defined_in: Segment | None = None
        self._routes: Routes = {}  # those that were defined in that segment
        self._copied = min(COPIED_BYTES, writer.capacity // 8)

    @property
    def is_active(self) -> bool:
        """Whether segments are being rewritten."""
        return self._steps is not None

    def wants_work(self, kept_from: int, *, is_full: bool) -> bool:
        """Whether `work` has something to do. `kept_from`: the first segment that is needed for its topology.

        Decided anew whenever a segment was begun, topology was restated, the disk became full, or many acks came.
        """
        if self._steps is not None:
            return not self._waits_for or self._has_room(self._waits_for)
        segments = self._usage.segments
        look = segments[-1].number, kept_from, is_full
        if look == self._looked_at and self._usage.died < self._look_again_at:
            return False
        self._looked_at = look
        self._look_again_at = self._usage.died + sum(each.put_places for each in segments) // (4 * len(segments)) + 1
        victims = choose(segments, kept_from, is_full=is_full)
        if victims:
            self._steps = self._rewrite(victims, is_full=is_full)
        return bool(victims)

    def work(self, more: Callable[[], bool], first_message: int) -> None:
        """Go on while `more()`. Raises OSError if writing fails.

        `first_message`: no put of a new message that is still to be written has a lower number.
        """
        self._first_message = first_message
        for has_to_wait in self._steps or ():
            if has_to_wait or not more():
                return
        self._steps = None
        self._looked_at = None

    # Reading ----------------------------------------------------------------------------------------------------------

    def _rewrite(self, victims: Sequence[Segment], *, is_full: bool) -> Steps:
        usage = self._usage
        found = self._watched = [Survivors(segment) for segment in sorted(victims, key=lambda each: each.number)]
        usage.watch = self._note
        try:
            numbers = {segment.number for segment in victims}
            sources = [each for each in usage.segments if each.number in numbers or each.acks_into & numbers]
            for each in found:
                yield from self._begin(each)
            yield from self._gather(found, sources)
            for each in found:
                if not each.segment.is_fixed:
                    yield from self._decide(each, largest_share(is_full=is_full))
        finally:
            usage.watch = None
            self._watched = []

    def _note(self, incarnation: int, messages: Sequence[int]) -> None:
        for each in self._watched:
            each.note(incarnation, messages)

    def _begin(self, found: Survivors) -> Steps:
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

    def _gather(self, found: Sequence[Survivors], sources: Sequence[Segment]) -> Steps:
        by_segment = {each.segment.number: each for each in found}
        for source in sources:
            victim = by_segment.get(source.number)
            named = [each for each in found if each.needs_acks and each.segment.number in source.acks_into]
            if victim is None and not named:
                continue
            to_tell = named if victim is None else [*named, victim]
            try:
                for item in self._acks(source, victim):
                    if item is not None:
                        for each in to_tell:
                            for _ in each.note_slowly(item.incarnation, item.messages):
                                yield _PAUSE
                    yield _PAUSE
                if victim is not None:
                    for _ in victim.complete():
                        yield _PAUSE
            except (Malformed, StructError, ValueError, TooManyQueues) as error:
                LOGGER.warning("segment %d can't be compacted, or what it has acks of: %s", source.number, error)
                for each in to_tell:
                    each.segment.is_fixed = True

    def _acks(self, source: Segment, victim: Survivors | None) -> Iterator[Ack | None]:
        """All acks of the segment; the puts go to `victim` if it is one. None for pauses."""
        for block in sound_blocks(self._files, source, self._writer.seed):
            if block is None:
                yield None
                if not self._is_there(source):
                    return
            elif victim is not None:
                is_current = block.header.epoch == self._writer.epoch
                yield from victim.index(block.header.offset, block.records, is_current=is_current)
            else:
                for kind, flags, body, _ in split(block.records):
                    yield from acks_in(kind, flags, body)
                yield None

    def _is_there(self, segment: Segment) -> bool:
        """Whether the segment was not recycled meanwhile: its last message may have left."""
        return self._usage.by_number.get(segment.number) is segment

    # Copying ----------------------------------------------------------------------------------------------------------

    def _decide(self, found: Survivors, largest: float) -> Steps:
        segment = found.segment
        for disagreement in found.disagreement():
            if disagreement is not None and self._is_there(segment):
                LOGGER.error("segment %d is left as it is until the next start: %s", segment.number, disagreement)
                segment.is_fixed = True
                return
            yield _PAUSE
        if found.has_bodies and found.holds_staged():
            segment.is_fixed = True
            return
        for _ in found.add_up():
            yield _PAUSE
        segment.put_bytes, segment.put_places = found.alive_bytes, segment.live - segment.bodies
        if segment.put_bytes < largest * segment.size:
            yield from self._copy(found)

    def _copy(self, found: Survivors) -> Steps:
        """Copy all that is alive, in the order of numbers."""
        segment = found.segment
        chunk: list[tuple[int, bytes]] = []
        size = 0
        block: Block | None = None
        for position in found.positions():
            yield _PAUSE
            if not found.queues_of(position):
                continue
            at, start, length = found.place_of(position)
            if chunk and size + length > self._copied:
                yield from self._wait_for_room(size)
                self._write(found, chunk)
                chunk, size = [], 0
            try:
                if block is None or block.header.offset != at:
                    for read in sound_block(self._files, segment, at, self._writer.seed):
                        yield _PAUSE
                        if not self._is_there(segment):
                            return
                        block = read
            except Malformed as error:
                LOGGER.warning("segment %d is not compacted further: %s", segment.number, error)
                segment.is_fixed = True
                return
            assert block is not None
            chunk.append((position, bytes(block.records[start : start + length])))
            size += length
        if chunk:
            yield from self._wait_for_room(size)
            self._write(found, chunk)

    def _wait_for_room(self, size: int) -> Steps:
        while not self._has_room(size):
            self._waits_for = size
            yield _WAIT
        self._waits_for = 0

    def _write(self, found: Survivors, chunk: Sequence[tuple[int, bytes]]) -> None:
        """Write those of these puts that are alive now."""
        writer, usage = self._writer, self._usage
        alive = [(position, record, queues) for position, record in chunk if (queues := found.queues_of(position))]
        if not alive:
            return
        target = usage.segments[-1]
        block, defined = self._block(target, alive)
        if not target.fits(padded(len(block)), BLOCK_HEADER.size):
            target = writer.begin_next_segment(self._first_message)
            block, defined = self._block(target, alive)
            if not target.fits(padded(len(block)), BLOCK_HEADER.size):  # because of its route sets
                middle = len(chunk) // 2
                self._write(found, chunk[:middle])
                self._write(found, chunk[middle:])
                return
        target.blocks.note(found.number_of(alive[0][0]), target.end)
        target.definitions |= dict.fromkeys(defined.values(), target.end)
        writer.write_block(target, block)
        self._note_routes(target, defined)
        target.put_bytes += len(block)
        moved: dict[int, Tally] = {}
        for position, _, queues in alive:
            for incarnation in queues:
                tally = moved.setdefault(incarnation, Tally())
                tally.count += 1
                tally.total += found.number_of(position)
        span = found.number_of(alive[0][0]), found.number_of(alive[-1][0])
        usage.move(found.segment, target, span, moved, writer.sequence)

    def _block(self, target: Segment, alive: Sequence[tuple[int, bytes, tuple[int, ...]]]) -> tuple[bytearray, Routes]:
        """The puts, behind the definitions of the route sets that this segment lacks; and these route sets."""
        known = self._routes if self._defined_in is target else {}
        defined: Routes = {}
        records: list[Buffer] = [HEADER_SPACE]
        for _, record, queues in alive:
            number = known.get(queues) or defined.get(queues)
            if number is None:
                number = defined[queues] = self._writer.routes.fresh()
                records.append(route_record(number, queues))
            records.append(redirected(record, number))
        return bytearray().join(records), defined

    def _note_routes(self, target: Segment, defined: Routes) -> None:
        if self._defined_in is not target or len(self._routes) > MOST_ROUTES:
            self._defined_in, self._routes = target, {}
        self._routes.update(defined)
