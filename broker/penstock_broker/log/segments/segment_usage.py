"""What is still needed of each segment, so that a segment of which nothing is needed can be recycled at once.

No table of messages is kept. The segment of a message follows from its number (see `Places`); per queue and segment
there are two integers: how many live messages, and the sum of their numbers. If a message is acknowledged twice, the
two disagree. Such a segment is not recycled in this run (the next start counts anew), so the mistake costs space and no
message.

Cost: one update per queue and block of puts or acks, and two bisections and one sum for acks of other messages than
those of the queue before. Where a block has puts for very many queues, their updates are spread over the next turns
(`PendingTallies`).
"""

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakValueDictionary

from penstock_broker.log.segments.pending_tallies import PendingTallies, Share
from penstock_broker.log.segments.places import Places
from penstock_broker.log.segments.segment import Segment, Span, Tally

LOGGER = logging.getLogger(__name__)

MOST_AT_ONCE = 1000
"""Queues whose tallies are updated in one turn: about half a millisecond."""
_NEVER = 1 << 64
"""More than the sequence of any block."""


class Body(Protocol):
    """A body that came in parts. It keeps the segments with its parts for as long as something refers to it."""

    segments: dict[Segment, int]
    """Bytes of its parts by segment."""


@dataclass(slots=True)
class _Holder:
    """A message whose body came in parts, and the queues in which it lives."""

    queues: set[int]
    body: Body


