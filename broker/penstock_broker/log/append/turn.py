"""Writes what one turn of the broker's loop appended, as one block, and a checkpoint behind it when one is due."""

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
        """Write everything appended as one block. Returns the sequence on which a promise about it depends.

        After a failure nothing is written, and the sequence returned is one that is never synced.
        """
        writer, appender = self._writer, self._appender
        self._usage.count_pending()
        if writer.failed is not None:
            appender.clear()
            writer.routes.forget_released()
            return writer.sequence + 1
        sequence = None if appender.has_nothing else self.write_records()
        writer.routes.forget_released()
        if writer.failed is None:
            self._write_checkpoint()  # also if there was no record: parts of bodies may have begun segments
        return writer.sequence if sequence is None else sequence

    def write_records(self) -> int | None:
        """As `write`, but never a checkpoint behind it. None if there is nothing to write."""
        turn = self._appender.take_turn()
        if turn is None:
            return None
        writer, numbers = self._writer, self._numbers
        lasting = writer.lasting
        try:
            touched = writer.place(turn.records, turn.puts, numbers.first_unwritten, turn.other_bytes)
        except OSError as error:
            writer.fail(f"writing failed: {error}")
            return writer.sequence + 1
        sequence = writer.sequence
        if not turn.lasts:
            writer.lasting = lasting
        numbers.first_unwritten = numbers.message
        for message, route_set, body in turn.bodies:  # from now on the messages that name bodies keep them
            self._usage.hold_body(message, writer.routes.incarnations[route_set], body)
        if turn.acks:
            named = self._usage.ack_all(turn.acks, sequence)
            for segment in touched:  # an ack stands behind its put, so it never lies in an older segment than that
                segment.acks_into |= {number for number in named if number < segment.number}
        return sequence

    def _write_checkpoint(self) -> None:
        """Write a checkpoint if a segment was begun, and if it takes little beside what was written since the last one.

        Little is an eighth, or half when the disk is full, because then it is urgent to free segments.
        """
        writer, schedule = self._writer, self._writer.schedule
        if not schedule.segment_begun:
            return
        schedule.segment_begun = False
        records = self._checkpoint.records()
        if sum(map(len, records)) * (2 if self._spares.full else 8) > schedule.written:
            return
        records.insert(0, self._numbers.reserve())  # only here: what is reserved has to stand in the log
        records += kept_segments(self._usage, writer.segment_bytes)
        try:
            writer.write_checkpoint(records, self._numbers.first_unwritten)
        except OSError as error:
            writer.fail(f"writing failed: {error}")
