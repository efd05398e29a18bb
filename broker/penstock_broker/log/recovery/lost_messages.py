"""How many messages were lost with a segment, by queue: what the last checkpoint counted, less what is safe. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock_broker.log.format.records import (
    Ack,
    CheckpointBegin,
    Commit,
    Put,
    Record,
    RouteDifference,
    RouteSet,
    SegmentState,
    StagedPut,
    VolatilePut,
)
from penstock_broker.log.format.route_sets import KnownRouteSets


@dataclass(slots=True)
class _Loss:
    """What the rest of the log says of the messages of one lost segment."""

    state: SegmentState
    elsewhere: set[int] = field(default_factory=set[int])
    """Messages that had been copied before the checkpoint: these are not counted in the state."""
    ended: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    """Incarnations and messages whose ack was read before the checkpoint: neither are these."""
    safe: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    """Those that were acknowledged or copied after it."""

    def counts(self) -> dict[int, int]:
        safe: dict[int, int] = {}
        for incarnation, message in self.safe - self.ended:
            if message not in self.elsewhere:
                safe[incarnation] = safe.get(incarnation, 0) + 1
        return {incarnation: max(count - safe.get(incarnation, 0), 0) for incarnation, count in self.state.live}


class LossCount:
    """Counts the messages that were lost with segments: give it all records by `follow`, in log order, then read
    `counts`.

    A message was lost if it lived in the segment when the last complete checkpoint was written, and has not been
    acknowledged or copied since. Of copies in the segment the acks are not known: these are counted all.
    """

    def __init__(self, lost: Iterable[SegmentState], checkpoint: int) -> None:
        """`checkpoint`: the identifier of the last complete one, which says these `lost` states."""
        self._losses = [_Loss(state) for state in lost]
        self._checkpoint, self._is_behind = checkpoint, False
        self._routes = KnownRouteSets()

    def follow(self, records: Iterable[Record]) -> None:
        """The records of the next block."""
        for record in records:
            match record:
                case CheckpointBegin():
                    self._is_behind |= record.identifier == self._checkpoint
                case RouteSet() | RouteDifference():
                    self._routes.define(record)
                case Put():
                    self._put(record)
                case StagedPut() | VolatilePut():
                    self._put(record.put)
                case Commit():
                    self.follow(record.records)
                case Ack():
                    self._acked(record)
                case _:
                    pass

    def counts(self) -> dict[int, int]:
        """By incarnation, how many messages were lost; at most so many if a segment held copies."""
        total: dict[int, int] = {}
        for loss in self._losses:
            for incarnation, count in loss.counts().items():
                total[incarnation] = total.get(incarnation, 0) + count
        return {incarnation: count for incarnation, count in total.items() if count}

    def _put(self, put: Put) -> None:
        for loss in self._losses:
            if not loss.state.first_message <= put.message <= loss.state.last_message:
                continue
            if self._is_behind:
                loss.safe |= {(each, put.message) for each in self._routes.incarnations(put.route_set)}
            else:
                loss.elsewhere.add(put.message)

    def _acked(self, ack: Ack) -> None:
        for loss in self._losses:
            noted = loss.safe if self._is_behind else loss.ended
            first, last = loss.state.first_message, loss.state.last_message
            if isinstance(ack.messages, range):
                within: Iterable[int] = range(max(first, ack.messages.start), min(last + 1, ack.messages.stop))
            else:
                within = (message for message in ack.messages if first <= message <= last)
            noted.update((ack.incarnation, message) for message in within)
