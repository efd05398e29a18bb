"""The acks that a compaction of acks has gathered so far, in little memory, and the records that say them once more.

Per queue and reason they are kept as stretches of consecutive numbers, sorted by blocks of numbers, so that no step
sorts more than one block. Source: docs/decisions/041-segments-and-checkpoint.md.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from penstock_broker.log.format.record_codec import ack_record
from penstock_broker.log.format.records import Ack, EndReason
from penstock_broker.log.segments.segment import Segment, Span

__all__ = ["GatheredAcks"]

Bounds: TypeAlias = "array[int]"
"""The first and the last number of each stretch, one stretch after the other."""

_BLOCK_BITS: Final = 13
"""Numbers with the same higher bits are in one block: 8,192 of them, which take about a millisecond to sort."""
_LONG_RUN: Final = 5
"""Consecutive numbers from which on a range is shorter than a list."""


class GatheredAcks:
    """Acks that name messages in some segments, the `wanted` ones."""

    def __init__(self, wanted: Iterable[Segment]) -> None:
        self.spans = 0
        """How many stretches of numbers are kept, 16 bytes each."""
        self._wanted = _numbers_of(wanted)
        # By queue and reason, and then by block.
        self._found: dict[tuple[int, int], dict[int, Bounds]] = {}

    def add(self, ack: Ack) -> None:
        """Note what the ack says of messages in the wanted segments."""
        for first, last in self._within(ack.messages):
            blocks = self._found.setdefault((ack.incarnation, ack.reason), {})
            for block in range(first >> _BLOCK_BITS, (last >> _BLOCK_BITS) + 1):
                low, high = max(first, block << _BLOCK_BITS), min(last, ((block + 1) << _BLOCK_BITS) - 1)
                blocks.setdefault(block, array("Q")).extend((low, high))
                self.spans += 1

    def restrict(self, wanted: Iterable[Segment]) -> Iterator[None]:
        """Keep only what names messages in these segments, in steps, which may be done at any pace."""
        self._wanted, found = _numbers_of(wanted), self._found
        self._found, self.spans = {}, 0
        for (incarnation, reason), blocks in found.items():
            for bounds in blocks.values():
                for first, last in zip(bounds[::2], bounds[1::2], strict=True):
                    self.add(Ack(incarnation, range(first, last + 1), EndReason(reason)))
                yield

    def records(self, most: int) -> Iterator[bytes | None]:
        """The records that say all of it, with `most` numbers at most in one; None between two steps of little work."""
        for (incarnation, reason), blocks in self._found.items():
            single: list[int] = []
            for span in _joined(self._ascending(blocks)):
                if span is None:
                    yield None
                    continue
                first, last = span
                if last - first + 1 >= _LONG_RUN:
                    yield ack_record(incarnation, range(first, last + 1), EndReason(reason))
                    continue
                single += range(first, last + 1)
                if len(single) >= most:
                    yield ack_record(incarnation, single[:most], EndReason(reason))
                    del single[:most]
            if single:
                yield ack_record(incarnation, single, EndReason(reason))

    def _ascending(self, blocks: dict[int, Bounds]) -> Iterator[Span | None]:
        for block in sorted(blocks):
            bounds = blocks[block]
            yield from sorted(zip(bounds[::2], bounds[1::2], strict=True))
            yield None

    def _within(self, messages: Sequence[int]) -> Iterator[Span]:
        """Of ascending numbers those in wanted segments, as stretches."""
        low = max(0, bisect_right(self._wanted, (messages[0] + 1,)) - 1)
        for at in range(low, len(self._wanted)):
            first, last = self._wanted[at]
            if first > messages[-1]:
                return
            if isinstance(messages, range):
                if messages[0] <= last:
                    yield max(messages[0], first), min(messages[-1], last)
                continue
            for index in range(bisect_left(messages, first), bisect_right(messages, last)):
                yield messages[index], messages[index]


def _numbers_of(segments: Iterable[Segment]) -> list[Span]:
    """The numbers of all puts in these segments, as ascending stretches."""
    spans: list[Span] = []
    for segment in segments:
        spans += [(segment.first_message, segment.last_message), *segment.copied]
    spans.sort()
    return [span for span in _joined(spans) if span is not None]


def _joined(spans: Iterable[Span | None]) -> Iterator[Span | None]:
    """The same numbers in as few stretches as possible. `spans`: by their first numbers, ascending; None passes."""
    current: Span | None = None
    for span in spans:
        if span is None:
            yield None
        elif current is None or span[0] > current[1] + 1:
            if current is not None:
                yield current
            current = span
        elif span[1] > current[1]:
            current = current[0], span[1]
    if current is not None:
        yield current
