"""The ledger folder: takes polls, seals segments, lists them, deletes old ones, and survives restarts and full disks.

Synchronous; the caller keeps it off the event loop. One thread appends, and another may merge old segments meanwhile
(`merge_old`). Time is an argument. It knows nothing of brokers or HTTP. Source: docs/reference/lag-job.md, "The
ledger"; docs/decisions/063-ledger.md, docs/decisions/048-observer.md.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from penstock_api.failure import CannotRun
from penstock_api.ledger_format import HOUR_MS, SegmentName
from penstock_api.observer_api import SegmentInfo
from penstock_observer.ledger_folder import is_gone, open_folder
from penstock_observer.merge_failures import MergeFailures, causes_of, named
from penstock_observer.merge_plan import Mergeable, contained, plan_merge
from penstock_observer.observed_time import longest_gap_ms
from penstock_observer.open_segment import LastHistograms, Life, OpenSegment
from penstock_observer.parquet import write_segment
from penstock_observer.retention import KeptSegment, RetentionLimits, allowed_bytes, next_bytes, surplus
from penstock_observer.rows import BrokerRun, Poll, RowOrigin
from penstock_observer.segment_merge import Merged, MergeRefused, SegmentDamaged, merge_segments
from penstock_observer.volume import VOLUME_FAULTS, VolumeSpace, volume_space

__all__ = ["Ledger", "LedgerFull", "SealLimits", "WriteSegment"]

log = logging.getLogger(__name__)

WriteSegment = Callable[[Path, SegmentName, Any], int]
"""Writes a table of rows under a name and returns the size of the file."""

_Life = tuple[BrokerRun, int]
"""The run of the broker, and the hour."""

NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)

HELD_SEGMENTS: Final = 4
"""While the disk can't be written, rows for this many segments are kept in memory; if there are more, they are
dropped.
"""


@dataclass(frozen=True, slots=True)
class SealLimits:
    """A segment is sealed when it reaches the first of these limits; also at each full hour, when the epoch changes,
    and when the observer ends.
    """

    seconds: float
    rows: int
    bytes: int


class LedgerFull(Exception):
    """A segment could not be written, and its rows are kept for the next attempt; or the folder can't be used yet. The
    message says why and what to do.
    """


class Ledger:
    """One ledger folder, opened for writing. Only one process may have it open.

    Raises CannotRun if the folder can't be made or read, or if another process has it open. If only its volume is full,
    read-only or broken, it has no segments yet, and is opened with the first poll that finds the volume mended. Files
    of other names are left alone; hidden files that an earlier process left half written are removed; unreadable
    segments are reported in the log, never listed, and deleted by age like all others.
    """

    def __init__(
        self,
        folder: Path,
        writer: RowOrigin,
        rolling: SealLimits,
        limits: RetentionLimits,
        write: WriteSegment = write_segment,
        measure: Callable[[Path], VolumeSpace] = volume_space,
        reserve: Callable[[], int] = lambda: 0,
    ) -> None:
        """`reserve` says how many bytes of the volume have to stay free for others."""
        self.folder = folder
        self.dropped_rows = 0
        self.failed_writes = 0
        # These three are replaced, never changed, so that the event loop may read them while a thread appends.
        self.segments: tuple[SegmentInfo, ...] = ()  # sealed and readable, in ledger order
        self.damaged: tuple[str, ...] = ()  # file names of segments that can't be used, or not as a whole
        self.bytes = 0  # of all segments on disk
        self._writer = writer
        self._rolling = rolling
        self._limits = limits
        self._write = write
        self._measure = measure
        self._reserve = reserve
        self._lock: int | None = None
        self._sealed: dict[SegmentName, SegmentInfo] = {}
        self._thinned: set[SegmentName] = set()  # of the sealed ones
        self._merge_failures = MergeFailures()
        self._changing = threading.RLock()  # held while any of these change
        self._damaged: dict[SegmentName, KeptSegment] = {}
        self._open: OpenSegment | None = None  # rows in memory, not sealed yet
        self._next_seq = 1
        self._last_histograms: Mapping[Life, LastHistograms] = {}  # what the segment sealed last says of histograms
        self._life: _Life | None = None  # of the rows in memory
        try:
            self._find()
        except OSError as error:
            if error.errno not in VOLUME_FAULTS:
                raise CannotRun(
                    f"the ledger folder {folder} can't be used: {error}.",
                    "Give the observer a folder that it may read and write (--ledger).",
                ) from error
            log.error("%s", self._unusable(error))

    @property
    def waiting_rows(self) -> int:
        """Rows in memory, not sealed yet."""
        return 0 if self._open is None else self._open.rows

    def waiting(self, queue_name: str) -> list[dict[str, Any]]:
        """The rows of a subscription in memory, in their order; may be called while a thread appends."""
        rows = self._open
        return [] if rows is None else rows.rows_of(queue_name)

    @property
    def begins_ms(self) -> int:
        """The earliest time of its rows; 0 if no segment is sealed."""
        return min((segment.first_ms for segment in self.segments), default=0)

    @property
    def interval_ms(self) -> int:
        """Intended time between two polls."""
        return self._writer.interval_ms

    def path_of(self, name: str) -> Path | None:
        """The file of a listed segment; None for any other name, so that no name leads out of the folder."""
        parsed = SegmentName.parse(name)
        return self.folder / name if parsed is not None and parsed in self._sealed else None

    def close(self) -> None:
        """Release the folder for another process. Rows that are not sealed are lost: call `seal` before."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def append(self, poll: Poll) -> None:
        """Add one poll, and seal the segment if it is due. Raises LedgerFull if that failed; the poll stays in memory
        then.
        """
        with self._changing:
            if self._lock is None:
                self._find_now(poll)
            self._append(poll)

    def _append(self, poll: Poll) -> None:
        life = (poll.run, poll.broker.now_ms // HOUR_MS)
        failure: LedgerFull | None = None
        if self._open is not None and (life != self._life or poll.clock_step_ms):
            try:
                self.seal(poll.broker.now_ms)
            except LedgerFull as error:
                failure = error
                self._forget_waiting()  # rows of two epochs, hours or clocks can't share a segment
        if self._open is None:
            self._open, self._life = self._opened(poll, life), life
        self._open.add(poll)
        self._next_seq = self._open.name.last + 1
        if self._is_due(self._open, poll.broker.now_ms):
            self.seal(poll.broker.now_ms)
        if failure is not None:
            raise failure

    def seal(self, now_ms: int) -> None:
        """Delete segments beyond the retention limits, so that there is room, and write the rows in memory as a
        segment. Without rows, only delete.

        Raises LedgerFull if the segment could not be written; the rows stay in memory, up to a bound.
        """
        with self._changing:
            try:
                self._retain(now_ms)
                if self._open is not None:
                    self._seal_rows(self._open)
                    self._retain(now_ms)
            finally:
                self._publish()

    def merge_old(self) -> bool:
        """Merge some old segments into one; False if nothing is due or it failed, which is logged.

        The merged segment has its name before the others lose theirs, and is listed instead of them from then on. After
        a crash in between, the next start deletes the others.
        """
        with self._changing:
            self._merge_failures.begin_round()
            names = self._due_merge()
        if not names:
            return False
        try:
            merged = merge_segments(self.folder, names, self._writer.namespace)
        except (MergeRefused, OSError) as error:
            with self._changing:
                if all(name in self._sealed for name in names):  # else retention has deleted one of them
                    self._not_merged(names, error)
            return False
        with self._changing:
            return self._adopt_merged(merged, names)

    def _not_merged(self, names: Sequence[SegmentName], error: MergeRefused | OSError) -> None:
        """The one that is to blame is left alone, so that the others are merged without it, before it and after it."""
        if isinstance(error, MergeRefused):
            causes = causes_of(names, error.segment)
            self._merge_failures.refused(causes)
            if isinstance(error, SegmentDamaged):
                self._merge_failures.damage(causes)
                self._publish()
            log.error("%s can't be merged: %s", named(causes), error)
            return
        causes = causes_of(names, None if error.filename is None else Path(error.filename).name)
        if self._merge_failures.failed(causes):
            log.error("%s can't be merged: %s; the observer tries again", named(causes), error)

    def _due_merge(self) -> list[SegmentName]:
        """The segments to merge, once there is room for the merged one."""
        candidates = [
            Mergeable(name, info.bytes, info.first_ms, info.last_ms, name in self._thinned)
            for name, info in self._sealed.items()
            if self._merge_failures.allow(name)
        ]
        due = plan_merge(candidates, gap_ms=longest_gap_ms(self.interval_ms))
        if due:
            self._retain(due[-1].last_ms, sum(each.merged_bytes for each in due))
            self._publish()
        return [each.name for each in due] if all(each.name in self._sealed for each in due) else []

    def _adopt_merged(self, merged: Merged, names: Sequence[SegmentName]) -> bool:
        if not all(name in self._sealed for name in names):
            merged.file.discard()
            return True  # what is left may be due
        whole = SegmentName(first=names[0].first, last=names[-1].last, epoch=names[0].epoch)
        inside = [self._sealed[name] for name in names]
        try:
            merged.file.publish()
        except OSError as error:
            merged.file.discard()
            log.error("the merged segment %s can't be published: %s; the observer tries again", whole, error)
            return False
        for name in names:
            if name != whole:
                self._delete(name)
        self._sealed[whole] = SegmentInfo(
            name=str(whole),
            bytes=merged.bytes,
            rows=merged.rows,
            first_ms=min(info.first_ms for info in inside),
            last_ms=max(info.last_ms for info in inside),
        )
        self._thinned.add(whole)
        self._publish()
        return True

    def _opened(self, poll: Poll, life: _Life) -> OpenSegment:
        """A segment in progress, which knows what the one before said, if that was of the same run of the broker."""
        goes_on = self._life is not None and self._life[0] == life[0]
        before: Mapping[Life, LastHistograms] = self._last_histograms if goes_on else {}
        return OpenSegment(self._writer, poll.broker.epoch, self._next_seq, poll.broker.now_ms, before)

    def _is_due(self, rows: OpenSegment, now_ms: int) -> bool:
        return (
            now_ms - rows.opened_ms >= self._rolling.seconds * 1000
            or rows.rows >= self._rolling.rows
            or rows.bytes >= self._rolling.bytes
        )

    def _is_over_bound(self, rows: OpenSegment) -> bool:
        bytes_held, rows_held = HELD_SEGMENTS * self._rolling.bytes, HELD_SEGMENTS * self._rolling.rows
        return rows.bytes > bytes_held or rows.rows > rows_held

    def _seal_rows(self, rows: OpenSegment) -> None:
        name = rows.name
        try:
            size = self._write_making_room(name, rows.table())
        except OSError as error:
            self.failed_writes += 1
            if self._is_over_bound(rows):
                self._forget_waiting()
            raise LedgerFull(
                f"segment {name} could not be written to {self.folder}: {error}. Free space on the ledger volume "
                f"or lower --retain-bytes; {self.waiting_rows} rows wait in memory, {self.dropped_rows} were dropped"
            ) from error
        self._sealed[name] = SegmentInfo(
            name=str(name), bytes=size, rows=rows.rows, first_ms=rows.first_ms, last_ms=rows.last_ms
        )
        self._open, self._last_histograms = None, rows.last_histograms()

    def _write_making_room(self, name: SegmentName, rows: Any) -> int:
        """Size of the written segment. If the volume is full in spite of the room that was kept, the oldest segments
        are deleted until it fits. Raises OSError if it does not fit beside the newest segment either.
        """
        while True:
            try:
                return self._write(self.folder, name, rows)
            except OSError as error:
                there = sorted(self._there(), key=lambda kept: kept.name)
                if error.errno not in NO_SPACE or len(there) < 2 or not self._delete(there[0].name):
                    raise
                log.warning("segment %s is deleted to make room for %s", there[0].name, name)

    def _forget_waiting(self) -> None:
        log.error(
            "the ledger can't be written: %d rows are dropped, and the lag figures have a gap there", self.waiting_rows
        )
        self.dropped_rows += self.waiting_rows
        self._open, self._last_histograms = None, {}  # what only the dropped rows said has to be said again

    def _there(self) -> list[KeptSegment]:
        return [
            *(KeptSegment(name, info.bytes, info.first_ms, info.last_ms) for name, info in self._sealed.items()),
            *self._damaged.values(),
        ]

    def _retain(self, now_ms: int, merging_bytes: int = 0) -> None:
        """Delete what is beyond the limits; of the volume, so many bytes more are kept free for a merged segment."""
        damaged = (*self._damaged, *self._merge_failures.damaged)
        for name in [each for each in damaged if is_gone(self.folder / str(each))]:
            self._delete(name)  # somebody has removed it
        there = self._there()
        limits = replace(self._limits, bytes=self._allowed_bytes(there, merging_bytes))
        for name in surplus(there, limits, now_ms, longest_gap_ms(self.interval_ms)):
            self._delete(name)

    def _allowed_bytes(self, there: Sequence[KeptSegment], merging_bytes: int) -> int:
        sizes = [kept.bytes for kept in sorted(there, key=lambda kept: kept.name)]
        try:
            space, reserve = self._measure(self.folder), self._reserve()
        except OSError as error:
            log.error("the space of the ledger volume can't be read: %s; --retain-bytes alone limits the ledger", error)
            return self._limits.bytes
        return allowed_bytes(self._limits, space, sum(sizes), reserve + next_bytes(sizes, space) + merging_bytes)

    def _delete(self, name: SegmentName) -> bool:
        """False if it could not be deleted."""
        try:
            (self.folder / str(name)).unlink(missing_ok=True)
        except OSError as error:
            log.error("segment %s is to be deleted, but can't be: %s; the observer tries again", name, error)
            return False
        self._sealed.pop(name, None)
        self._damaged.pop(name, None)
        self._thinned.discard(name)
        self._merge_failures.forget(name)
        return True

    def _find(self) -> None:
        """Lock the folder and take over its segments. Raises OSError, or CannotRun if another process has it open."""
        found = open_folder(self.folder, self._writer)
        self._lock = found.lock
        self._sealed, self._damaged, self._thinned = found.sealed, found.damaged, found.thinned
        for name in contained(self._sealed):
            log.info("removing %s, whose rows are in a merged segment", name)
            self._delete(name)
        self._publish()
        self._next_seq = max((name.last for name in (*self._sealed, *self._damaged)), default=0) + 1

    def _find_now(self, poll: Poll) -> None:
        try:
            self._find()
        except OSError as error:
            self.failed_writes += 1
            self.dropped_rows += 1 + len(poll.subscriptions)
            raise LedgerFull(self._unusable(error)) from error
        log.info("the ledger folder %s can be used", self.folder)

    def _unusable(self, error: OSError) -> str:
        return (
            f"the ledger folder {self.folder} can't be used: {error}. Look at its volume; the observer tries again "
            "with each poll, and polls until then are not in the ledger"
        )

    def _publish(self) -> None:
        self.segments = tuple(self._sealed[name] for name in sorted(self._sealed))
        self.damaged = tuple(str(name) for name in sorted({*self._damaged, *self._merge_failures.damaged}))
        self.bytes = sum(info.bytes for info in self.segments) + sum(kept.bytes for kept in self._damaged.values())
