"""Of one segment that compaction rewrites, the messages that are alive, and in which queues.

The segment's puts are indexed in arrays, at 24 bytes a message; per queue one byte a message says whether it is alive
there. Acks clear these bytes, and what is left at the end must agree with the tallies of `SegmentUsage`: so neither a
message that is alive is forgotten, nor one that has left comes back. Queues of which nothing is alive in the segment
cost nothing; of a queue with a single message the tally already says which one it is. Knows no files.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import compress
from struct import Struct
from typing import NamedTuple

from penstock_broker.log.format.blocks import BLOCK_HEADER
from penstock_broker.log.format.record_codec import PART, PREFIX, Malformed, RecordType, acks_in, route_in
from penstock_broker.log.format.records import Ack
from penstock_broker.log.format.route_sets import KnownRouteSets
from penstock_broker.log.segments.places import Places
from penstock_broker.log.segments.segment import Segment, Tally

MOST_FLAGS = 64 * 1024 * 1024
"""Messages times queues of one segment that are looked at together."""
QUEUE_COST = 128
"""Bytes that take as long to be copied as it takes to note that a message is in one queue more."""
_STEP = 1024
"""Messages between two pauses."""
_LONG_STEP = 16 * _STEP
"""Messages between two pauses where each costs little."""
_PART_KEYS = Struct("<QQ")  # of a part, behind the prefix: body, offset
_KEYS = Struct("<IIQ")  # of a put, behind the prefix: route set, reserved, message
_PUTS = frozenset({int(RecordType.PUT), int(RecordType.STAGED_PUT)})
_PARTS = frozenset({int(RecordType.PART), int(RecordType.MOVED_PART)})
_CURRENT_PUTS = _PUTS | {int(RecordType.VOLATILE_PUT)}
"""Of blocks of the present epoch; what was volatile in an earlier one is gone."""
_DEFINITIONS = frozenset({int(RecordType.ROUTE), int(RecordType.ROUTE_DIFFERENCE)})
_ACKS = frozenset({RecordType.ACK, RecordType.ACK_RANGE})


class TooManyQueues(Exception):
    """The segment has too many messages in too many queues to be looked at in memory."""


@dataclass(slots=True)
class _Alive:
    """What is alive in one queue: a byte for each message of the segment, and the sums that its tally has too."""

    flags: bytearray = field(default_factory=bytearray)
    count: int = 0
    total: int = 0

    def drop(self, numbers: "array[int]", low: int, high: int) -> None:
        """The messages from index `low` to below `high` have left."""
        flags = self.flags[low:high]
        self.count -= flags.count(1)
        self.total -= sum(compress(numbers[low:high], flags))
        self.flags[low:high] = bytes(high - low)


class PartRecord(NamedTuple):
    """A part of a body: the offset at which it begins, the offset of its block, where its record begins behind the
    block's header, and the record's length."""

    body: int
    offset: int
    block: int
    start: int
    length: int

    @property
    def at(self) -> int:
        """Where its data begin, in bytes from the start of the file."""
        return self.block + BLOCK_HEADER.size + self.start + PART.size


class LiveContents:
    """Call `index` for all blocks, `complete`, and `note` for every ack at any time; then the rest may be asked."""

    def __init__(
        self, segment: Segment, holds: Callable[[Segment, PartRecord], bool], places: Places[Segment] | None = None
    ) -> None:
        """`holds`: whether something still refers to a part in a segment. `places`: where messages lie, if some of the
        segment's may have been copied before: a kill can end a compaction between two copies.
        """
        self._places = places
        self._here = 0, -1, True  # first and last number of a range, and whether its messages lie in this segment
        self.segment = segment
        self.parts: list[PartRecord] = []
        """Those of the bodies that were alive when they were indexed, in the order of the segment."""
        self.alive_bytes = 0
        """Bytes of the records of all messages that `add_up` found alive; their bodies do not count."""
        self._holds = holds
        self._by_size: Counter[int] = Counter()  # of these messages, how many have records of so many bits' length
        self._tallies: Mapping[int, Tally] = {}
        self._single: dict[int, Tally] = {}
        self._wanted: set[int] | None = None  # only these messages, if no queue has more than one
        self._known = KnownRouteSets()
        self._routes: dict[int, int] = {}  # route set -> index in _candidates, or -1
        self._candidates: list[tuple[int, ...]] = []
        self._numbers, self._route_of = array("Q"), array("I")
        self._blocks, self._starts, self._lengths = array("I"), array("I"), array("I")
        self._runs: list[tuple[int, int]] = []
        self._live: dict[int, _Alive] | None = None
        self._alive = bytearray()  # in some queue, when it was asked last
        self._early: list[tuple[int, Sequence[int]]] = []

    def begin(self, tallies: Mapping[int, Tally]) -> None:
        """What lives in the segment, by queue. The tallies are kept up to date by the caller."""
        self._tallies = tallies
        self._single = {incarnation: tally for incarnation, tally in tallies.items() if tally.count == 1}
        if not self.needs_acks:
            self._wanted = {tally.total for tally in self._single.values()}

    @property
    def needs_acks(self) -> bool:
        """Whether the tallies alone do not say what is alive."""
        return len(self._single) < len(self._tallies)

    # Reading ----------------------------------------------------------------------------------------------------------

    def index(self, block: int, records: memoryview, *, is_current: bool = False) -> Iterator[Ack | None]:
        """Take in the puts of the block at this offset. Yields its acks, and None where the caller may pause.

        `is_current`: the block is of the present epoch.
        """
        yield from self._index(block, records, 0, len(records), _CURRENT_PUTS if is_current else _PUTS)

    def _index(self, block: int, data: memoryview, at: int, end: int, puts: frozenset[int]) -> Iterator[Ack | None]:
        unpack, keys = PREFIX.unpack_from, _KEYS.unpack_from
        count = 0
        while at < end:
            kind, flags, _, length = unpack(data, at)
            body = at + PREFIX.size
            following = body + length
            if following > end:
                raise Malformed(f"record of type {kind} says {length} bytes, {end - body} are left")
            if kind in puts:
                route_set, _, message = keys(data, body)
                route = self._routes.get(route_set)
                if route is None:
                    route = self._define(route_set)
                if route >= 0 and (self._wanted is None or message in self._wanted) and self._lies_here(message):
                    self._add(message, route, block, at, following - at)
            elif kind in _DEFINITIONS:
                definition = route_in(kind, data[body:following])
                if definition is not None:
                    self._known.define(definition)
            elif kind == RecordType.COMMIT:
                yield from self._index(block, data, body, following, puts)
            elif kind in _ACKS:
                yield from acks_in(kind, flags, data[body:following])
            elif kind in _PARTS:
                number, offset = _PART_KEYS.unpack_from(data, body)
                part = PartRecord(number, offset, block, at, following - at)
                if self._holds(self.segment, part):
                    self.parts.append(part)
            at = following
            count += 1
            if not count % _STEP:
                yield None

    def _lies_here(self, message: int) -> bool:
        if self._places is None:
            return True
        first, last, is_here = self._here
        if not first <= message <= last:
            segment, last = self._places.stretch(message)
            is_here = segment is self.segment
            self._here = message, last, is_here
        return is_here

    def _define(self, route_set: int) -> int:
        """Where the set's queues are noted; -1 if nothing is alive in any of them."""
        candidates = tuple(each for each in self._known.incarnations(route_set) if each in self._tallies)
        at = self._routes[route_set] = len(self._candidates) if candidates else -1
        if candidates:
            self._candidates.append(candidates)
        return at

    def _add(self, message: int, route: int, block: int, start: int, length: int) -> None:
        at = len(self._numbers)
        if not at or message < self._numbers[-1]:
            self._runs.append((at, at))
        self._runs[-1] = self._runs[-1][0], at + 1
        self._numbers.append(message)
        self._route_of.append(route)
        self._blocks.append(block)
        self._starts.append(start)
        self._lengths.append(length)

    def complete(self) -> Iterator[None]:
        """All blocks were indexed. Pauses; raises TooManyQueues."""
        several = [incarnation for incarnation in self._tallies if incarnation not in self._single]
        if len(several) * len(self._numbers) > MOST_FLAGS:
            raise TooManyQueues(f"{len(self._numbers)} messages in {len(several)} queues")
        live: dict[int, _Alive] = {}
        for incarnation in several:
            is_member = [incarnation in candidates for candidates in self._candidates]
            alive = live[incarnation] = _Alive()
            for start in range(0, len(self._route_of), _LONG_STEP):
                flags = bytes(map(is_member.__getitem__, self._route_of[start : start + _LONG_STEP]))
                alive.flags += flags
                alive.count += flags.count(1)
                alive.total += sum(compress(self._numbers[start : start + _LONG_STEP], flags))
                yield
        self._live = live
        early, self._early = self._early, []
        for incarnation, messages in early:
            yield from self.note_slowly(incarnation, messages)

    # Acks -------------------------------------------------------------------------------------------------------------

    def note_slowly(self, incarnation: int, messages: Sequence[int]) -> Iterator[None]:
        """As `note`, with pauses."""
        if isinstance(messages, range):
            self.note(incarnation, messages)
            return
        for start in range(0, len(messages), _STEP):
            self.note(incarnation, messages[start : start + _STEP])
            yield

    def note(self, incarnation: int, messages: Sequence[int]) -> None:
        """These messages (ascending) have left this queue, or some of them are not in here."""
        if self._wanted is not None:
            return
        if self._live is None:
            segment = self.segment
            lowest = min([segment.first_message, *(first for first, _ in segment.copied)])
            highest = max([segment.last_message, *(last for _, last in segment.copied)])
            if messages[0] <= highest and messages[-1] >= lowest:
                self._early.append((incarnation, messages))
            return
        live = self._live.get(incarnation)
        if live is None:
            return
        for low, high in self._runs:
            self._clear(live, messages, low, high)

    def _clear(self, live: _Alive, messages: Sequence[int], low: int, high: int) -> None:
        numbers = self._numbers
        if isinstance(messages, range):
            low = bisect_left(numbers, messages.start, low, high)
            high = bisect_left(numbers, messages.stop, low, high)
            live.drop(numbers, low, high)
            return
        first = bisect_left(messages, numbers[low])
        last = bisect_right(messages, numbers[high - 1], first)
        if first == last:
            return
        low = bisect_left(numbers, messages[first], low, high)
        if numbers[low : low + last - first] == messages[first:last]:  # the usual case, if both are arrays
            live.drop(numbers, low, low + last - first)
            return
        for message in messages[first:last]:
            low = bisect_left(numbers, message, low, high)
            if low < high and numbers[low] == message:
                live.drop(numbers, low, low + 1)

    # What is alive ----------------------------------------------------------------------------------------------------

    def disagreement(self) -> Iterator[str | None]:
        """None for pauses, and a text for each queue whose messages are not those that its tally counts."""
        assert self._live is not None
        for incarnation, tally in self._tallies.items():
            if not tally.count:  # the queue may have ended
                continue
            live = self._live.get(incarnation)
            if live is not None:
                count, total = live.count, live.total
            else:
                found = tally.count and self._position(tally.total, incarnation) is not None
                count, total = int(bool(found)), tally.total if found else 0
            agrees = (count, total) == (tally.count, tally.total)
            yield (
                None if agrees else f"queue {incarnation}: {count} messages were found alive, {tally.count} are counted"
            )

    def add_up(self) -> Iterator[None]:
        """Find what is alive in any queue; pauses. Acks that come later leave some of it dead: see `queues_of`."""
        assert self._live is not None
        alive, length = 0, len(self._numbers)
        for each in self._live.values():
            alive |= int.from_bytes(each.flags, "little")
            yield
        self._alive = bytearray(alive.to_bytes(length, "little"))
        for incarnation, tally in self._single.items():
            position = self._position(tally.total, incarnation) if tally.count else None
            if position is not None:
                self._alive[position] = 1
        self.alive_bytes, self._by_size = 0, Counter()
        for start in range(0, length, _LONG_STEP):
            end = start + _LONG_STEP
            found = array("I", compress(self._lengths[start:end], self._alive[start:end]))
            self.alive_bytes += sum(found)
            self._by_size.update(map(int.bit_length, found))
            yield

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """Of the messages that `add_up` found alive: bytes that their records take at most, and how many do."""
        return tuple(((1 << bits) - 1, self._by_size[bits]) for bits in sorted(self._by_size, reverse=True))

    def positions(self) -> Iterator[int]:
        """What was found alive, in the order of the messages' numbers."""
        return merge(*(self._positions(low, high) for low, high in self._runs), key=self._numbers.__getitem__)

    def _positions(self, low: int, high: int) -> Iterator[int]:
        while (low := self._alive.find(1, low, high)) >= 0:
            yield low
            low += 1

    def queues_of(self, position: int) -> tuple[int, ...]:
        """The queues in which the message is alive now."""
        assert self._live is not None
        live, number = self._live, self._numbers[position]
        return tuple(
            incarnation
            for incarnation in self._candidates[self._route_of[position]]
            if (live[incarnation].flags[position] if incarnation in live else self._is_single(incarnation, number))
            and self._tallies[incarnation].count
        )

    def place_of(self, position: int) -> tuple[int, int, int]:
        """The offset of its block, where its record begins behind the block's header, and the record's length."""
        return self._blocks[position], self._starts[position], self._lengths[position]

    def cost(self, position: int) -> int:
        """What it takes to copy the message: its bytes, and for each queue that it was in as much as these bytes."""
        return self._lengths[position] + QUEUE_COST * len(self._candidates[self._route_of[position]])

    def number_of(self, position: int) -> int:
        """The message's number."""
        return self._numbers[position]

    def _is_single(self, incarnation: int, number: int) -> bool:
        tally = self._single[incarnation]
        return tally.count == 1 and tally.total == number

    def _position(self, message: int, incarnation: int) -> int | None:
        for low, high in self._runs:
            position = bisect_left(self._numbers, message, low, high)
            if position < high and self._numbers[position] == message:
                return position if incarnation in self._candidates[self._route_of[position]] else None
        return None
