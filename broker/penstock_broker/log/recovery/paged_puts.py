"""Live messages of a log that is being recovered, without their bodies: a deep backlog need not fit into memory.

What is known of such a message is what a queue needs that keeps it out of memory: its number, its length, and when the
first of up to `BATCH` messages expires. Acknowledgements are kept as ranges of numbers and taken off at the end, so
they cost the same whatever they name, and however many queues a message reached. Pure.
Source: docs/decisions/083-recovery.md.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from penstock_broker.log.format.route_sets import ReachedQueues
from penstock_broker.log.recovery.number_ranges import NumberRanges
from penstock_broker.log.segments.segment_digest import PutRun

__all__ = ["BATCH", "Batch", "LiveRun", "PagedPuts", "RunChain"]

BATCH: Final = 4096
"""About so many messages are described together."""

_NONE: Final = NumberRanges()


class LiveRun(NamedTuple):
    """Messages of one queue, as stretches of consecutive numbers: `firsts` and `lasts`, ascending."""

    firsts: array[int]
    lasts: array[int]
    messages: int
    """How many."""
    bytes: int
    """Of their payloads."""
    expires: int
    """No message that expires does so before; 0: none expires."""
    arrival: int
    """None arrived before."""


class Batch:
    """Messages of one segment and one set of queues, by ascending number."""

    __slots__ = (
        "_all", "arrival", "expires", "firsts", "is_copied", "lasts", "lengths", "moved", "queues", "segment", "starts",
    )  # fmt: skip

    def __init__(self, segment: int, queues: ReachedQueues, *, is_copied: bool) -> None:
        self.segment, self.queues = segment, queues
        self.is_copied = is_copied
        """Compaction has written them: higher numbers lie in segments before."""
        self.firsts, self.lasts = array("Q"), array("Q")
        self.starts = array("I")
        """By stretch, which of the lengths is that of its first message."""
        self.lengths = array("I")
        """Bytes of each payload."""
        self.expires = 0
        self.arrival = 0
        self._all: LiveRun | None = None
        self.moved: NumberRanges | None = None
        """Messages of which a later put was read: they are not counted here."""

    def extend(self, numbers: Sequence[int], lengths: Sequence[int], arrival: int, expires: int) -> None:
        """Take in messages with higher numbers than those here. `arrival`: of the first; `expires`: see `LiveRun`."""
        if not self.arrival or arrival < self.arrival:
            self.arrival = arrival
        if expires and (not self.expires or expires < self.expires):
            self.expires = expires
        at = len(self.lengths)
        self.lengths.extend(lengths)
        first, last = numbers[0], numbers[-1]
        if last - first + 1 == len(numbers):
            self._add(first, last, at)
            return
        for number in numbers:
            self._add(number, number, at)
            at += 1

    def extend_run(self, run: PutRun) -> None:
        """As `extend`."""
        if not self.arrival or run.arrival < self.arrival:
            self.arrival = run.arrival
        if run.expires and (not self.expires or run.expires < self.expires):
            self.expires = run.expires
        at = len(self.lengths)
        self.lengths.extend(run.lengths)
        for first, last in zip(run.firsts, run.lasts, strict=True):
            self._add(first, last, at)
            at += last - first + 1

    def _add(self, first: int, last: int, at: int) -> None:
        if self.lasts and first == self.lasts[-1] + 1:
            self.lasts[-1] = last
            return
        self.firsts.append(first)
        self.lasts.append(last)
        self.starts.append(at)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.firsts, number) - 1
        return at >= 0 and number <= self.lasts[at] and (self.moved is None or number not in self.moved)

    def live(self, acked: NumberRanges) -> LiveRun:
        """What is left in a queue that has acknowledged those."""
        first, last = self.firsts[0], self.lasts[-1]
        if self.moved is not None:
            gone = NumberRanges()
            for span in chain(acked.within(first, last), self.moved):
                gone.add(*span)
            acked = gone
        if not acked.touches(first, last):
            if self._all is None or self._all.messages != len(self.lengths):
                told = (len(self.lengths), sum(self.lengths), self.expires, self.arrival)
                self._all = LiveRun(self.firsts, self.lasts, *told)
            return self._all  # one for all queues
        firsts, lasts = array("Q"), array("Q")
        count = size = 0
        for first, last, start in zip(self.firsts, self.lasts, self.starts, strict=True):
            for low, high in acked.gaps(first, last):
                firsts.append(low)
                lasts.append(high)
                count += high - low + 1
                size += sum(self.lengths[start + low - first : start + high - first + 1])
        return LiveRun(firsts, lasts, count, size, self.expires if count else 0, self.arrival)


class _Span:
    """Between which numbers the messages of one segment lie that did not come as copies."""

    __slots__ = ("first", "last", "segment")

    def __init__(self, segment: int, first: int, last: int) -> None:
        self.segment, self.first, self.last = segment, first, last


class PagedPuts:
    """All of them, and what was acknowledged since they came here."""

    def __init__(self) -> None:
        self.by_segment: dict[int, list[Batch]] = {}
        self._open: dict[tuple[ReachedQueues, bool], Batch] = {}
        self._open_segment = 0
        self._acked: dict[int, NumberRanges] = {}
        self._spans: list[_Span] = []
        self._span_firsts: list[int] = []
        self._copies: dict[int, _Span] = {}
        self._highest = 0

    def extend(
        self,
        segment: int,
        queues: ReachedQueues,
        numbers: Sequence[int],
        lengths: Sequence[int],
        arrival: int,
        expires: int,
        *,
        is_copied: bool = False,
    ) -> None:
        """Messages with ascending numbers. What is taken in of one segment after that of another is a batch anew."""
        if not queues.known:
            return
        if segment != self._open_segment:
            self._open.clear()
            self._open_segment = segment
        key = queues, is_copied
        batch = self._open.get(key)
        if batch is None or len(batch.lengths) >= BATCH or numbers[0] <= batch.lasts[-1]:
            batch = self._open[key] = Batch(segment, queues, is_copied=is_copied)
            self.by_segment.setdefault(segment, []).append(batch)
        batch.extend(numbers, lengths, arrival, expires)
        self._note_span(segment, numbers[0], numbers[-1], is_copied=is_copied)

    def extend_run(self, segment: int, queues: ReachedQueues, run: PutRun) -> None:
        """As `extend`, for what a digest says of messages that are no copies."""
        if not queues.known:
            return
        if segment != self._open_segment:
            self._open.clear()
            self._open_segment = segment
        key = queues, False
        batch = self._open.get(key)
        if batch is None or len(batch.lengths) + len(run.lengths) > BATCH or run.firsts[0] <= batch.lasts[-1]:
            batch = self._open[key] = Batch(segment, queues, is_copied=False)
            self.by_segment.setdefault(segment, []).append(batch)
        batch.extend_run(run)
        self._note_span(segment, run.firsts[0], run.lasts[-1], is_copied=False)

    def _note_span(self, segment: int, first: int, last: int, *, is_copied: bool) -> None:
        spans = self._spans
        is_late = bool(spans) and segment < spans[-1].segment  # it was in memory while later segments were read
        if is_copied or is_late:
            known = self._copies.setdefault(segment, _Span(segment, first, last))
            known.first, known.last = min(known.first, first), max(known.last, last)
        elif spans and spans[-1].segment == segment:
            # Copies look like new messages where nothing is left of what was before; they need not ascend.
            known = spans[-1]
            known.first, known.last = min(known.first, first), max(known.last, last)
            self._span_firsts[-1] = known.first
        else:
            spans.append(_Span(segment, first, last))
            self._span_firsts.append(first)
        self._highest = max(self._highest, last)

    def ack(self, incarnation: int, numbers: Sequence[int]) -> set[int]:
        """Ascending numbers have left a queue. Returns the segments in which they, or others near them, lie."""
        first, last = numbers[0], numbers[-1]
        if first > self._highest:
            return set()
        acked = self._acked.get(incarnation)
        if acked is None:
            acked = self._acked[incarnation] = NumberRanges()
        acked.add_all(numbers)
        at = max(bisect_right(self._span_firsts, first) - 1, 0)
        named: set[int] = set()
        while at < len(self._spans) and self._spans[at].first <= last:
            if self._spans[at].last >= first:
                named.add(self._spans[at].segment)
            at += 1
        named.update(each.segment for each in self._copies.values() if each.first <= last and each.last >= first)
        return named

    def holds(self, incarnation: int, number: int) -> bool:
        """Whether the message is here, and the queue has not acknowledged it."""
        batch = self._batch_of(number)
        return batch is not None and incarnation in batch.queues.known and not self._has_acked(incarnation, number)

    def segment_of(self, number: int) -> int:
        """Where the newest put of the message lies; 0 if it is not here."""
        batch = self._batch_of(number)
        return 0 if batch is None else batch.segment

    def copies(self) -> Iterator[tuple[int, int, int]]:
        """First and last numbers, and the segment, of what lies behind higher numbers, because it was copied."""
        for segment in self._copies:
            for batch in self.by_segment[segment]:
                if batch.is_copied:
                    for first, last in zip(batch.firsts, batch.lasts, strict=True):
                        for low, high in (batch.moved or _NONE).gaps(first, last):
                            yield low, high, segment

    def take(self, number: int) -> tuple[int, tuple[int, ...]] | None:
        """A later put of the message was read, or it is described elsewhere: forget it here.

        Returns its segment, and the queues that have not acknowledged it; None if there is no such message or queue.
        """
        batch = self._batch_of(number)
        if batch is None:
            return None
        waits_in = tuple(each for each in batch.queues.incarnations if not self._has_acked(each, number))
        if not waits_in:
            return None
        if batch.moved is None:
            batch.moved = NumberRanges()
        batch.moved.add(number, number)
        return batch.segment, waits_in

    @property
    def batches(self) -> Iterator[Batch]:
        """All of them, by segment."""
        return chain.from_iterable(self.by_segment.values())

    def live(self, batch: Batch, incarnation: int) -> LiveRun:
        """What the queue still has of a batch."""
        return batch.live(self._acked.get(incarnation, _NONE))

    def _has_acked(self, incarnation: int, number: int) -> bool:
        return number in self._acked.get(incarnation, _NONE)

    def _batch_of(self, number: int) -> Batch | None:
        if number > self._highest:
            return None
        segments = {each.segment for each in self._copies.values() if each.first <= number <= each.last}
        at = bisect_right(self._span_firsts, number) - 1
        if at >= 0:
            segments.add(self._spans[at].segment)
        near = (batch for segment in segments for batch in self.by_segment[segment])
        return next((batch for batch in near if number in batch), None)


class RunChain:
    """The runs of one queue, as they come from batches. Those that follow each other become one if none expires."""

    def __init__(self) -> None:
        self._runs: list[LiveRun] = []

    def add(self, run: LiveRun) -> None:
        """Take in messages of another batch."""
        last = self._runs[-1] if self._runs else None
        if (
            last is None
            or last.expires
            or run.expires
            or run.firsts[0] <= last.lasts[-1]
            or len(last.firsts) + len(run.firsts) > BATCH
        ):
            self._runs.append(run)
            return
        firsts, lasts = last.firsts, last.lasts
        if run.firsts[0] == lasts[-1] + 1:
            firsts, lasts = firsts + run.firsts[1:], lasts[:-1] + run.lasts
        else:
            firsts, lasts = firsts + run.firsts, lasts + run.lasts
        messages, size = last.messages + run.messages, last.bytes + run.bytes
        self._runs[-1] = LiveRun(firsts, lasts, messages, size, 0, min(last.arrival, run.arrival))

    def ascending(self) -> list[LiveRun]:
        """The runs by number, with those made one whose numbers lie between each other's."""
        joined: list[LiveRun] = []
        for run in sorted(self._runs, key=_first):
            if joined and run.firsts[0] < joined[-1].lasts[-1]:
                joined[-1] = _merged(joined[-1], run)
            else:
                joined.append(run)
        return joined


def _first(run: LiveRun) -> int:
    return run.firsts[0]


def _merged(one: LiveRun, other: LiveRun) -> LiveRun:
    ranges = NumberRanges()
    for span in sorted((*zip(one.firsts, one.lasts, strict=True), *zip(other.firsts, other.lasts, strict=True))):
        ranges.add(*span)
    return LiveRun(
        *ranges.ends(),
        one.messages + other.messages,
        one.bytes + other.bytes,
        min((each for each in (one.expires, other.expires) if each), default=0),
        min(one.arrival, other.arrival),
    )
