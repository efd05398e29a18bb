"""Writes what one turn of the broker's loop appended, as one block, and a checkpoint behind it when one is due."""

from collections.abc import Callable

from penstock_broker.log.append.appender import Appender
from penstock_broker.log.disk.spare_segments import SpareSegments
from penstock_broker.log.segments.kept_segments import kept_segments
from penstock_broker.log.segments.segment_usage import SegmentUsage
from penstock_broker.log.write.checkpoint import Checkpoint, Numbers
from penstock_broker.log.write.writer import SegmentWriter


class TurnWriter:
    """A failed write fails the log: see `SegmentWriter.fail`."""

    def __init__(
        self,
        appender: Appender,
        writer: SegmentWriter,
        usage: SegmentUsage,
        numbers: Numbers,
        checkpoint: Checkpoint,
        spares: SpareSegments,
    ) -> None:
        self._appender, self._writer, self._usage = appender, writer, usage
        self._numbers, self._checkpoint, self._spares = numbers, checkpoint, spares

    def write(self) -> int:
        """Once a turn: write everything appended as one block. Returns the sequence on which a promise about it
        depends.

        After a failure nothing is written, and the sequence returned is one that is never synced.
        """
        writer, usage = self._writer, self._usage
        if usage.pending.spreads:
            usage.count_pending()
        if writer.failed is None:
            sequence = self.write_records()
        else:
            self._appender.clear()
            sequence = writer.sequence + 1
        if writer.routes.released:
            writer.routes.forget_released()
        if writer.schedule.segment_begun and writer.failed is None:
            self._write_checkpoint()  # also if there was no record: parts of bodies may have begun segments
        return writer.sequence if sequence is None else sequence

    def write_records(self) -> int | None:
        """As `write`, but never a checkpoint behind it. None if there is nothing to write."""
        turn = self._appender.take_turn()
        if turn is None:
            return None
        writer, numbers, usage = self._writer, self._numbers, self._usage
        lasting = writer.lasting
        try:
            touched = writer.place(turn.records, turn.puts, numbers.first_unwritten, turn.other_bytes)
        except OSError as error:
            writer.fail(f"writing failed: {error}")
            return writer.sequence + 1
        sequence = writer.sequence
        if turn.volatile and turn.volatile == len(turn.records):  # nothing of it is to outlive the process
            writer.lasting = lasting
        numbers.first_unwritten = numbers.message
        for message, route_set, body in turn.bodies:  # from now on the messages that name bodies keep them
            usage.hold_body(message, writer.routes.incarnations[route_set], body)
        if turn.acked:
            named = usage.ack_all(turn.acked, sequence)
            for segment in touched:
                if named != {segment.number}:  # an ack stands behind its put: never in an older segment than that
                    segment.acks_into |= {number for number in named if number < segment.number}
        return sequence

    def _write_checkpoint(self) -> None:
        """A segment was begun: write a checkpoint, if it takes little beside what was written since the last one.

        Little is an eighth, or half when the disk is full, because then it is urgent to free segments; but there it has
        to leave room for acks.
        """
        schedule = self._writer.schedule
        schedule.segment_begun = False
        records = self._checkpoint.records()
        size = sum(map(len, records))
        self._spares.reserve_for(size, self._writer.capacity)
        if size * (2 if self._spares.full else 8) <= schedule.written:
            kept = self._kept_segments()
            if not self._spares.full or self._leaves_room([*records, *kept]):
                self._write_as_checkpoint(records, kept)

    def _leaves_room(self, records: list[bytes]) -> bool:
        """Whether a checkpoint leaves a spare segment, or half of the last one."""
        begun, spares = self._writer.segments_for(records), len(self._spares)
        is_small = sum(map(len, records)) < self._writer.capacity // 2
        return not begun or begun < spares or (is_small and begun == spares)

    def keep_room(self) -> None:
        """Keep room for the checkpoint that there would be now."""
        self._spares.reserve_for(sum(map(len, self._checkpoint.records())), self._writer.capacity)

    def write_checkpoint_if(self, has_room: Callable[[int], bool]) -> None:
        """Write a checkpoint whatever was written since the last one, if there is room for so many bytes."""
        records, kept = self._checkpoint.records(), self._kept_segments()
        if has_room(sum(map(len, (*records, *kept)))):
            self._write_as_checkpoint(records, kept)

    def _kept_segments(self) -> list[bytes]:
        return kept_segments(self._usage, self._writer.segment_bytes)

    def _write_as_checkpoint(self, records: list[bytes], kept: list[bytes]) -> None:
        numbers = self._numbers
        records.insert(0, numbers.reserve())  # only here: what is reserved has to stand in the log
        records += kept
        try:
            self._writer.write_checkpoint(records, numbers.first_unwritten)
        except OSError as error:
            self._writer.fail(f"writing failed: {error}")
