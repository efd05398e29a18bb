"""What of the log is synced: begins each fdatasync and takes note of its end.

Names of files are synced like their content, by the back end: that a segment has its name belongs to what a promise
about the first block in it depends on. Source: docs/decisions/042-failed-fdatasync.md.
"""

from typing import Final

from penstock_broker.log.disk.spare_segments import SpareSegments
from penstock_broker.log.disk.syncers import Done, Syncer
from penstock_broker.log.write.writer import SegmentWriter

_SPARE: Final = -1
"""Token for the fdatasync of a spare segment; those that are not negative are sequences of blocks."""
_NEW_NAME: Final = -2
"""Token for the names of the folder, when a segment was begun."""
_SPARE_NAME: Final = -3
"""The same, when a segment has become a spare or was deleted."""
_FAILURE_FILE: Final = -4
"""The same, when the log has failed, for the file that says so. How it ends means nothing."""


class Sync:
    """At most one fdatasync of blocks is under way at a time, with the names of segments that these began, and beside
    it one of what becomes a spare segment."""

    def __init__(self, writer: SegmentWriter, spares: SpareSegments, syncer: Syncer) -> None:
        self._writer, self._spares, self._syncer = writer, spares, syncer
        self._awaited = 0
        """Syncs that a promise about `_sequence` still waits for."""
        self._sequence = 0
        self.is_filling_spare = False
        """The zeros of a spare segment are being synced, or the name of one."""
        self._next_spares: set[int] = set()
        """Handles of spare segments that were filled further meanwhile."""
        writer.failure_file.when_made = self._request_for_failure_file

    @property
    def descriptor(self) -> int:
        """Becomes readable when `collect` has something to take note of."""
        return self._syncer.descriptor

    def request(self) -> bool:
        """Start an fdatasync of what is written, unless one is under way, nothing is new, or the log has failed: False.
        `descriptor` tells its end.
        """
        writer = self._writer
        if self._awaited or writer.synced == writer.sequence or writer.failed is not None:
            return False
        self._awaited, self._sequence = 1, writer.sequence
        handles = tuple(writer.dirty)
        writer.dirty.clear()
        if writer.has_new_name:
            writer.has_new_name = False
            self._awaited = 2
            self._syncer.submit_folder(_NEW_NAME, writer.folder)
        self._syncer.submit(writer.sequence, handles)
        return True

    def request_for_spare(self, handle: int) -> None:
        """Start an fdatasync of a spare segment, behind the one that is under way. Nothing may be recycled until both
        have ended, so that the handle stays open.
        """
        self._next_spares.add(handle)
        if not self.is_filling_spare:
            self._request_for_next_spares()

    def request_for_names(self) -> None:
        """A segment has become a spare, or was deleted: start an fsync of the folder, and hand the spare out then."""
        self.is_filling_spare = True
        self._syncer.submit_folder(_SPARE_NAME, self._writer.folder)
        if self._syncer.is_immediate:
            self.collect()

    @property
    def may_have_ended(self) -> bool:
        """A sync of blocks is under way, and something has ended that `collect` would take note of."""
        return bool(self._awaited) and self._syncer.may_be_done()

    def collect(self) -> int:
        """Take note of every sync that has ended: `descriptor` is readable then. A failed one fails the log, and is
        never repeated. Returns the last synced block.
        """
        self._take(self._syncer.done())
        return self._writer.synced

    def wait(self) -> None:
        """Wait until all that is written is synced, or the log has failed."""
        while self._writer.synced < self._writer.sequence and self._writer.failed is None:
            self.request()
            self._take(self._syncer.wait())

    def close(self) -> None:
        """Wait for what is under way, and give the descriptor back."""
        self._syncer.close()

    def _take(self, done: Done) -> None:
        writer = self._writer
        for token, error in done:
            if token == _FAILURE_FILE:
                continue
            if error is not None:
                writer.fail(f"{'fsync of the folder' if token < _SPARE else 'fdatasync'} failed: {error}")
            if token in (_SPARE, _SPARE_NAME):
                self.is_filling_spare = False
                if token == _SPARE_NAME and error is None:
                    self._spares.names_are_synced()
                if self._next_spares and writer.failed is None:
                    self._request_for_next_spares()
                continue
            self._awaited -= 1
            if not self._awaited and writer.failed is None:
                writer.note_synced(self._sequence)

    def _request_for_failure_file(self) -> None:
        self._syncer.submit_folder(_FAILURE_FILE, self._writer.folder)

    def _request_for_next_spares(self) -> None:
        self.is_filling_spare = True
        handles, self._next_spares = tuple(self._next_spares), set()
        self._syncer.submit(_SPARE, handles)
