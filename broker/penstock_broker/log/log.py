"""The log: the broker's database. Append-only segments that hold topology and messages in one order (docs/log-
format.md).

Written for speed: `put` and `ack` are flat, `write` encodes per block. Measured cost stands in docs/performance.md,
about 0.4 us per put, 0.15 us per ack, and per message in a block of 100 about 0.2 us for the write. What appends is in
`append`, bodies in parts and transactions are in `commit`; here is what writes, syncs, opens and closes. It
decides nothing about messages and must not know AMQP. It is called from one thread; only `request_sync` and `maintain`
lead to work elsewhere.
"""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock_broker.log.encoding import ack_record, checkpoint_records, closed_record
from penstock_broker.log.files import Buffer, FileLayer, RealFiles
from penstock_broker.log.files import lock_folder
from penstock_broker.log.records import Outcome
from penstock_broker.log.recover import Recovered, Restored, recover
from penstock_broker.log.ack_compaction import Restating
from penstock_broker.log.space import Space
from penstock_broker.log.spare_segments import Spares
from penstock_broker.log.checkpoint import State, longest_record, parts
from penstock_broker.log.syncers import Done, SyncChoice, Syncer, choose
from penstock_broker.log.commit import Transactor
from penstock_broker.log.writer import Writer

LOGGER = logging.getLogger(__name__)

SMALLEST_SEGMENT = 16 * 1024
_FILL_TOKEN = -1


@dataclass(frozen=True, slots=True)
class Settings:
    """`reserve`: segments that only acks, topology and compaction may use. `spare`: segments kept ready beyond them.

    `inline_bytes`: a longer payload whose body came in parts stays in the segments; see `LargePayload`.
    """

    segment_bytes: int = 64 * 1024 * 1024
    reserve: int = 2
    spare: int = 1
    inline_bytes: int = 1024 * 1024
    sync: SyncChoice = SyncChoice.AUTO

    def __post_init__(self) -> None:
        if self.segment_bytes < SMALLEST_SEGMENT or self.segment_bytes % 4096:
            raise ValueError(
                f"segment_bytes is a multiple of 4096 from {SMALLEST_SEGMENT} on, not {self.segment_bytes}"
            )