class SegmentUsage:
    """All segments in order, the queues that exist, and what of each queue lives in which segment."""

    def __init__(self) -> None:
        self.written = 0
        """The sequence of the last block written; the segment writer keeps it up to date."""
        self.segments: list[Segment] = []
        self.by_number: dict[int, Segment] = {}
        self.queues: dict[int, dict[int, Tally]] = {}  # incarnation -> segment number -> live messages
        self.places: Places[Segment] = Places()
        """Where each live message lies."""
        self.died = 0
        """How many messages have left a queue, counted per queue; compared with itself by whoever waits for room."""
        self.emptied = 0
        """How many times the last message of a segment has left it, the newest one not counted: whether that is empty
        says nothing before the next is begun, and where each message is consumed before the next comes, it often is."""
        self.emptied_by = 0
        """The block by which that happened last."""
        self.watch: Callable[[int, Sequence[int]], None] | None = None
        """Is told of each ack, by queue and ascending messages, while a compaction is under way."""
        self.staged: WeakValueDictionary[int, Body] = WeakValueDictionary()
        """By number, the bodies to which something refers."""
        self.pending = PendingTallies()
        self._holders: dict[int, _Holder] = {}  # by message
        self._changes = 0
        """Grows whenever a segment may have become recyclable, but for what `recyclable` is asked with."""
        self._none_until: tuple[int, int, int] | None = None
        """Without a change in `_changes` (the first) and of `kept_from` (the second), no segment is recyclable before
        this block (the third) is synced."""

    def add_segment(self, segment: Segment) -> None:
        """Segments come in ascending order, of numbers and of first messages."""
        if self.segments and not self.segments[-1].live:
            self._note_empty(self.segments[-1])
        self._changes += 1
        self.segments.append(segment)
        self.by_number[segment.number] = segment
        self.places.begin(segment.first_message, segment)

    def remove_segment(self, segment: Segment) -> None:
        """Nothing is needed of the segment, and it will be recycled."""
        self._changes += 1
        self.segments.remove(segment)
        del self.by_number[segment.number]
        self.places.remove(segment)
        for other in self.segments:
            other.copied_from.discard(segment.number)

    def segment_of(self, message: int) -> Segment:
        """The segment in which the message lies, if it is live. Copies that compaction makes change it."""
        return self.places[message]

    def defined_route_sets(self) -> Iterator[int]:
        """The numbers of all route sets that segments define."""
        for segment in self.segments:
            yield from segment.definitions

    def begin_queue(self, incarnation: int) -> None:
        """A queue exists from now on; a second call changes nothing."""
        self.queues.setdefault(incarnation, {})

    def end_queue(self, incarnation: int, sequence: int) -> None:
        """The queue and all its messages are gone by block `sequence`."""
        if self.pending.spreads:
            self._count(self.pending.of_queue(incarnation))
        tallies = self.queues.pop(incarnation, {})
        if tallies:  # else it has no message: very many queues may end, beside very many large messages of others
            self._leave(incarnation, list(self._holders), sequence)
        for number, tally in list(tallies.items()):
            self._lower(tallies, number, tally.count, tally.total, sequence)

    def restore(self, incarnation: int, messages: Sequence[int], segment: int) -> None:
        """Count recovered messages (ascending) of one queue where their newest puts lie; `locate` comes first."""
        found = self.by_number[segment]
        found.largest_put = found.size  # it is not known how long each of them is
        self.put(found, (incarnation,), messages)

    def restore_run(self, incarnation: int, firsts: Sequence[int], lasts: Sequence[int], segment: int) -> None:
        """The same of messages as stretches of consecutive numbers: the first and the last of each."""
        found, tallies = self.by_number[segment], self.queues[incarnation]
        count = sum(lasts) - sum(firsts) + len(firsts)
        total = sum((first + last) * (last - first + 1) // 2 for first, last in zip(firsts, lasts, strict=True))
        tallies.setdefault(segment, Tally()).add(count, total)
        found.largest_put = found.size  # as above
        found.last_message = max(found.last_message, lasts[-1])
        found.live += count
        found.put_places += count

    def locate(self, messages: Iterable[tuple[int, int]], first_free: int) -> None:
        """The live messages after a recovery, ascending, with their segments. Numbers from `first_free` on are free."""
        found = ((message, self.by_number[number]) for message, number in messages)
        self.places.rebuild(found, first_free, self.segments[-1])

    def put(self, segment: Segment, incarnations: Sequence[int], messages: Sequence[int]) -> None:
        """Messages (ascending), each in all these queues, were written to `segment`."""
        count, total = len(messages), sum(messages)
        if messages[-1] > segment.last_message:
            segment.last_message = messages[-1]
        if len(incarnations) > MOST_AT_ONCE:
            queues = self.pending.add(segment.number, incarnations, self.queues.keys(), count, total)
            segment.live += count * queues
            segment.put_places += count * queues
            return
        number, tallies_of = segment.number, self.queues.get
        ended = 0
        for incarnation in incarnations:
            tallies = tallies_of(incarnation)
            if tallies is None:
                ended += 1
                continue
            tally = tallies.get(number)
            if tally is None:
                tallies[number] = Tally(count, total)
            else:
                tally.count += count
                tally.total += total
        places = count * (len(incarnations) - ended)
        segment.live += places
        segment.put_places += places

    def count_pending(self, most: int = MOST_AT_ONCE) -> None:
        """Count messages for very many queues in some of these (`most`): once a turn."""
        self._count(self.pending.take(most))

    def count_segment(self, segment: Segment) -> None:
        """Count all messages in a segment: whoever reads its tallies calls it once the segment is full."""
        if self.pending.spreads:
            self._count(self.pending.of_segment(segment.number))

    def _count(self, shares: Iterable[Share]) -> None:
        for incarnation, number, count, total in shares:
            self.queues[incarnation].setdefault(number, Tally()).add(count, total)

    def ack(self, incarnation: int, messages: Sequence[int], sequence: int) -> set[int]:
        """These messages (ascending) left their queue by block `sequence`. Returns the segments with their puts."""
        tallies = self.queues.get(incarnation)
        if tallies is None:
            return set()
        if self.pending.spreads:
            self._count(self.pending.of_queue(incarnation))
        if self._holders:
            self._leave(incarnation, messages, sequence)
        if self.watch is not None:
            self.watch(incarnation, messages)
        named: set[int] = set()
        for segment, part in self.places.split(messages):
            self._lower(tallies, segment.number, len(part), sum(part), sequence)
            named.add(segment.number)
            if segment.copied_from:  # the older puts must not come back when the copy is gone
                named |= segment.copied_from
        return named

    def ack_all(self, acks: Iterable[tuple[int, Sequence[int]]], sequence: int) -> set[int]:
        """`ack` for several queues. On a fan-out exchange many of them lose the same messages together: where these lie
        is looked up once.
        """
        named: set[int] = set()
        if self.pending.spreads or self._holders or self.watch is not None:
            for incarnation, messages in acks:
                named |= self.ack(incarnation, messages, sequence)
            return named
        tallies_of = self.queues.get
        before: Sequence[int] = ()
        number = count = total = died = last = 0
        low, upto = 1, 0  # numbers from the one to the other lie in `segment`
        segment: Segment | None = None
        for incarnation, messages in acks:
            tallies = tallies_of(incarnation)
            if tallies is None:
                continue
            if messages is not before:  # `Appender` has one list for those that lose the same
                before, count, total = messages, len(messages), sum(messages)
                first, last = messages[0], messages[-1]
                if last > upto or first < low:
                    if segment is not None:
                        self._lose(segment, died, sequence)
                    died = 0
                    segment, low, upto = self.places.around(first)
                    number = segment.number
                    named.add(number)
                    if segment.copied_from:
                        named |= segment.copied_from
            if last > upto:  # they lie in several segments
                named |= self.ack(incarnation, messages, sequence)
                continue
            died += count
            tally = tallies.get(number)
            if tally is not None and tally.count > count:
                tally.count -= count
                tally.total -= total
            else:
                assert segment is not None
                self._take_last(tallies, segment, count, total)
        if segment is not None:
            self._lose(segment, died, sequence)
        return named

    def move(self, source: Segment, target: Segment, span: Span, moved: Mapping[int, Tally], sequence: int) -> None:
        """The live messages of `source` in the span of numbers were copied to `target`, by block `sequence`.

        `moved`: what of each queue. The source stays until the block is synced.
        """
        self.places.move(source, *span, target)
        target.copied.append(span)
        target.copied_from |= source.copied_from | {source.number}
        for incarnation, part in moved.items():
            tallies = self.queues[incarnation]
            tallies.setdefault(target.number, Tally()).add(part.count, part.total)
            target.live += part.count
            target.put_places += part.count
            self._lower(tallies, source.number, part.count, part.total, sequence)

    def hold_body(self, message: int, incarnations: Iterable[int], body: Body) -> None:
        """A message was put that names this body: the body stays until the message has left all its queues."""
        queues = {incarnation for incarnation in incarnations if incarnation in self.queues}
        if queues:
            self._holders[message] = _Holder(queues, body)

    @property
    def in_parts(self) -> Container[int]:
        """The live messages that name a body which came in parts."""
        return self._holders

    def place_part(self, segments: dict[Segment, int], segment: Segment, length: int) -> None:
        """So many bytes of the body that `segments` is of lie in this segment too."""
        if segment not in segments:
            segments[segment] = 0
            segment.live += 1
            segment.bodies += 1
        segments[segment] += length
        segment.body_bytes += length

    def move_part(self, segments: dict[Segment, int], source: Segment, target: Segment, length: int) -> None:
        """So many bytes of the body were copied from `source` to `target`, by the last block written."""
        self.place_part(segments, target, length)
        segments[source] -= length
        source.body_bytes -= length
        if not segments[source]:
            del segments[source]
            self._release((source,), self.written)

    def release_body(self, segments: dict[Segment, int]) -> None:
        """A body in these segments is no longer used; they are cleared.

        The segments stay until the last block written is synced: it may hold a record that names the body.
        """
        for segment, length in segments.items():
            segment.body_bytes -= length
        self._release(segments, self.written)
        segments.clear()

    def recyclable(self, kept_from: int, synced: int) -> Segment | None:
        """The oldest segment of which nothing is needed, or None. Never the last, which is being written.

        Needed are: live messages; acks, while a put that they name is there; topology from segment `kept_from` on
        (older segments are covered by a synced checkpoint); and what was released by a block that is not `synced` yet.
        The loop asks in each turn, so the segments are looked at only if something has changed since there was none.
        """
        known = self._none_until
        if known is not None and known[0] == self._changes and known[1] == kept_from and synced < known[2]:
            return None
        awaited = _NEVER
        for segment in self.segments:
            if segment.number >= kept_from or segment is self.segments[-1]:
                break
            if segment.live or segment.miscounted or not self.by_number.keys().isdisjoint(segment.acks_into):
                continue
            if segment.released_by <= synced:
                return segment
            awaited = min(awaited, segment.released_by)
        self._none_until = (self._changes, kept_from, awaited)
        return None

    def awaits_sync(self, kept_from: int, synced: int) -> bool:
        """Whether a segment will be recyclable as soon as what is written is synced."""
        if self.recyclable(kept_from, synced) is not None:
            return False
        return self._none_until is not None and self._none_until[2] != _NEVER

    def acks_moved(self) -> None:
        """Acks were written once more: fewer segments are needed for them now."""
        self._changes += 1

    def _release(self, segments: Iterable[Segment], sequence: int) -> None:
        for segment in segments:
            segment.live -= 1
            segment.bodies -= 1
            segment.released_by = max(segment.released_by, sequence)
            if not segment.live and segment is not self.segments[-1]:
                self._note_empty(segment)

    def _leave(self, incarnation: int, messages: Iterable[int], sequence: int) -> None:
        """Release the bodies of the messages that have left their last queue."""
        for message in messages:
            holder = self._holders.get(message)
            if holder is None:
                continue
            holder.queues.discard(incarnation)
            if not holder.queues:
                del self._holders[message]
                for segment in holder.body.segments:
                    segment.released_by = max(segment.released_by, sequence)

    def _lower(self, tallies: dict[int, Tally], number: int, count: int, total: int, sequence: int) -> None:
        segment = self.by_number[number]
        self._lose(segment, count, sequence)
        tally = tallies.get(number)
        if tally is not None and tally.count > count:
            tally.count -= count
            tally.total -= total
        else:
            self._take_last(tallies, segment, count, total)

    def _lose(self, segment: Segment, count: int, sequence: int) -> None:
        """So many of the messages that live in a segment, counted per queue, have left by this block."""
        segment.live -= count
        self.died += count
        if sequence > segment.released_by:
            segment.released_by = sequence
        if count and not segment.live and segment is not self.segments[-1]:
            self._note_empty(segment)

    def _note_empty(self, segment: Segment) -> None:
        """The last message of a segment has left it, and none will come: it is not the newest."""
        self._changes += 1
        self.emptied += 1
        self.emptied_by = max(self.emptied_by, segment.released_by)

    def _take_last(self, tallies: dict[int, Tally], segment: Segment, count: int, total: int) -> None:
        """The last messages of a queue in a segment have left it: its tally goes, which has to say the same. A
        compaction may have it still.
        """
        tally = tallies.pop(segment.number, None)
        if tally is not None:
            count -= tally.count
            total -= tally.total
            tally.count = tally.total = 0
        if count or total:
            segment.miscounted = True
            LOGGER.error(
                "segment %d is kept until the next start: a message in it was acknowledged twice", segment.number
            )
