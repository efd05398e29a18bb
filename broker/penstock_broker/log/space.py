"""Room in the log: whether publishers may have more of it, and the idle work that makes some."""

import time
from collections.abc import Callable

from penstock_broker.log.segment_usage import Segment
from penstock_broker.log.ack_compaction import Restating
from penstock_broker.log.spare_segments import Spares
from penstock_broker.log.writer import Writer

_FULL_RETRY_MS = 1000


class Space:
    """Recycles dead segments and fills spares ahead of need. `reserve`: spares that are not for publishers."""

    def __init__(
        self, writer: Writer, spares: Spares, restating: Restating, reserve: int, clock: Callable[[], int]
    ) -> None:
        self._writer, self._spares, self._restating = writer, spares, restating
        self._reserve, self._clock = reserve, clock
        self._fill_again = 0
        self.filling = False
        """A spare's zeros are being synced: nothing more is begun until then."""

    @property
    def full(self) -> bool:
        """Whether the last attempt to get more space failed."""
        return self._spares.full

    def accepts_publishing(self) -> bool:
        """False when the disk is full but for the reserve."""
        if not self._spares.full or len(self._spares) > self._reserve:
            return True
        current = self._writer.living.segments[-1]
        return len(self._spares) == self._reserve and current.end < current.size - current.size // 8

    def has_room(self, size: int) -> bool:
        """Whether `size` bytes more fit without the reserve. Makes the spares that this takes, if there is space."""
        writer = self._writer
        usable = writer.living.segments[-1].room
        each = writer.capacity - writer.capacity // 4  # some of a segment's end may stay empty
        while usable + max(len(self._spares) - self._reserve, 0) * each < size:
            if not self._spares.fill_one():
                return False
        return True

    def wants_work(self) -> bool:
        """Whether `work` has something to do now."""
        if self.filling:
            return False
        if self._dead() is not None or self._restating.wants_work(self._writer.kept_from, self._writer.synced):
            return True
        return self._spares.lacking and (not self._spares.full or self._clock() >= self._fill_again)

    def work(self, budget_ms: float, first_message: int) -> int | None:
        """Recycle one dead segment, or gather acks, or fill a spare by a slice; the handle to sync, if any.

        `first_message`: no put that is to come has a lower number. Raises OSError.
        """
        dead = self._dead()
        if dead is not None:
            self._writer.living.remove_segment(dead)
            self._spares.recycle(dead.path, dead.handle, dead.size)
            return None
        deadline = time.perf_counter() + budget_ms / 1000
        if self._restating.wants_work(self._writer.kept_from, self._writer.synced):
            restated = self._restating.work(lambda: time.perf_counter() < deadline)
            if restated is not None:
                self._writer.restate(restated, first_message)
            return None
        handle = self._spares.fill(lambda: time.perf_counter() < deadline)
        self._fill_again = self._clock() + _FULL_RETRY_MS
        self.filling = handle is not None
        return handle

    def _dead(self) -> Segment | None:
        return self._writer.living.dead(self._writer.kept_from, self._writer.synced)
