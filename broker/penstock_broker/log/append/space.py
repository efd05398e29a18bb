"""Room in the log: whether publishers may use more of it, and the idle work that makes room.

Source: docs/decisions/043-reserve-for-acks.md.
"""

from collections.abc import Callable

from penstock_broker.log.append.digest_writer import DigestWriter
from penstock_broker.log.append.recycler import Recycler
from penstock_broker.log.compaction.ack_compaction import AckCompaction, CompactedAcks
from penstock_broker.log.compaction.message_compaction import Compaction
from penstock_broker.log.compaction.turn_share import share_ms
from penstock_broker.log.disk.files import FileLayer
from penstock_broker.log.disk.spare_segments import SpareSegments
from penstock_broker.log.write.sync import Sync
from penstock_broker.log.write.writer import SegmentWriter

_FULL_RETRY_MS = 1000


class NoRoom(Exception):
    """The log takes no messages now: the disk is full but for the reserve, or the log has failed."""


class Space:
    """Recycles segments of which nothing is needed, has acks compacted, and fills spare segments ahead of need."""

    def __init__(
        self,
        files: FileLayer,
        writer: SegmentWriter,
        spares: SpareSegments,
        acks: AckCompaction,
        sync: Sync,
        digests: DigestWriter,
        clock: Callable[[], int],
        timer: Callable[[], float],
    ) -> None:
        """`clock`: milliseconds since 1970. `timer`: seconds of any beginning, which are never put back."""
        self._writer, self._spares, self._acks, self._sync = writer, spares, acks, sync
        self._messages = Compaction(files, writer.usage, writer, self._may_copy, clock)
        self._digests = digests
        self._recycler = Recycler(files, writer, spares, sync, digests.forget)
        self._clock, self._timer = clock, timer
        self._gathered: CompactedAcks | None = None
        """Acks that are to be written once more, and wait for room."""
        self._fill_again_ms = 0
        self._has_deleted = False
        """A segment was deleted since the last attempt to get more space from the disk."""

    @property
    def full(self) -> bool:
        """Whether the last attempt to get more space from the disk failed."""
        return self._spares.full

    def accepts_publishing(self) -> bool:
        """False when the disk is full but for the reserve, which is kept for draining, and after a failure."""
        if self._writer.failed is not None:
            return False
        if not self._spares.full or len(self._spares) > self._spares.reserve:
            return True
        current = self._writer.usage.segments[-1]
        return len(self._spares) == self._spares.reserve and current.end < current.size - current.size // 8

    def takes_topology(self) -> bool:
        """Whether more may be declared: also when the disk is full, but not in the last spare segment, which is for
        acks, nor after a failure.
        """
        return self._writer.failed is None and not (self._spares.full and len(self._spares) <= 1)

    def makes_room(self) -> bool:
        """Whether publishers should wait: no more space is left than the reserve, but some will be given back though
        nobody consumes. It is known ahead of a refusal, so that what was read before can still be taken.
        """
        if not self._spares.full or self._writer.failed is not None or len(self._spares) > self._spares.reserve:
            return False
        if self._has_deleted or self._spares.is_renaming or self._compaction_wants_work():
            return True
        return self._recycler.will_free

    @property
    def prepared_bytes(self) -> int:
        """Bytes that publishers may still fill without more space from the disk, from which they are taken already."""
        spares, writer = self._spares, self._writer
        ready = max(len(spares) - spares.reserve, 0) * spares.size
        return ready + spares.filled_bytes + max(writer.usage.segments[-1].room, 0)

    def has_room(self, size: int) -> bool:
        """Whether `size` more bytes fit without the reserve. Makes the spare segments that this takes, if it can."""
        writer = self._writer
        usable = writer.usage.segments[-1].room
        each = writer.capacity - writer.capacity // 4  # some of a segment's end may stay empty
        try:
            while usable + max(len(self._spares) - self._spares.reserve, 0) * each < size:
                if not self._spares.fill_one():
                    return False
        except OSError as error:
            self._fail(error)
            return False
        return True

    def wants_work(self) -> bool:
        """Whether `work` has something to do now."""
        if self._writer.failed is not None:
            return False
        return (
            self._spares_want_work()
            or self._acks_want_work()
            or self._messages_want_work()
            or self._digests.wants_work(is_full=self._spares.full)
        )

    def share_ms(self, spent_ms: float) -> float:
        """Milliseconds that `work` may take of a turn that has taken `spent_ms` already."""
        segments = len(self._writer.usage.segments)
        return share_ms(segments, self._messages.alive, spent_ms, is_full=self._spares.full)

    def _spares_want_work(self) -> bool:
        # Compaction goes on while a spare or its name is synced: else a log that grows would be compacted the less.
        if self._sync.is_filling_spare:
            return self._is_late()
        return self._recycler.wants_work or self._may_fill()

    def _is_late(self) -> bool:
        """Whether a turn may have to fill a whole segment soon, because much is written."""
        return self._spares.lag(self._writer.usage.segments[-1].end) > 0

    def _is_time_to_fill(self) -> bool:
        # More than the whole wait to go: the clock was put back, and the time noted before says nothing.
        return not 0 < self._fill_again_ms - self._clock() <= _FULL_RETRY_MS

    def work(self, budget_ms: float, first_message: int) -> None:
        """Recycle one segment, compact acks or messages, or fill a spare segment, for about `budget_ms`.

        A failure fails the log.
        `first_message`: no put that is still to be written has a lower number.
        """
        if not self.wants_work():
            return
        try:
            self._work(budget_ms / 1000, first_message)
        except OSError as error:
            self._fail(error)

    def _work(self, budget: float, first_message: int) -> None:
        begin = self._timer()

        def more() -> bool:
            return self._timer() < begin + budget

        def half() -> bool:
            return self._timer() < begin + budget / 2

        if self._provide_spare(first_message, more, half) and not more():
            return
        if self._acks_want_work():
            acks = self._gathered = self._gathered or self._acks.work(more)
            if acks is not None and self._may_restate(acks.size):
                self._gathered = None
                self._acks.write(self._writer, acks, first_message)
        elif self._messages_want_work():
            self._messages.work(more, first_message)
        elif self._digests.wants_work(is_full=self._spares.full):
            self._digests.work(more)

    def _provide_spare(self, first_message: int, more: Callable[[], bool], half: Callable[[], bool]) -> bool:
        """Recycle segments, or fill a spare further while `more()`, or only `half()` if there is something to
        compact: else a log that grows would have no time for that, and grow further. As far as the newest segment is
        written the spare is filled in any case: a turn that wrote much fills much. Whether something was done.
        """
        is_syncing = self._sync.is_filling_spare
        if is_syncing and not self._is_late():
            return False
        if not is_syncing and self._recycler.wants_work:
            if self._recycler.work(first_message):
                self._has_deleted, self._fill_again_ms = True, 0
            return True
        compacts = self._compaction_wants_work()
        is_short = len(self._spares) <= self._spares.reserve  # a turn might have to fill one
        if not self._may_fill() or (compacts and not is_short):
            return False
        share = half if compacts else more
        handle = self._spares.fill(lambda: self._is_late() or (share() and not is_syncing))
        self._has_deleted &= handle is not None and self._spares.full
        self._fill_again_ms = self._clock() + _FULL_RETRY_MS if handle is None else 0
        if handle is None:
            return False
        self._sync.request_for_spare(handle)
        return True

    def _compaction_wants_work(self) -> bool:
        return self._acks_want_work() or self._messages_want_work()

    def _acks_want_work(self) -> bool:
        writer = self._writer
        if self._gathered is not None:
            return self._may_restate(self._gathered.size)
        # One compaction at a time: each relies on it that the acks it reads stay where they are. One that waits for
        # room has read all of them, and what these keep may be the room.
        if self._messages.is_active and not self._messages.waits_for_room:
            return False
        return self._acks.wants_work(writer.schedule.kept_from, writer.synced, is_full=self._spares.full)

    def _messages_want_work(self) -> bool:
        if self._acks.is_active:
            return False
        return self._messages.wants_work(self._writer.schedule.kept_from, is_full=self._spares.full)

    def _may_fill(self) -> bool:
        return self._spares.lacking and (not self._spares.full or self._is_time_to_fill())

    def _may_copy(self, size: int) -> bool:
        """Whether compaction may write `size` bytes of messages: a spare segment is left for acks and topology."""
        spares, is_full = len(self._spares), self._spares.full
        if 2 * size < self._writer.usage.segments[-1].room:
            return spares > 0 or not is_full  # else the rest is for acks and topology
        return spares > (1 if is_full else self._spares.reserve)

    def _may_restate(self, size: int) -> bool:
        """Whether `size` bytes of acks may be written once more: they leave room for those that consumers send before
        they free a segment."""
        room = self._writer.usage.segments[-1].room
        return size <= room or 4 * size <= 3 * len(self._spares) * self._writer.capacity

    def close(self) -> None:
        """Close the files of segments that are over, and the spare ones."""
        self._recycler.close()
        self._spares.close()

    def _fail(self, error: OSError) -> None:
        self._writer.fail(f"preparing segments failed: {error}")
