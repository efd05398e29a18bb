"""What of the log is synced: begins each fdatasync and takes note of its end.

Source: docs/decisions/042-failed-fdatasync.md.
"""

from penstock_broker.log.syncers import Done, Syncer
from penstock_broker.log.writer import SegmentWriter

_SPARE = -1
"""Token for the fdatasync of a spare segment; the others are sequences of blocks."""


class Sync:
    """At most one fdatasync of blocks is under way at a time, and beside it one of a spare segment's zeros."""

    def __init__(self, writer: SegmentWriter, syncer: Syncer) -> None:
        self._writer, self._syncer = writer, syncer
        self._in_flight = False
        self.is_filling_spare = False
        """The zeros of a spare segment are being synced."""

    @property
    def descriptor(self) -> int:
        """Becomes readable when `collect` has something to take note of."""
        return self._syncer.descriptor

    def request(self) -> None:
        """Start an fdatasync of what is written, unless one is under way, nothing is new, or the log has failed."""
        writer = self._writer
        if self._in_flight or writer.synced == writer.sequence or writer.failed is not None:
            return
        self._in_flight = True
        handles = tuple(writer.dirty)
        writer.dirty.clear()
        self._syncer.submit(writer.sequence, handles)

    def request_for_spare(self, handle: int) -> None:
        """Start an fdatasync of a spare segment."""
        self.is_filling_spare = True
        self._syncer.submit(_SPARE, (handle,))

    def collect(self) -> None:
        """Take note of every fdatasync that has ended. A failed one fails the log: it is never repeated."""
        self._take(self._syncer.done())

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
            if token == _SPARE:
                self.is_filling_spare = False
            else:
                self._in_flight = False
            if error is not None:
                writer.fail(f"fdatasync failed: {error}")
            elif token != _SPARE and writer.failed is None:
                writer.note_synced(token)
