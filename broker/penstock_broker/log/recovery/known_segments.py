"""What a log says of its segments, and so which of them have no file although nobody let go of them. Pure.

A segment is let go of only behind a synced checkpoint, and after a record that says so is synced. So there must be a
file for each segment that the last complete checkpoint names, and for each that was begun since, unless a record says
that it is over. Without any complete checkpoint none was let go of.

Source: docs/decisions/086-lost-segments.md.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from penstock_broker.log.format.blocks import BlockHeader
from penstock_broker.log.format.records import SegmentState


@dataclass(slots=True)
class KnownSegments:
    """Collects what the records say of segments, in log order."""

    states: dict[int, SegmentState] = field(default_factory=dict[int, SegmentState])
    """Those that the last complete checkpoint names; none if an older release wrote it."""
    over: set[int] = field(default_factory=set[int])
    """Those of which a record says that they are over."""
    checkpoint: int = 0
    """The identifier of the last complete checkpoint."""
    _restated: dict[int, SegmentState] = field(default_factory=dict[int, SegmentState])

    def note(self, state: SegmentState) -> None:
        """The next record of this kind."""
        if state.is_over:
            self.over.add(state.segment)
        else:
            self._restated[state.segment] = state

    def begin_checkpoint(self) -> None:
        """A checkpoint begins: it names the segments once more."""
        self._restated = {}

    def end_checkpoint(self, identifier: int) -> None:
        """The checkpoint that was begun last is complete."""
        self.states, self._restated, self.checkpoint = self._restated, {}, identifier

    def missing(self, found: Collection[int], newest: int, checkpoint: int) -> list[int]:
        """The segments below `newest` without a file that nobody let go of, ascending.

        `found`: those with a file. `checkpoint`: the segment in which the last complete checkpoint begins; 0 if there
        is none.
        """
        if checkpoint and not self.states:  # an older release does not say which it let go of
            return []
        needed = self.states.keys() | set(range(checkpoint or 1, newest))
        return sorted(number for number in needed - self.over - set(found) if number < newest)


def synced_segments(missing: Iterable[int], ends: Mapping[int, BlockHeader], claimed: int) -> list[int]:
    """Those of the segments whose first block was synced. `ends`: by segment, the last block of each other one.

    The others got their names in the last moments before a loss of power, and lost them again by it.
    """
    last = {
        number: ends[max(before)].sequence for number in missing if (before := [each for each in ends if each < number])
    }
    return [number for number in missing if last.get(number, -1) < claimed]