class Log(Transactor):
    """Append with `put`, `ack`, `topology`...; `write` once a turn; promise only what `synced` has reached.

    Nothing that depends on a record may leave the broker before `synced` has reached what `write` returned for it.
    """

    def __init__(
        self,
        folder: Path,
        restored: Restored,
        *,
        files: FileLayer,
        settings: Settings,
        clock: Callable[[], int],
        entropy: Callable[[int], bytes],
    ) -> None:
        """Use `open`."""
        replay, living = restored.replay, restored.living
        self._folder, self._files = folder, files
        self._spares = Spares(files, folder, settings.segment_bytes, settings.reserve + settings.spare)
        writer = Writer(files, folder, living, self._spares, log_id=restored.log_id or entropy(16), clock=clock)
        writer.segment_bytes, writer.reserve = settings.segment_bytes, settings.reserve
        writer.start(epoch=restored.recovered.epoch + 1, sequence=restored.sequence, kept_from=replay.checkpoint)
        writer.checkpoint = self._checkpoint
        longest = longest_record(writer.capacity)
        state = State(replay, restored.recovered.documents, living.queues.keys(), longest, files.boot_id())
        super().__init__(writer, living, restored.bodies, state, settings.inline_bytes)
        self._next_message = self._first_message = max(replay.message_ceiling, replay.highest_message + 1)
        self._next_incarnation = replay.incarnation_ceiling
        self._next_route = replay.highest_route + 1
        restating = Restating(files, living, writer.seed, longest)
        self._space = Space(writer, self._spares, restating, settings.reserve, clock)
        self._syncer_choice = settings.sync
        self._in_flight = False
        self._lock = -1
        self._syncer: Syncer
        self.descriptor = -1  # readable when `collect` has something to take note of

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        files: FileLayer | None = None,
        settings: Settings | None = None,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        entropy: Callable[[int], bytes] = os.urandom,
        syncer: Callable[[FileLayer], Syncer] | None = None,
    ) -> tuple["Log", Recovered]:
        """Lock and recover the folder (made if missing), begin a new epoch, and sync it.

        Raises FolderLocked, NewerFormat, ForeignSegment, or OSError. `clock` gives milliseconds since 1970.
        `syncer` makes a back end of the caller's own in the place of `settings.sync`.
        """
        files, settings = files or RealFiles(), settings or Settings()
        lock = lock_folder(folder)
        try:
            restored = recover(files, folder, settings.inline_bytes)
            log = cls(folder, restored, files=files, settings=settings, clock=clock, entropy=entropy)
            log._begin(restored, syncer)
        except BaseException:
            os.close(lock)
            raise
        log._lock = lock
        return log, restored.recovered

    @property
    def epoch(self) -> int:
        """How often this log has been opened."""
        return self._writer.epoch

    @property
    def sequence(self) -> int:
        """The last block written."""
        return self._writer.sequence

    @property
    def synced(self) -> int:
        """Every block up to this one survives a crash of the machine."""
        return self._writer.synced

    @property
    def unsynced_body_bytes(self) -> int:
        """Of bodies that come in parts, what was taken in and might be lost with the machine now."""
        return self._writer.unsynced_parts + self._bodies.waiting_bytes

    # Once a turn ------------------------------------------------------------------------------------------------------

    def write(self) -> int:
        """Write everything appended as one block; the sequence on which a promise about it depends.

        After a failure nothing is written, and the sequence returned is one that `synced` never reaches.
        """
        if self.failed is not None:
            self._forget()
            return self._writer.sequence + 1
        acks = self._encode_acks()
        if self._new_marks:
            self._records += self._state.mark(self._new_marks)
            self._new_marks.clear()
        if self._new_counts:
            self._records += self._state.count(self._new_counts)
            self._new_counts.clear()
        if self._state.lacks_numbers(self._next_message, self._next_incarnation):
            self._records.append(self._reserve_numbers())
        if not self._records:
            self._write_checkpoint()  # parts may have begun segments
            return self._writer.sequence
        try:
            touched = self._writer.place(self._records, self._puts, self._first_message)
        except OSError as error:
            self._fail(f"writing failed: {error}")
            self._forget()
            return self._writer.sequence + 1
        sequence = self._writer.sequence
        self._records, self._puts = [], {}
        self._counted = (0, 0)
        self._first_message = self._next_message
        if self._staged:
            self._hold_bodies()
        for incarnation, messages in acks:
            named = self._living.ack(incarnation, messages, sequence)
            for segment in touched:
                segment.names |= named - {segment.number}
        self._write_checkpoint()
        return sequence

    def _write_checkpoint(self) -> None:
        try:
            self._writer.write_checkpoint(self._first_message)
        except OSError as error:
            self._fail(f"writing failed: {error}")

    def _write_parts(self) -> None:
        pieces = self._bodies.take()
        if not pieces or self.failed is not None:
            return
        try:
            self._writer.write_parts(pieces, self._first_message)
        except OSError as error:
            self._fail(f"writing failed: {error}")

    def _hold_bodies(self) -> None:
        """From now on the messages that name bodies keep them."""
        for message, route_set, body in self._staged:
            self._living.hold(message, self._writer.routes[route_set], body.segments)
        self._staged.clear()

    def _encode_acks(self) -> list[tuple[int, list[int]]]:
        """Append the records of pending acks; the acks of queues that still exist, those in commits included."""
        acks = self._committed_acks
        self._committed_acks = []
        for incarnation, messages in acks:
            self._state.acked(incarnation, messages)
        for (incarnation, outcome), messages in self._acks.items():
            if incarnation not in self._living.queues:
                continue
            messages.sort()
            self._records += [ack_record(incarnation, part, outcome) for part in parts(messages, self._longest)]
            acks.append((incarnation, messages))
            self._state.acked(incarnation, messages)
        self._acks.clear()
        return acks

    def _reserve_numbers(self) -> bytes:
        return self._state.reserve_numbers(self._next_message, self._next_incarnation)

    def _checkpoint(self, written: int) -> list[Buffer] | None:
        """All topology, if it takes at most an eighth of what was `written` since the last time (half when full)."""
        records = [self._reserve_numbers(), *self._state.restated()]
        if sum(map(len, records)) * (2 if self.full else 8) > written:
            return None
        self._writer.routes = {number: queues for queues, number in self._route_numbers.items()}
        return list[Buffer](checkpoint_records(self._writer.sequence + 1, records))

    def _forget(self) -> None:
        for pending in (self._records, self._puts, self._acks, self._new_marks, self._new_counts):
            pending.clear()
        self._staged.clear()
        self._committed_acks.clear()

    def request_sync(self) -> None:
        """Start an fdatasync of what is written, unless one is under way or nothing is new.

        `descriptor` becomes readable when it has ended.
        """
        writer = self._writer
        if self._in_flight or writer.synced == writer.sequence or self.failed is not None:
            return
        self._in_flight = True
        handles = tuple(writer.dirty)
        writer.dirty.clear()
        self._syncer.submit(writer.sequence, handles)

    def collect(self) -> int:
        """Take note of what has been synced (call when `descriptor` is readable); the highest synced sequence."""
        self._take(self._syncer.done())
        return self._writer.synced

    def _take(self, done: Done) -> None:
        for token, error in done:
            if token == _FILL_TOKEN:
                self._space.filling = False
            else:
                self._in_flight = False
            if error is not None:
                self._fail(f"fdatasync failed: {error}")
            elif token != _FILL_TOKEN and self.failed is None:
                self._writer.note_synced(token)

    def _fail(self, reason: str) -> None:
        if self.failed is None:
            self.failed = reason
            LOGGER.critical("the log has failed and takes no durable work until the broker is restarted: %s", reason)

    # Space ------------------------------------------------------------------------------------------------------------

    def accepts_publishing(self) -> bool:
        """False when the disk is full but for the reserve, which is kept for draining, and after a failure."""
        return self.failed is None and self._space.accepts_publishing()

    def _has_room(self, size: int) -> bool:
        try:
            return self._space.has_room(size)
        except OSError as error:
            self._fail(f"preparing segments failed: {error}")
            return False

    @property
    def full(self) -> bool:
        """Whether the last attempt to get more space failed."""
        return self._space.full

    @property
    def segments(self) -> int:
        """Segments that hold records, the one being written included."""
        return len(self._living.segments)

    @property
    def wants_maintenance(self) -> bool:
        """Whether `maintain` has something to do now."""
        return self.failed is None and self._space.wants_work()

    def maintain(self, budget_ms: float) -> None:
        """Idle work for about `budget_ms`: recycle one dead segment, gather acks, or fill a spare by a slice."""
        if not self.wants_maintenance:
            return
        try:
            handle = self._space.work(budget_ms, self._first_message)
        except OSError as error:
            self._fail(f"preparing segments failed: {error}")
            return
        if handle is not None:
            self._syncer.submit(_FILL_TOKEN, (handle,))

    # Beginning and end ------------------------------------------------------------------------------------------------

    def _begin(self, restored: Restored, syncer: Callable[[FileLayer], Syncer] | None) -> None:
        names = self._files.names(self._folder)
        self._spares.adopt([name for name in names if name.startswith("spare-")])
        if not self._living.segments:
            self._writer.begin_segment(1, self._next_message)
        if syncer is not None:
            self._syncer = syncer(self._files)
        else:
            self._syncer = choose(self._files, self._living.segments[-1].handle, self._syncer_choice)
        self.descriptor = self._syncer.descriptor
        LOGGER.info("log %s: epoch %d, synced by %s", self._folder, self.epoch, self._syncer.name)
        self._records.append(self._reserve_numbers())
        for incarnation, lost in restored.incomplete.items():
            self._records += [ack_record(incarnation, part, Outcome.DROPPED) for part in parts(lost, self._longest)]
        if not restored.exact_marks:
            # What recovery concludes from a power failure must hold in later lives, which see none.
            for incarnation, messages in restored.recovered.messages.items():
                if messages:
                    self.delivered_up_to(incarnation, messages[-1].number)
        self.write()
        self.sync()

    def sync(self) -> None:
        """Wait until all that is written is synced, or the log has failed. For the beginning, the end and tools."""
        while self._writer.synced < self._writer.sequence and self.failed is None:
            self.request_sync()
            self._take(self._syncer.wait())

    def close(self) -> None:
        """Write and sync what is pending, mark the log as closed in order, and give the folder free."""
        if self.failed is None:
            self.write()
            self._writer.checkpoint = lambda written: None  # nothing may follow the last record
            self._records.append(closed_record())
            self.write()
            self.sync()
        self._syncer.close()
        for segment in self._living.segments:
            self._files.close(segment.handle)
        self._spares.close()
        os.close(self._lock)
