"""Recycles segments of which nothing is needed: first the log says so of each, and once that is synced, its name goes.

So a segment whose file is missing although no record says that it is over was lost, or taken away by somebody.
Source: docs/decisions/086-lost-segments.md.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from penstock_broker.log.disk.files import FileLayer
from penstock_broker.log.disk.spare_segments import SpareSegments
from penstock_broker.log.format.records import SegmentState
from penstock_broker.log.format.segment_states import segment_state_record
from penstock_broker.log.segments.segment import Segment
from penstock_broker.log.write.sync import Sync
from penstock_broker.log.write.writer import SegmentWriter

LOGGER = logging.getLogger(__name__)

MOST_AT_ONCE = 4
"""Segments that one block says to be over."""


class _Leaving(NamedTuple):
    """A segment that no longer counts. Its file is renamed or deleted once block `sequence` is synced."""

    segment: Segment
    sequence: int


class Recycler:
    """The segments that are over, from the moment when nothing is needed of them until their names are gone."""

    def __init__(
        self,
        files: FileLayer,
        writer: SegmentWriter,
        spares: SpareSegments,
        sync: Sync,
        forget: Callable[[Segment], None],
    ) -> None:
        """`forget` is told of each segment whose file goes."""
        self._forget = forget
        self._files, self._writer, self._spares, self._sync = files, writer, spares, sync
        self._leaving: deque[_Leaving] = deque()

    @property
    def wants_work(self) -> bool:
        """Whether `work` has something to do now."""
        return self._may_leave or self._recyclable() is not None

    @property
    def will_free(self) -> bool:
        """Whether space will be given back, now or after a sync."""
        usage, writer = self._writer.usage, self._writer
        if self._leaving or self._recyclable() is not None:
            return True
        return usage.awaits_sync(writer.schedule.kept_from, writer.synced)

    def work(self, first_message: int) -> bool:
        """Do away with one file whose end is synced, or write of which segments nothing is needed any more.

        `first_message`: no put that is still to be written has a lower number. Returns whether a file was deleted.
        Raises OSError.
        """
        if not self._may_leave:
            self._let_go(first_message)
        if not self._may_leave:
            return False
        segment, _ = self._leaving.popleft()
        self._forget(segment)
        is_deleted = self._spares.recycle(segment.path, segment.handle, segment.size)
        self._sync.request_for_names()
        return is_deleted

    def close(self) -> None:
        """Close the files."""
        for each in self._leaving:
            self._files.close(each.segment.handle)

    @property
    def _may_leave(self) -> bool:
        """The record of the first segment's end is synced."""
        return bool(self._leaving) and self._leaving[0].sequence <= self._writer.synced

    def _let_go(self, first_message: int) -> None:
        writer, over = self._writer, list[Segment]()
        while len(over) < MOST_AT_ONCE and (segment := self._recyclable()) is not None:
            writer.usage.remove_segment(segment)
            over.append(segment)
        if not over:
            return
        records = [segment_state_record(SegmentState(each.number, is_over=True)) for each in over]
        if self._has_room(sum(map(len, records))):
            writer.place(list(records), {}, first_message)
            sequence = writer.sequence
        else:  # without this space not even acks could be written; the next checkpoint says that they are gone
            LOGGER.warning("%d segments are recycled without a record of it, because the disk is full", len(over))
            sequence = writer.synced
        self._leaving.extend(_Leaving(each, sequence) for each in over)

    def _has_room(self, size: int) -> bool:
        newest = self._writer.usage.segments[-1]
        return size <= newest.room or len(self._spares) > 0

    def _recyclable(self) -> Segment | None:
        return self._writer.usage.recyclable(self._writer.schedule.kept_from, self._writer.synced)
