"""Acks that keep segments of the log, gathered so that they can be written once more, together.

An ack has to stay while a segment with the put that it names is there. So one message that nobody takes keeps its own
segment, those with acks of its neighbours, those with acks of what lies in these, and in the end everything that was
written behind it. Where that happens, the acks that name segments with messages are read from the segments that are
kept for their acks alone, in slices, and restated: once that is synced, these are free.

Acks are sets: saying one again changes nothing. Decides nothing about messages. Source: section 4 of the design
("compaction in slices"); docs/log-format.md, "Writing".
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from struct import error as StructError

from penstock_broker.log.blocks import BLOCK_HEADER, SEGMENT_START, BlockFlag, decode_block
from penstock_broker.log.encoding import ack_record
from penstock_broker.log.files import Buffer, FileLayer
from penstock_broker.log.segment_usage import Living, Segment
from penstock_broker.log.records import Ack, Malformed, Outcome, acks_in, split
from penstock_broker.log.checkpoint import parts

__all__ = ["Restated", "Restating"]

LOGGER = logging.getLogger(__name__)

LEAST = 4  # so many segments kept for their acks alone are worth reading
LONG_RUN = 5  # so many numbers in a row are shorter as a range

Span = tuple[int, int]  # first and last message


@dataclass(frozen=True, slots=True)
class Restated:
    """Records to write. Behind them `sources` need not name `held` any more; the segment that they are in does."""

    records: list[Buffer]
    held: frozenset[int]
    sources: tuple[Segment, ...]


class Restating:
    """Finds out when it is worth it, and gathers. One gathering at a time."""

    def __init__(self, files: FileLayer, living: Living, seed: int, longest: int) -> None:
        """`longest`: numbers that one record of acks may hold."""
        self._files, self._living, self._seed, self._longest = files, living, seed, longest
        self._looked_at = 0
        self._unreadable: set[int] = set()
        self._steps: Iterator[None] | None = None
        self._done: Restated | None = None

    def wants_work(self, kept_from: int, synced: int) -> bool:
        """Whether `work` has something to do; looked at anew when another segment was begun."""
        newest = self._living.segments[-1].number
        if self._steps is None and newest != self._looked_at:
            self._looked_at = newest
            self._begin(kept_from, synced)
        return self._steps is not None

    def work(self, more: Callable[[], bool]) -> Restated | None:
        """Go on gathering while `more()`; what was gathered, once it is whole. Raises OSError."""
        for _ in self._steps or ():
            if not more():
                return None
        self._steps = None
        done, self._done = self._done, None
        return done

    def _begin(self, kept_from: int, synced: int) -> None:
        segments, by_number = self._living.segments, self._living.by_number
        idle = [
            segment
            for segment in segments[:-1]
            if segment.number < kept_from and not segment.live and not segment.doubtful and segment.touched <= synced
        ]
        numbers = {segment.number for segment in idle}
        named = {name for segment in idle for name in segment.names}
        held = frozenset(name for name in named - numbers if name in by_number)
        is_worth_it = len(idle) >= max(LEAST, len(segments) // 4) and numbers.isdisjoint(self._unreadable)
        if held and is_worth_it and not self._living.has_copies:
            self._steps = self._gather(held, tuple(segment for segment in idle if segment.names & held))

    def _gather(self, held: frozenset[int], sources: tuple[Segment, ...]) -> Iterator[None]:
        wanted = [(each.first_message, each.last_message) for each in map(self._living.by_number.__getitem__, held)]
        found: dict[tuple[int, int], list[Span]] = {}
        for source in sources:
            try:
                for ack in self._acks(source):
                    if ack is not None and ack.incarnation in self._living.queues:
                        spans = found.setdefault((ack.incarnation, ack.outcome), [])
                        spans += [span for first, last in wanted for span in _within(ack.messages, first, last)]
                    yield
            except (Malformed, StructError, ValueError) as error:
                LOGGER.warning("segment %d can't be read, so that nothing behind it is freed: %s", source.number, error)
                self._unreadable.add(source.number)
                return
        records: list[Buffer] = []
        for (incarnation, outcome), spans in found.items():
            records += self._records(incarnation, Outcome(outcome), spans)
            yield
        self._done = Restated(records, held, sources)

    def _acks(self, segment: Segment) -> Iterator[Ack | None]:
        """Each ack in the segment, and None for each other record."""
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

    def _records(self, incarnation: int, outcome: Outcome, spans: list[Span]) -> Iterator[bytes]:
        single: list[int] = []
        for first, last in _joined(spans):
            if last - first + 1 >= LONG_RUN:
                yield ack_record(incarnation, range(first, last + 1), outcome)
            else:
                single += range(first, last + 1)
        for part in parts(single, self._longest):
            yield ack_record(incarnation, part, outcome)


def _within(messages: Sequence[int], first: int, last: int) -> Iterator[Span]:
    """The spans of ascending numbers that lie between two, these included."""
    if isinstance(messages, range):
        if messages.start <= last and messages.stop > first:
            yield max(messages.start, first), min(messages.stop - 1, last)
        return
    yield from ((message, message) for message in messages if first <= message <= last)


def _joined(spans: list[Span]) -> Iterator[Span]:
    """The same numbers in as few spans as it takes, ascending."""
    spans.sort()
    at = 0
    while at < len(spans):
        first, last = spans[at]
        at += 1
        while at < len(spans) and spans[at][0] <= last + 1:
            last = max(last, spans[at][1])
            at += 1
        yield first, last
